"""JSON Web Tokens of an identity provider, verified with its published keys.

The claim `hansard_tenant` names the tenant and is required: no token is an operator's. `hansard_user` binds the token
to a user. The scopes are the words of `scope` that begin with `hansard:`, such as `hansard:read`.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard.errors import Unauthenticated, Unavailable, Unsupported, ValidationError
from hansard.executor import run_in_thread
from hansard.server.endpoints import SCOPES, Caller
from hansard.server.settings import Settings

# Asymmetric algorithms only: a public key must never be accepted as a shared secret.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_FRESH = 300.0
_AGAIN = 30.0
"""Seconds after which a token with an unknown key id causes the keys to be fetched again."""
_PATIENCE = 5.0
_MOST_BYTES = 1_000_000
_MALFORMED = (ValueError, TypeError, OverflowError, RecursionError)
"""Raised by the library for claims of the wrong type, such as a list for a time."""
_LAST = 253_402_300_799
"""The largest timestamp that `datetime` supports, in the year 9999."""


class TokenVerifier:
    def __init__(self, settings: Settings) -> None:
        if settings.jwks is None or settings.jwt_issuer is None or settings.jwt_audience is None:
            raise ValidationError("tokens need a JWKS, an issuer and an audience: set all three")
        try:
            import jwt
        except ModuleNotFoundError as error:
            raise Unsupported("tokens need an extra: pip install 'hansard[jwt]'", capability="jwt") from error
        self._jwt = jwt
        self._where = settings.jwks
        self._issuer = settings.jwt_issuer
        self._audience = settings.jwt_audience
        self._keys: dict[str | None, Any] = {}
        self._fetched_at = -_FRESH
        self._lock = asyncio.Lock()

    async def caller(self, token: str) -> Caller:
        """Returns the caller that the token names, or raises `Unauthenticated`."""
        try:
            key = await self._key(self._jwt.get_unverified_header(token).get("kid"))
            claims = self._jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                options={"require": ["exp", "sub"]},
            )
        except (self._jwt.PyJWTError, *_MALFORMED) as error:
            raise Unauthenticated("the token is not valid") from error
        return _caller(claims)

    async def _key(self, id: str | None) -> Any:
        age = time.monotonic() - self._fetched_at
        if age > _FRESH or (id not in self._keys and age > _AGAIN):
            async with self._lock:
                if time.monotonic() - self._fetched_at >= min(age, _AGAIN):
                    await self._fetch()
        if id not in self._keys:
            raise self._jwt.InvalidTokenError("unknown key")
        return self._keys[id]

    async def _fetch(self) -> None:
        try:
            raw = await run_in_thread(_read, self._where)
            found = self._jwt.PyJWKSet.from_dict(msgspec.json.decode(raw))
        except (OSError, ValueError, TypeError, AttributeError, self._jwt.PyJWTError) as error:
            raise Unavailable("the keys of the identity provider cannot be read") from error
        self._keys = {key.key_id: key for key in found.keys}
        self._fetched_at = time.monotonic()


def _read(where: str) -> bytes:
    if where.startswith(("https://", "http://")):
        with urllib.request.urlopen(where, timeout=_PATIENCE) as answer:
            return bytes(answer.read(_MOST_BYTES))
    return Path(where).read_bytes()


def _caller(claims: dict[str, Any]) -> Caller:
    tenant, user = claims.get("hansard_tenant"), claims.get("hansard_user")
    scope = claims.get("scope", "")
    if not isinstance(tenant, str) or not tenant or not isinstance(user, str | None) or user == "":
        raise Unauthenticated("the token has no tenant, or its user is not a name")
    ends = claims["exp"]
    if not isinstance(ends, int | float) or isinstance(ends, bool):
        raise Unauthenticated("the token's exp is not a number")
    words = scope.split() if isinstance(scope, str) else []
    scopes = frozenset(each for each in SCOPES if f"hansard:{each}" in words)
    until = datetime.fromtimestamp(min(ends, _LAST), UTC)
    return Caller(f"token:{claims['sub']}", scopes, tenant, user, until)
