"""Work over all tenants: for an operator's key, which is bound to none."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.model import Problem, Receipt, Stats
from hansard.server.calls import NDJSON, Answer, Call, Endpoint, NoQuery
from hansard.server.rest.lifecycle import Problems
from hansard.store import Store


class Tenants(Struct, frozen=True):
    items: list[str]


class ReindexQuery(Struct, frozen=True, forbid_unknown_fields=True):
    forget_others: bool = False


async def list_tenants(call: Call[NoQuery, None]) -> Tenants:
    """The tenants that hold anything, in order."""
    return Tenants(await call.root.admin.tenants())


async def delete_tenant(call: Call[NoQuery, None]) -> Receipt:
    """Deletes a tenant with everything that it holds, for good."""
    return await call.root.admin.delete_tenant(call.path[0])


async def whole_stats(call: Call[NoQuery, None]) -> Stats:
    """How much the whole store holds."""
    return await call.root.admin.stats()


async def whole_check(call: Call[NoQuery, None]) -> Problems:
    """Looks at the whole store."""
    return Problems([found async for found in call.root.admin.check() if isinstance(found, Problem)])


async def reindex(call: Call[ReindexQuery, None]) -> Answer:
    """Builds the search index anew; each line says how many messages are done. Others may read and write meanwhile."""
    forget_others = call.query.forget_others
    if forget_others and call.root.embedder is None:
        raise ValidationError("forget_others keeps the vectors of the server's embedder, and it has none")
    return Answer(_done(call.root, forget_others=forget_others), media_type=NDJSON)


async def _done(root: Store, *, forget_others: bool) -> AsyncIterator[bytes]:
    async for messages in root.admin.reindex(forget_others=forget_others):
        yield b'{"messages":%d}\n' % messages


async def sweep(call: Call[NoQuery, None]) -> Receipt:
    """Removes what has expired or is needed by nothing, in every tenant."""
    return await call.root.purge()


ROUTES = (
    Endpoint(method="GET", path="/admin/tenants", handler=list_tenants, scope="admin", operator=True, answer=Tenants),
    Endpoint(
        method="DELETE",
        path="/admin/tenants/{tenant}",
        handler=delete_tenant,
        scope="admin",
        operator=True,
        answer=Receipt,
    ),
    Endpoint(method="GET", path="/admin/stats", handler=whole_stats, scope="admin", operator=True, answer=Stats),
    Endpoint(method="GET", path="/admin/check", handler=whole_check, scope="admin", operator=True, answer=Problems),
    Endpoint(
        method="POST",
        path="/admin/reindex",
        handler=reindex,
        scope="admin",
        operator=True,
        query=ReindexQuery,
        gives=NDJSON,
    ),
    Endpoint(method="POST", path="/admin/sweep", handler=sweep, scope="admin", operator=True, answer=Receipt),
)
