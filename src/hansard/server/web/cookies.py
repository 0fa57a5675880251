"""Who a browser is: the key that it signed in with, and the proof that a form came from a page of ours.

The key is kept in a cookie that no script can read and that other sites cannot make a browser send with a form. A
second cookie holds a random seed; every form carries a digest of the seed and the key. Another site can neither read
the cookies nor guess the digest.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hansard.errors import Denied, Unauthenticated
from hansard.server.auth import Auth
from hansard.server.endpoints import Caller, Headers

if TYPE_CHECKING:
    from hansard.server.web.page_request import PageRequest

OURS = "hansard_"
"""With which the names of our cookies begin."""
HOST = "__Host-"
"""Before the name of a cookie: browsers take it only by TLS, from the host itself, for all of its paths."""
KEY = "hansard_key"
HOST_KEY = HOST + KEY
"""The same where the page comes by TLS and without a prefix. No neighbour, of another name under the same domain, can
set a cookie of this name for us. It must have the path `/`: behind a prefix it would go to other applications."""
SEED = "hansard_seed"
_DAYS_30 = 30 * 86_400
_TOKEN = re.compile(r"[\w.~+/=-]{1,3800}", re.ASCII)
_OWN_SITE = (None, b"same-origin", b"none")


def own_cookies(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Our cookies. Other applications on the same host set others, in any form that they like."""
    sent = (each.partition("=") for each in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    found: dict[str, str] = {}
    for name, _, value in sent:
        if name.strip().removeprefix(HOST).startswith(OURS):
            # A browser sends the cookie with the longest path first.
            found.setdefault(name.strip(), value.strip())
    return found


async def admit(auth: Auth, request: PageRequest[Any, Any]) -> Caller:
    """Who asks: by the header that programs send, else by the cookie."""
    headers = request.headers
    key = key_of(request)
    if key is not None and b"authorization" not in headers and auth.needs_key:
        headers = headers | {b"authorization": b"Bearer " + key.encode("latin-1", "replace")}
    return await auth.admit(headers, request.scope.get("client"))


def key_of(request: PageRequest[Any, Any]) -> str | None:
    """The key that the browser has signed in with."""
    return request.cookies.get(HOST_KEY, request.cookies.get(KEY))


async def caller_of_key(auth: Auth, request: PageRequest[Any, Any], key: str) -> Caller:
    """Who comes with this key. Refuses one that nobody may come in with."""
    if not _TOKEN.fullmatch(key):
        raise Unauthenticated("the key is not valid")
    return await auth.admit(
        request.headers | {b"authorization": b"Bearer " + key.encode()}, request.scope.get("client")
    )


# Forms


def seed_of(request: PageRequest[Any, Any]) -> tuple[str, Headers]:
    """The browser's seed; and the header that gives it one, if it has none."""
    seed = request.cookies.get(SEED)
    if seed and len(seed) >= 32:
        return seed, ()
    seed = secrets.token_urlsafe(32)
    return seed, (_cookie(request, SEED, seed, path="/", same_site="Strict"),)


def proof_of(request: PageRequest[Any, Any], seed: str) -> str:
    """What every form of this browser carries."""
    key = key_of(request) or ""
    return hmac.new(seed.encode(), b"form\0" + key.encode(), hashlib.sha256).hexdigest()


def check_form(request: PageRequest[Any, Any], proof: str | None) -> None:
    """Refuses a form that did not come from a page of ours."""
    if b"authorization" in request.headers:
        return  # no browser sends this by itself
    if request.headers.get(b"sec-fetch-site") not in _OWN_SITE:
        raise Denied("a form from another site is not taken")
    seed = request.cookies.get(SEED, "")
    # As bytes: of texts, only ASCII could be compared.
    if not seed or not hmac.compare_digest(proof_of(request, seed).encode(), (proof or "").encode()):
        raise Denied("the form is too old, or came from elsewhere: load the page again, then send it again")


# Signing in and out


def signed_in(request: PageRequest[Any, Any], key: str, shown_at: str) -> Headers:
    """Gives the browser its key. `shown_at` is the path of the page that asked for it, as far as we see it."""
    if request.is_https and _has_no_prefix(request, shown_at):
        return (_cookie(request, HOST_KEY, key, path="/", seconds=_DAYS_30), _cookie(request, KEY, "", seconds=0))
    return (*_delete_host_cookie(request), _cookie(request, KEY, key, seconds=_DAYS_30))


def signed_out(request: PageRequest[Any, Any]) -> Headers:
    return (*_delete_host_cookie(request), _cookie(request, KEY, "", seconds=0))


def _delete_host_cookie(request: PageRequest[Any, Any]) -> Headers:
    """Takes the key that counts before the other: one that no longer holds would keep the browser out."""
    return (_cookie(request, HOST_KEY, "", path="/", seconds=0),) if HOST_KEY in request.cookies else ()


def _has_no_prefix(request: PageRequest[Any, Any], shown_at: str) -> bool:
    """Whether the browser names the page as we do: a proxy that puts a prefix before it does not tell us."""
    _, _, named = request.headers.get(b"referer", b"").decode("latin-1").partition("://")
    path = named.partition("/")[2].partition("?")[0]
    return bool(named) and path in (shown_at.partition("?")[0], "sign-in")


def _cookie(
    request: PageRequest[Any, Any],
    name: str,
    value: str,
    *,
    path: str | None = None,
    same_site: str = "Lax",
    seconds: int | None = None,
) -> tuple[bytes, bytes]:
    # Without a path, a browser takes the folder of the page that set it: just the prefix that a proxy put before us.
    parts = [f"{name}={value}", "HttpOnly", f"SameSite={same_site}"]
    if path is not None:
        parts.append(f"Path={path}")
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if request.is_https or name == HOST_KEY:
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")
