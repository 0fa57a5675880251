"""Work over all tenants: for an operator's key, which is bound to none."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.model import Problem, Receipt, Stats
from hansard.server.endpoints import NDJSON, HttpResponse, NoQuery, Routes
from hansard.server.request import Request
from hansard.server.rest.lifecycle import Problems
from hansard.store import Store

routes = Routes()


class Tenants(Struct, frozen=True):
    items: list[str]


class ReindexQuery(Struct, frozen=True, forbid_unknown_fields=True):
    forget_others: bool = False


@routes.get("/admin/tenants", scope="admin", operator=True)
async def list_tenants(call: Request[NoQuery, None]) -> Tenants:
    """The tenants that hold anything, in order."""
    return Tenants(await call.root.admin.tenants())


@routes.delete("/admin/tenants/{tenant}", scope="admin", operator=True)
async def delete_tenant(call: Request[NoQuery, None]) -> Receipt:
    """Deletes a tenant with everything that it holds, for good."""
    return await call.root.admin.delete_tenant(call.path[0])


@routes.get("/admin/stats", scope="admin", operator=True)
async def whole_stats(call: Request[NoQuery, None]) -> Stats:
    """How much the whole store holds."""
    return await call.root.admin.stats()


@routes.get("/admin/check", scope="admin", operator=True)
async def whole_check(call: Request[NoQuery, None]) -> Problems:
    """Looks at the whole store."""
    return Problems([found async for found in call.root.admin.check() if isinstance(found, Problem)])


@routes.post("/admin/reindex", scope="admin", operator=True, gives=NDJSON)
async def reindex(call: Request[ReindexQuery, None]) -> HttpResponse:
    """Builds the search index anew; each line says how many messages are done. Others may read and write meanwhile."""
    forget_others = call.query.forget_others
    if forget_others and call.root.embedder is None:
        raise ValidationError("forget_others keeps the vectors of the server's embedder, and it has none")
    return HttpResponse(_done(call.root, forget_others=forget_others), media_type=NDJSON)


async def _done(root: Store, *, forget_others: bool) -> AsyncIterator[bytes]:
    async for messages in root.admin.reindex(forget_others=forget_others):
        yield b'{"messages":%d}\n' % messages


@routes.post("/admin/sweep", scope="admin", operator=True)
async def sweep(call: Request[NoQuery, None]) -> Receipt:
    """Removes what has expired or is needed by nothing, in every tenant."""
    return await call.root.purge()
