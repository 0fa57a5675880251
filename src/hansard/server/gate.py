"""The gate: who asks, what they may, and which part of the store they see."""

from __future__ import annotations

from typing import Any

from hansard.errors import Denied
from hansard.model import DEFAULT_TENANT
from hansard.server import parameters
from hansard.server.calls import SCOPES, Caller, Endpoint
from hansard.store import Store

LOCAL = Caller("local", frozenset(SCOPES))
"""Whoever reaches a server that needs no key: an operator, on this machine."""


class Gate:
    """Lets callers in, and no further than they may go."""

    def admit(self, headers: dict[bytes, bytes], client: Any) -> Caller:
        """Who asks. `Unauthenticated` when that cannot be told."""
        return LOCAL

    def allow(self, caller: Caller, endpoint: Endpoint) -> None:
        if endpoint.scope not in caller.scopes:
            raise Denied(f"this needs the scope {endpoint.scope!r}, which the key does not have")
        if endpoint.operator and not caller.is_operator:
            raise Denied("this is for an operator's key, which is bound to no tenant")

    def charge(self, caller: Caller, size: int) -> None:
        """Counts what was sent against the caller's quota."""

    def view(self, store: Store, caller: Caller, headers: dict[bytes, bytes]) -> Store:
        """The store as the caller sees it: a key's tenant and user are walls, headers only choose inside of them."""
        tenant = _chosen(headers, b"hansard-tenant", caller.tenant, "tenant") or DEFAULT_TENANT
        user = _chosen(headers, b"hansard-user", caller.user, "user")
        view = store.tenant(tenant)
        return view if user is None else view.user(user)


def _chosen(headers: dict[bytes, bytes], name: bytes, bound: str | None, what: str) -> str | None:
    given = headers.get(name)
    if given is None:
        return bound
    chosen = parameters.unquote(given, f"the header of the {what}")
    if bound is not None and chosen != bound:
        raise Denied(f"this key is bound to another {what}")
    return chosen
