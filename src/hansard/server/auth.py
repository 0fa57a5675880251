"""Authentication and authorization: who sends a request, what they may do, and which view of the store they get."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from hansard.errors import Corrupt, Denied, Unauthenticated, Unavailable, ValidationError
from hansard.model import DEFAULT_TENANT, SERVER_TENANT
from hansard.server import key_file, parameters
from hansard.server.addresses import is_loopback
from hansard.server.endpoints import SCOPES, Caller, Endpoint
from hansard.server.key_file import Key, KeyFile, KeySet
from hansard.server.oidc import OidcProvider
from hansard.server.rate_limit import RateLimiter
from hansard.server.settings import Settings
from hansard.server.store_keys import StoreKeys
from hansard.server.tokens import TokenVerifier, verifier_of
from hansard.store import Store

T = TypeVar("T")
ENCODED = "^([!-$&-~]|%[0-9A-Fa-f]{2})+$"
"""The pattern of headers that name a tenant or a user: visible ASCII, everything else percent-encoded."""
_ENCODED = re.compile(ENCODED.encode())
LOCAL = Caller("local", frozenset(SCOPES))
"""The caller on a server that needs no key: an operator on this machine."""


_MOST_VIEWS = 1000
"""Views to cache: creating one costs as much as the other checks of a request."""


class Auth:
    """Authenticates callers, checks their scopes, and selects their view."""

    def __init__(self, settings: Settings, keys: StoreKeys | None = None) -> None:
        self._settings = settings
        self.keys: KeyFile | StoreKeys | None = keys or (None if settings.keys is None else KeyFile(settings.keys))
        self.oidc = OidcProvider(settings) if settings.oidc is not None else None
        self._verifiers: list[TokenVerifier] = [] if settings.jwks is None else [verifier_of(settings)]
        if self.oidc is not None:
            self._verifiers.append(self.oidc.verifier)
        self._limiters: dict[str, RateLimiter] = {}
        self._views: dict[tuple[str, str | None], Store] = {}
        self._is_local = is_loopback(settings.host)
        self._always_needs_key = settings.require_key or not self._is_local or bool(self._verifiers)

    # Authentication

    async def admit(self, headers: dict[bytes, bytes], client: Any) -> Caller:
        """Returns the caller. Raises `Unauthenticated` if the credentials are missing or not valid."""
        if isinstance(self.keys, StoreKeys):
            await self.keys.refresh()
        given = headers.get(b"authorization")
        if given is None:
            return self._admit_without_key(headers, client)
        scheme, _, token = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("send the key as Authorization: Bearer")
        if token.startswith(key_file.PREFIX):
            return self._admit_key(token)
        return await self._admit_token(token)

    async def _admit_token(self, token: str) -> Caller:
        refusal = Unauthenticated("the key is not valid")
        for verifier in self._verifiers:
            try:
                return await verifier.caller(token)
            except Unauthenticated as error:
                refusal = error
        raise refusal

    def _admit_key(self, token: str) -> Caller:
        key = self._read_keys(lambda key_file: key_file.find(token, datetime.now(UTC)), otherwise=None)
        if key is None:
            raise Unauthenticated("the key is not valid")
        self._limiter(key).count_request()
        return Caller(key.id, frozenset(key.scopes), key.tenant, key.user)

    def _admit_without_key(self, headers: dict[bytes, bytes], client: Any) -> Caller:
        if self.needs_key:
            raise Unauthenticated("this server needs a key: send it as Authorization: Bearer")
        # Refuse web pages in a browser on this machine: neither under a host name that resolves to it (DNS rebinding)
        # nor from another origin.
        host = headers.get(b"host", b"")
        if client is None or not _is_local_request(client[0], host):
            raise Unauthenticated("without a key, only this machine may send requests, to localhost or its address")
        origin = headers.get(b"origin")
        if origin is not None:
            own = [f"{scheme}://{host.decode('latin-1')}" for scheme in ("http", "https")]
            if origin.decode("latin-1") not in (*own, *self._settings.cors_origins):
                raise Denied("pages of another origin may not send requests: see --cors-origin")
        return LOCAL

    @property
    def needs_key(self) -> bool:
        return self._always_needs_key or self._has_keys

    @property
    def _has_keys(self) -> bool:
        return self._read_keys(lambda key_file: not key_file.is_empty, otherwise=False)

    def _read_keys(self, read: Callable[[KeySet], T], *, otherwise: T) -> T:
        """Reads the key file. If it cannot be read, every request is refused."""
        if self.keys is None:
            return otherwise
        try:
            return read(self.keys)
        except (Corrupt, OSError) as error:
            raise Unavailable("the key file cannot be read") from error

    def check_settings(self) -> None:
        """Refuses to listen publicly without a credential, unless the operator requires keys and creates one later."""
        if self._settings.require_key:
            return
        if not self._is_local and not self._has_keys and not self._verifiers:
            raise ValidationError(
                f"{self._settings.host} can be reached by others, and there is no key yet: "
                "create one with `hansard keys create NAME`"
            )

    def is_still_valid(self, caller: Caller) -> bool:
        """Whether the credentials of an admitted caller are still valid: a live tail must not outlive its key."""
        now = datetime.now(UTC)
        if caller.until is not None:
            return now < caller.until
        if caller is LOCAL:
            return not self.needs_key
        key = self._read_keys(lambda key_file: key_file.get(caller.name), otherwise=None)
        return key is not None and key.is_valid(now)

    # Authorization

    def authorize(self, caller: Caller, endpoint: Endpoint) -> None:
        if endpoint.scope not in caller.scopes:
            raise Denied(f"this needs the scope {endpoint.scope!r}, which the key does not have")
        if endpoint.operator and not caller.is_operator:
            raise Denied("this is for an operator's key, which is bound to no tenant")

    def admit_again(self, caller: Caller) -> None:
        """Admits another request on an open connection. Raises `Unauthenticated` if its key is no longer valid."""
        if not self.is_still_valid(caller):
            raise Unauthenticated("the key is no longer valid")
        if (limiter := self._limiters.get(caller.name)) is not None:
            limiter.count_request()

    def charge_of(self, caller: Caller) -> Callable[[int], None] | None:
        """Returns what counts sent bytes against the caller's quota; None if the caller has none."""
        limiter = self._limiters.get(caller.name)
        return None if limiter is None else limiter.count_bytes

    def _limiter(self, key: Key) -> RateLimiter:
        limiter = self._limiters.get(key.id)
        if limiter is None or (limiter.rate, limiter.daily_bytes) != (key.rate, key.daily_bytes):
            limiter = self._limiters[key.id] = RateLimiter(key.rate, key.daily_bytes)
        return limiter

    # Views

    def view(self, store: Store, caller: Caller, headers: dict[bytes, bytes]) -> Store:
        """Returns the caller's view of the store. Headers choose only within the tenant and user of the key."""
        tenant = _chosen_id(headers, b"hansard-tenant", caller.tenant, "tenant")
        tenant = DEFAULT_TENANT if tenant is None else tenant
        if tenant == SERVER_TENANT:
            raise Denied(f"{SERVER_TENANT!r} is the tenant of the servers themselves: choose another name")
        user = _chosen_id(headers, b"hansard-user", caller.user, "user")
        view = self._views.get((tenant, user))
        if view is None:
            view = store.tenant(tenant)
            view = view if user is None else view.user(user)
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            self._views[tenant, user] = view
        return view


def _chosen_id(headers: dict[bytes, bytes], name: bytes, bound: str | None, what: str) -> str | None:
    given = headers.get(name)
    if given is None:
        return bound
    if not _ENCODED.fullmatch(given):
        raise ValidationError(
            f"the header of the {what} is {'empty' if not given else 'not percent-encoded'}: "
            f"name a {what}, percent-encoded, or leave the header out"
        )
    chosen = parameters.unquote(given, f"the header of the {what}")
    if bound is not None and chosen != bound:
        raise Denied(f"this key is bound to another {what}")
    return chosen


@lru_cache(maxsize=256)
def _is_local_request(client: str, host: bytes) -> bool:
    return is_loopback(client) and is_loopback(_without_port(host.decode("latin-1")))


def _without_port(host: str) -> str:
    return host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
