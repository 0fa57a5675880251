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
OWN_KEY = HOST + KEY
"""The same where the page comes by TLS and without a prefix. No neighbour, of another name under the same domain, can
set a cookie of this name for us. It must have the path `/`: behind a prefix it would go to other applications."""
SEED = "hansard_seed"
_DAYS_30 = 30 * 86_400
_TOKEN = re.compile(r"[\w.~+/=-]{1,3800}", re.ASCII)
_OURS = (None, b"same-origin", b"none")


def ours(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Our cookies. Other applications on the same host set others, in any form that they like."""
    sent = (each.partition("=") for each in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    found: dict[str, str] = {}
    for name, _, value in sent:
        if name.strip().removeprefix(HOST).startswith(OURS):
            # A browser sends the cookie with the longest path first.
            found.setdefault(name.strip(), value.strip())
    return found


async def admit(auth: Auth, visit: PageRequest[Any, Any]) -> Caller:
    """Who asks: by the header that programs send, else by the cookie."""
    headers = visit.headers
    key = key_of(visit)
    if key is not None and b"authorization" not in headers and auth.needs_key:
        headers = headers | {b"authorization": b"Bearer " + key.encode("latin-1", "replace")}
    return await auth.admit(headers, visit.scope.get("client"))


def key_of(visit: PageRequest[Any, Any]) -> str | None:
    """The key that the browser has signed in with."""
    return visit.cookies.get(OWN_KEY, visit.cookies.get(KEY))


async def holds(auth: Auth, visit: PageRequest[Any, Any], key: str) -> Caller:
    """Who comes with this key. Refuses one that nobody may come in with."""
    if not _TOKEN.fullmatch(key):
        raise Unauthenticated("the key does not hold")
    return await auth.admit(visit.headers | {b"authorization": b"Bearer " + key.encode()}, visit.scope.get("client"))


# Forms


def seed_of(visit: PageRequest[Any, Any]) -> tuple[str, Headers]:
    """The browser's seed; and the header that gives it one, if it has none."""
    seed = visit.cookies.get(SEED)
    if seed and len(seed) >= 32:
        return seed, ()
    seed = secrets.token_urlsafe(32)
    return seed, (_cookie(visit, SEED, seed, path="/", same_site="Strict"),)


def proof_of(visit: PageRequest[Any, Any], seed: str) -> str:
    """What every form of this browser carries."""
    key = key_of(visit) or ""
    return hmac.new(seed.encode(), b"form\0" + key.encode(), hashlib.sha256).hexdigest()


def check_form(visit: PageRequest[Any, Any], proof: str | None) -> None:
    """Refuses a form that did not come from a page of ours."""
    if b"authorization" in visit.headers:
        return  # no browser sends this by itself
    if visit.headers.get(b"sec-fetch-site") not in _OURS:
        raise Denied("a form from another site is not taken")
    seed = visit.cookies.get(SEED, "")
    # As bytes: of texts, only ASCII could be compared.
    if not seed or not hmac.compare_digest(proof_of(visit, seed).encode(), (proof or "").encode()):
        raise Denied("the form is too old, or came from elsewhere: load the page again, then send it again")


# Signing in and out


def signed_in(visit: PageRequest[Any, Any], key: str, shown_at: str) -> Headers:
    """Gives the browser its key. `shown_at` is the path of the page that asked for it, as far as we see it."""
    if visit.is_https and _has_no_prefix(visit, shown_at):
        return (_cookie(visit, OWN_KEY, key, path="/", seconds=_DAYS_30), _cookie(visit, KEY, "", seconds=0))
    return (*_without_own(visit), _cookie(visit, KEY, key, seconds=_DAYS_30))


def signed_out(visit: PageRequest[Any, Any]) -> Headers:
    return (*_without_own(visit), _cookie(visit, KEY, "", seconds=0))


def _without_own(visit: PageRequest[Any, Any]) -> Headers:
    """Takes the key that counts before the other: one that no longer holds would keep the browser out."""
    return (_cookie(visit, OWN_KEY, "", path="/", seconds=0),) if OWN_KEY in visit.cookies else ()


def _has_no_prefix(visit: PageRequest[Any, Any], shown_at: str) -> bool:
    """Whether the browser names the page as we do: a proxy that puts a prefix before it does not tell us."""
    _, _, named = visit.headers.get(b"referer", b"").decode("latin-1").partition("://")
    path = named.partition("/")[2].partition("?")[0]
    return bool(named) and path in (shown_at.partition("?")[0], "sign-in")


def _cookie(
    visit: PageRequest[Any, Any],
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
    if visit.is_https or name == OWN_KEY:
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")
