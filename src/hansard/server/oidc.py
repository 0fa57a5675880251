"""The provider that people sign in with on the page, by OpenID Connect: authorization code flow with PKCE.

Its addresses come from its discovery document. What binds a sign-in to a browser is in a cookie of the page
(`hansard.server.web.sign_in`); nothing is kept here, so any process of a server can answer the callback.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from msgspec import Struct

from hansard.errors import Unauthenticated, Unavailable, ValidationError
from hansard.executor import run_in_thread
from hansard.server.settings import Settings
from hansard.server.tokens import ClaimRules, TokenVerifier

_LOG = logging.getLogger("hansard.server")
_SCOPE = "openid profile email"
_FRESH = 300.0
"""Seconds for which the discovery document is not read again."""
_AGAIN = 2.0
"""Seconds for which a provider that did not answer is not asked again."""
_PATIENCE = 5.0
_MOST_BYTES = 1_000_000
_ADDRESS = re.compile(r"https?://[!-~]+")
_MOST_REQUESTS = 4
"""Requests to the provider at a time: while it does not answer, they must not occupy the threads of the store."""


class Discovery(Struct, frozen=True):
    """The part of the discovery document that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)

    @property
    def addresses(self) -> list[str]:
        all_of_them = (self.authorization_endpoint, self.token_endpoint, self.jwks_uri, self.end_session_endpoint)
        return [each for each in all_of_them if each is not None]


class SignInAttempt(Struct, frozen=True):
    """A sign-in that has begun: what the callback must prove to belong to it."""

    state: str
    nonce: str
    code_verifier: str

    @property
    def code_challenge(self) -> str:
        digest = hashlib.sha256(self.code_verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class _TokenAnswer(Struct, frozen=True):
    id_token: str


class _Refusal(Struct, frozen=True):
    error: str = ""


class OidcProvider:
    """An issuer, and this server as its client."""

    def __init__(self, settings: Settings) -> None:
        if settings.oidc is None or settings.oidc_client_id is None:
            raise ValidationError("sign-in by OpenID Connect needs an issuer and a client id: set both")
        self._issuer = settings.oidc
        self._client_id = settings.oidc_client_id
        self._client_secret = settings.oidc_client_secret
        rules = ClaimRules(settings.oidc_tenant, settings.oidc_user_claim, settings.oidc_scopes)
        self.verifier = TokenVerifier(self._jwks, self._issuer, self._client_id, rules)
        self._discovery: Discovery | Unavailable | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(_MOST_REQUESTS)

    @property
    def name(self) -> str:
        """The name of the provider for people: its host."""
        return urlsplit(self._issuer).hostname or self._issuer

    async def authorization_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Returns the address at which a person signs in."""
        return _with_query(
            (await self.discovery()).authorization_endpoint,
            {
                "response_type": "code",
                "client_id": self._client_id,
                "redirect_uri": redirect_uri,
                "scope": _SCOPE,
                "state": attempt.state,
                "nonce": attempt.nonce,
                "code_challenge": attempt.code_challenge,
                "code_challenge_method": "S256",
            },
        )

    async def redeem(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Returns the verified id token for the code of a callback.

        Raises `Unauthenticated` if the provider refuses the code, or if the token is not valid for this attempt.
        """
        token = await self._exchange(code, attempt, redirect_uri)
        claims = await self.verifier.claims(token)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), attempt.nonce.encode()):
            raise Unauthenticated("the token belongs to another sign-in: its nonce is wrong")
        if claims.get("azp", self._client_id) != self._client_id:
            raise Unauthenticated("the token was issued to another client")
        return token

    async def sign_out_url(self, token: str, return_to: str) -> str | None:
        """Returns the address at which a person signs out of the provider; None if it has none."""
        where = (await self.discovery()).end_session_endpoint
        query = {"id_token_hint": token, "client_id": self._client_id, "post_logout_redirect_uri": return_to}
        return None if where is None else _with_query(where, query)

    async def discovery(self) -> Discovery:
        """Returns the discovery document, or raises `Unavailable`."""
        async with self._lock:
            if self._discovery is None or time.monotonic() > self._until:
                try:
                    self._discovery = await self._read_discovery()
                except Unavailable as error:
                    self._discovery = error
                is_read = isinstance(self._discovery, Discovery)
                self._until = time.monotonic() + (_FRESH if is_read else _AGAIN)
        if isinstance(self._discovery, Unavailable):
            raise Unavailable(str(self._discovery))
        return self._discovery

    async def _jwks(self) -> str:
        return (await self.discovery()).jwks_uri

    async def _read_discovery(self) -> Discovery:
        where = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        _, raw = await self._ask(urllib.request.Request(where))
        try:
            found = msgspec.json.decode(raw, type=Discovery)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unavailable(f"{where} is not a discovery document: {error}") from error
        if found.issuer != self._issuer:
            raise self._unavailable(f"{where} names another issuer: {found.issuer!r}")
        scheme = "https://" if self._issuer.startswith("https://") else "http"
        for each in found.addresses:
            if not each.startswith(scheme) or not _ADDRESS.fullmatch(each):
                raise self._unavailable(f"{where} names an address that cannot be used: {each!r}")
        return found

    async def _exchange(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> str:
        found = await self.discovery()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.code_verifier,
        }
        headers = {"Accept": "application/json"} | self._credentials(found, form)
        request = urllib.request.Request(found.token_endpoint, urlencode(form).encode(), headers)
        status, raw = await self._ask(request)
        try:
            if status != 200:
                raise self._refusal(status, msgspec.json.decode(raw, type=_Refusal).error)
            return msgspec.json.decode(raw, type=_TokenAnswer).id_token
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unavailable(f"the token endpoint answered {status}, and not as expected: {error}") from error

    def _credentials(self, found: Discovery, form: dict[str, str]) -> dict[str, str]:
        """Returns the header that authenticates this client, or adds fields to the form that do."""
        if self._client_secret is None:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret)}"
            return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        else:
            form |= {"client_id": self._client_id, "client_secret": self._client_secret}
        return {}

    def _refusal(self, status: int, error: str) -> Exception:
        if status >= 500 or error in ("", "server_error", "temporarily_unavailable"):
            return self._unavailable(f"the token endpoint answered {status} {error[:100]!r}")
        if error in ("invalid_client", "unauthorized_client"):
            _LOG.error("%s refuses this server's client: check --oidc-client-id and -secret", self._issuer)
            return Unauthenticated(
                f"{self.name} does not accept this server's client id or secret: tell the operator of this server"
            )
        return Unauthenticated(f"{self.name} refused the sign-in ({error[:100]}): try again")

    async def _ask(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            async with self._slots:
                return await run_in_thread(_send, request)
        except (OSError, ValueError, HTTPException) as error:
            raise self._unavailable(f"{request.full_url} cannot be reached: {error}") from error

    def _unavailable(self, reason: str) -> Unavailable:
        """Logs the reason, which is for operators, and returns the error for people who sign in."""
        _LOG.warning("sign-in by OpenID Connect: %s", reason)
        return Unavailable(f"{self.name} cannot be used to sign in at the moment: try again later")


def _send(request: urllib.request.Request) -> tuple[int, bytes]:
    """Returns the status and the body of an answer."""
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return int(answer.status), bytes(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, bytes(error.read(_MOST_BYTES))


def _with_query(address: str, query: Mapping[str, Any]) -> str:
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"
