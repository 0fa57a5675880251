"""`store.admin`: operations over all tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import cast

from hansard.contract.backend import Indexed, Vacuuming
from hansard.contract.types import Context
from hansard.errors import Denied, ValidationError
from hansard.model import SERVER_TENANT, OnConflict, Problem, Progress, Receipt, Report, Stats, Vacuumed
from hansard.store import checks, transfers
from hansard.store.core import StorePart

_NOTHING = {
    "memory": "it frees deleted data at once",
    "files": "deleted data takes no space, and `purge` removes the rest",
    "redis": "Redis reuses its memory and rewrites its files itself (BGREWRITEAOF)",
    "http": "run `hansard vacuum` where the server's store is",
}


class Admin(StorePart):
    async def tenants(self) -> list[str]:
        """Returns the tenants that store anything, in order."""
        return [name for name in await self._backend.list_tenants() if name != SERVER_TENANT]

    async def delete_tenant(self, tenant: str) -> Receipt:
        """Deletes the tenant `tenant` with everything that it stores, for good."""
        name = checks.id_of(tenant, "tenant", self.limits)
        if name == SERVER_TENANT:
            raise Denied(f"{SERVER_TENANT!r} holds the keys of servers: use `hansard keys`")
        return await self._backend.delete_tenant(Context(name, self._view.clock()))

    async def stats(self) -> Stats:
        """Returns how much the whole store holds."""
        return await self._backend.stats(None)

    async def check(self) -> AsyncIterator[Problem | int]:
        """Checks the whole store. Yields each problem and, now and then, the number of conversations checked so far."""
        async for found in self._backend.check(None):
            yield found

    async def reindex(self, *, forget_others: bool = False) -> AsyncIterator[int]:
        """Rebuilds the search index and the vectors of the embedder, and yields how many messages are done.

        Without an index there is nothing to rebuild; without an embedder all vectors stay.

        `forget_others`: also delete the vectors of other embedders.
        """
        if checks.flag(forget_others, "forget_others") and self._view.embeddings is None:
            raise ValidationError("forget_others keeps the vectors of the store's embedder: connect with embedder=…")
        tenants = await self.tenants()  # raises Closed for a closed store even if there is no index
        if self.capabilities.search == "index":
            async for done in cast(Indexed, self._backend).reindex():
                yield done
        if self._view.embeddings is not None:
            for tenant in tenants:
                async for done in self._view.embeddings.rebuild(tenant, forget_others=forget_others):
                    yield done

    async def vacuum(self) -> Vacuumed:
        """Returns the space of deleted data to the system, while others read. On some backends writers wait meanwhile.

        `Unsupported` unless `capabilities.vacuum`.
        """
        name = self.capabilities.name
        self._view.require(
            self.capabilities.vacuum, "vacuum", f"vacuum: {_NOTHING.get(name, 'it has no such operation')}"
        )
        before = (await self.stats()).bytes
        await cast(Vacuuming, self._backend).vacuum()
        return Vacuumed(before, (await self.stats()).bytes)

    def _names(self, tenants: Iterable[str]) -> list[str]:
        return [checks.id_of(each, "a tenant", self.limits) for each in checks.items(tenants, "tenants", "names")]

    async def copy_to(
        self,
        other: StorePart,
        *,
        tenants: Iterable[str] | None = None,
        on_conflict: OnConflict = "skip",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Report:
        """Copies tenants into another store, each into the tenant of the same name.

        - `other`: the store to copy into.
        - `tenants`: only these; None for all.
        - `on_conflict`, `verify`, `progress`: as in `Store.copy_to`.
        """
        names = await self.tenants() if tenants is None else self._names(tenants)
        return await transfers.copy_tenants(self._view, other, names, on_conflict, progress, verify=verify)
