"""Routes that work on all tenants, for an operator's key."""

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
async def list_tenants(request: Request[NoQuery, None]) -> Tenants:
    """The tenants that have any data, in order."""
    return Tenants(await request.root.admin.tenants())


@routes.delete("/admin/tenants/{tenant}", scope="admin", operator=True)
async def delete_tenant(request: Request[NoQuery, None]) -> Receipt:
    """Deletes a tenant and all its data permanently."""
    return await request.root.admin.delete_tenant(request.path[0])


@routes.get("/admin/stats", scope="admin", operator=True)
async def whole_stats(request: Request[NoQuery, None]) -> Stats:
    """Statistics of the whole store."""
    return await request.root.admin.stats()


@routes.get("/admin/check", scope="admin", operator=True)
async def whole_check(request: Request[NoQuery, None]) -> Problems:
    """Checks the whole store, and returns the problems."""
    return Problems([found async for found in request.root.admin.check() if isinstance(found, Problem)])


@routes.post("/admin/reindex", scope="admin", operator=True, produces=NDJSON)
async def reindex(request: Request[ReindexQuery, None]) -> HttpResponse:
    """Rebuilds the search index; each line is the number of messages done. Reads and writes continue meanwhile."""
    forget_others = request.query.forget_others
    if forget_others and request.root.embedder is None:
        raise ValidationError("forget_others needs a server with an embedder: it deletes the vectors of all others")
    return HttpResponse(_done(request.root, forget_others=forget_others), media_type=NDJSON)


async def _done(root: Store, *, forget_others: bool) -> AsyncIterator[bytes]:
    async for messages in root.admin.reindex(forget_others=forget_others):
        yield b'{"messages":%d}\n' % messages


@routes.post("/admin/sweep", scope="admin", operator=True)
async def sweep(request: Request[NoQuery, None]) -> Receipt:
    """Removes expired and unreferenced data in every tenant."""
    return await request.root.purge()
