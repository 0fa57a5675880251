"""Browser sessions: the key that the browser signed in with, and protection against forged forms (CSRF).

The key is stored in a cookie that scripts cannot read and that browsers do not send with forms of other sites. A second
cookie contains a random seed. Every form contains a digest of the seed and the key, which another site can neither read
nor guess.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from hansard.errors import Denied, Unauthenticated
from hansard.server.auth import Auth
from hansard.server.endpoints import Caller, Headers

if TYPE_CHECKING:
    from hansard.server.web.page_request import PageRequest

OURS = "hansard_"
"""Prefix of our cookies' names."""
HOST = "__Host-"
"""Name prefix of cookies that browsers accept only over TLS, from the host itself, and for all of its paths."""
KEY = "hansard_key"
HOST_KEY = HOST + KEY
"""Used if the page is served over TLS and without a path prefix. Other hosts of the same domain cannot set this cookie.
It must have the path `/`: behind a prefix, it would be sent to other applications."""
SEED = "hansard_seed"
_MOST_SEED = 64
"""Bytes of a seed that count: as many as the digest accepts as its key."""
_DAYS_30 = 30 * 86_400
YEAR = 365 * 86_400
_TOKEN = re.compile(r"[\w.~+/=-]{1,3800}", re.ASCII)
_OWN_SITE = (None, b"same-origin", b"none")


def own_cookies(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Returns our cookies. Ignores those of other applications on the host, which may have any form."""
    sent = (each.partition("=") for each in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    found: dict[str, str] = {}
    for name, _, value in sent:
        if name.strip().removeprefix(HOST).startswith(OURS):
            # Browsers send the cookie with the longest path first.
            found.setdefault(name.strip(), value.strip())
    return found


async def admit(auth: Auth, request: PageRequest[Any, Any]) -> Caller:
    """Returns the caller, by the Authorization header, else by the cookie."""
    headers = request.headers
    key = key_of(request)
    if key is not None and b"authorization" not in headers and auth.needs_key:
        headers = headers | {b"authorization": b"Bearer " + key.encode("latin-1", "replace")}
    return await auth.admit(headers, request.scope.get("client"))


def key_of(request: PageRequest[Any, Any]) -> str | None:
    """Returns the key that the browser has signed in with."""
    return request.cookies.get(HOST_KEY, request.cookies.get(KEY))


def is_storable(key: str) -> bool:
    """Whether a key or token fits into a cookie."""
    return _TOKEN.fullmatch(key) is not None


async def caller_of_key(auth: Auth, request: PageRequest[Any, Any], key: str) -> Caller:
    """Returns the caller of a key, or raises `Unauthenticated`."""
    if not is_storable(key):
        raise Unauthenticated("the key is not valid")
    return await auth.admit(
        request.headers | {b"authorization": b"Bearer " + key.encode()}, request.scope.get("client")
    )


# Forms


def seed_of(request: PageRequest[Any, Any]) -> tuple[str, Headers]:
    """Returns the browser's seed and, if it had none, the header that sets it."""
    seed = request.cookies.get(SEED)
    if seed and len(seed) >= 32:
        return seed, ()
    seed = secrets.token_urlsafe(32)
    return seed, (cookie(request, SEED, seed, path="/", same_site="Strict"),)


def proof_of(request: PageRequest[Any, Any], seed: str) -> str:
    """Returns the proof that every form of this browser contains."""
    key = key_of(request) or ""
    return blake2b(b"form\0" + key.encode(), key=seed.encode()[:_MOST_SEED], digest_size=32).hexdigest()


def check_form(request: PageRequest[Any, Any], proof: str | None) -> None:
    """Refuses a form that was not sent from one of our pages."""
    if b"authorization" in request.headers:
        return  # browsers do not send this header by themselves
    if request.headers.get(b"sec-fetch-site") not in _OWN_SITE:
        raise Denied("forms of other sites are not accepted")
    seed = request.cookies.get(SEED, "")
    # As bytes: compare_digest accepts only ASCII strings.
    if not seed or not hmac.compare_digest(proof_of(request, seed).encode(), (proof or "").encode()):
        raise Denied("the form is too old, or was sent by another page: reload the page, then send it again")


# Signing in and out


def signed_in(request: PageRequest[Any, Any], key: str, shown_at: str) -> Headers:
    """Returns headers that set the key cookie. `shown_at` is the path of the sign-in page as the server sees it."""
    if request.is_https and _has_no_prefix(request, shown_at):
        return (cookie(request, HOST_KEY, key, path="/", seconds=_DAYS_30), cookie(request, KEY, "", seconds=0))
    return (*_delete_host_cookie(request), cookie(request, KEY, key, seconds=_DAYS_30))


def signed_in_below(request: PageRequest[Any, Any], key: str, path: str, seconds: int) -> Headers:
    """Returns headers that set the key cookie for the pages below a path, as the browser sees it."""
    if request.is_https and path == "/":
        return (
            cookie(request, HOST_KEY, key, path="/", seconds=seconds),
            cookie(request, KEY, "", path="/", seconds=0),
        )
    return (*_delete_host_cookie(request), cookie(request, KEY, key, path=path, seconds=seconds))


def signed_out(request: PageRequest[Any, Any]) -> Headers:
    return (*_delete_host_cookie(request), cookie(request, KEY, "", seconds=0))


def _delete_host_cookie(request: PageRequest[Any, Any]) -> Headers:
    """Deletes the `__Host-` cookie. It takes precedence, so an outdated one would block the browser."""
    return (cookie(request, HOST_KEY, "", path="/", seconds=0),) if HOST_KEY in request.cookies else ()


def _has_no_prefix(request: PageRequest[Any, Any], shown_at: str) -> bool:
    """Whether the browser sees the same path as the server: a proxy may add a prefix that it does not report."""
    _, _, named = request.headers.get(b"referer", b"").decode("latin-1").partition("://")
    path = named.partition("/")[2].partition("?")[0]
    return bool(named) and path in (shown_at.partition("?")[0], "sign-in")


def cookie(
    request: PageRequest[Any, Any],
    name: str,
    value: str,
    *,
    path: str | None = None,
    same_site: str = "Lax",
    seconds: int | None = None,
) -> tuple[bytes, bytes]:
    # Without a path, the browser uses the folder of the page that set it, which includes a proxy's prefix.
    parts = [f"{name}={value}", "HttpOnly", f"SameSite={same_site}"]
    if path is not None:
        parts.append(f"Path={path}")
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if request.is_https or name == HOST_KEY:
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")
