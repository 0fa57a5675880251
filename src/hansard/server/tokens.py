"""JSON Web Tokens of an identity provider, verified with its published keys.

The claim `hansard_tenant` names the tenant and is required: no token is an operator's. `hansard_user` binds the token
to a user. The scopes are the words of `scope` that begin with `hansard:`, such as `hansard:read`. `ClaimRules` replace
these claims for providers that cannot issue them.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hansard.errors import Unauthenticated, Unavailable, Unsupported, ValidationError
from hansard.executor import run_in_thread
from hansard.server.endpoints import SCOPES, Caller
from hansard.server.settings import Settings

_LOG = logging.getLogger("hansard.server")
# Asymmetric algorithms only: a public key must never be accepted as a shared secret.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_FRESH = 300.0
_AGAIN = 30.0
"""Seconds after which keys are fetched again for a token with an unknown key id, or after a failure."""
_PATIENCE = 5.0
_MOST_BYTES = 1_000_000
_MALFORMED = (ValueError, TypeError, OverflowError, RecursionError)
"""Raised by the library for claims of the wrong type, such as a list for a time."""
_LAST = 253_402_300_799
"""The largest timestamp that `datetime` supports, in the year 9999."""


class ClaimRules(Struct, frozen=True):
    """What the claims of a token mean. None: the claims of the module's description apply."""

    tenant: str | None = None
    """The tenant of every token."""
    user: str | None = None
    """The claim that names the user, and that a token must then contain."""
    scopes: tuple[str, ...] | None = None
    """The scopes of every token."""


class TokenVerifier:
    """Verifies the tokens that one issuer has made for one audience."""

    def __init__(
        self, jwks: Callable[[], Awaitable[str]], issuer: str, audience: str, rules: ClaimRules | None = None
    ) -> None:
        """`jwks` returns the URL or the path of the JSON Web Key Set. It is called before each fetch."""
        try:
            import jwt
        except ModuleNotFoundError as error:
            raise Unsupported("tokens need an extra: pip install 'hansard[jwt]'", capability="jwt") from error
        self._jwt = jwt
        self._jwks = jwks
        self._issuer = issuer
        self._audience = audience
        self._rules = rules or ClaimRules()
        self._keys: dict[str | None, Any] = {}
        self._fetched_at = -_FRESH
        self._lock = asyncio.Lock()

    async def caller(self, token: str) -> Caller:
        """Returns the caller that the token names, or raises `Unauthenticated`."""
        return caller_of(await self.claims(token), self._rules)

    async def claims(self, token: str) -> dict[str, Any]:
        """Returns the claims of a valid token, or raises `Unauthenticated`."""
        try:
            key = await self._key(self._jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                issuer=self._issuer,
                audience=self._audience,
                options={"require": ["exp", "sub"]},
            )
        except (self._jwt.PyJWTError, *_MALFORMED) as error:
            raise Unauthenticated("the token is not valid") from error
        return claims

    async def _key(self, id: str | None) -> Any:
        if self._is_due(id):
            async with self._lock:
                if self._is_due(id):
                    await self._refresh(id)
        if id not in self._keys:
            raise self._jwt.InvalidTokenError("unknown key")
        return self._keys[id]

    def _is_due(self, id: str | None) -> bool:
        return time.monotonic() - self._fetched_at > (_FRESH if id in self._keys else _AGAIN)

    async def _refresh(self, id: str | None) -> None:
        """Fetches the keys. While the provider does not answer, a key that was fetched before stays valid."""
        try:
            await self._fetch()
        except Unavailable:
            if id not in self._keys:
                raise
            _LOG.warning("the keys of %s could not be fetched again", self._issuer)
            self._fetched_at = time.monotonic() - _FRESH + _AGAIN

    async def _fetch(self) -> None:
        try:
            raw = await run_in_thread(_read, await self._jwks())
            found = self._jwt.PyJWKSet.from_dict(msgspec.json.decode(raw))
        except (OSError, HTTPException, ValueError, TypeError, AttributeError, self._jwt.PyJWTError) as error:
            raise Unavailable("the keys of the identity provider cannot be read") from error
        self._keys = {key.key_id: key for key in found.keys}
        self._fetched_at = time.monotonic()


def _read(where: str) -> bytes:
    if where.startswith(("https://", "http://")):
        with urllib.request.urlopen(where, timeout=_PATIENCE) as answer:
            return bytes(answer.read(_MOST_BYTES))
    return Path(where).read_bytes()


def verifier_of(settings: Settings) -> TokenVerifier:
    """Returns the verifier of the tokens that clients of the API send."""
    where, issuer, audience = settings.jwks, settings.jwt_issuer, settings.jwt_audience
    if where is None or issuer is None or audience is None:
        raise ValidationError("tokens need a JWKS, an issuer and an audience: set all three")

    async def jwks() -> str:
        return where

    return TokenVerifier(jwks, issuer, audience)


def caller_of(claims: dict[str, Any], rules: ClaimRules) -> Caller:
    """Returns the caller that verified claims name, or raises `Unauthenticated`."""
    tenant = claims.get("hansard_tenant") if rules.tenant is None else rules.tenant
    if not isinstance(tenant, str) or not tenant:
        raise Unauthenticated("the token has no tenant: its claim 'hansard_tenant' is missing or no name")
    ends = claims["exp"]
    if not isinstance(ends, int | float) or isinstance(ends, bool):
        raise Unauthenticated("the token's exp is not a number")
    until = datetime.fromtimestamp(min(ends, _LAST), UTC)
    return Caller(f"token:{claims['sub']}", _scopes_of(claims, rules), tenant, _user_of(claims, rules), until)


def _user_of(claims: dict[str, Any], rules: ClaimRules) -> str | None:
    name = rules.user or "hansard_user"
    user = claims.get(name)
    if user is None and rules.user is None:
        return None
    if not isinstance(user, str) or not user:
        raise Unauthenticated(f"the token has no user: its claim {name!r} is missing or no name")
    if name == "email" and claims.get("email_verified") is not True:
        raise Unauthenticated("the token has no user: its provider has not verified the address in 'email'")
    return user


def _scopes_of(claims: dict[str, Any], rules: ClaimRules) -> frozenset[str]:
    if rules.scopes is not None:
        return frozenset(rules.scopes)
    scope = claims.get("scope", "")
    words = scope.split() if isinstance(scope, str) else []
    return frozenset(each for each in SCOPES if f"hansard:{each}" in words)
