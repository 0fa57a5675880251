"""`store.admin`: work over all tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import cast

from hansard.contract.backend import Indexed, Vacuuming
from hansard.contract.types import Context
from hansard.errors import ValidationError
from hansard.model import OnConflict, Problem, Progress, Receipt, Report, Stats, Vacuumed
from hansard.store import checks, transfers
from hansard.store.core import StorePart

_NOTHING = {
    "memory": "what is deleted is let go of at once",
    "files": "what is deleted takes no space any longer, and `purge` clears up the rest",
    "redis": "Redis reuses its memory, and rewrites its files itself (BGREWRITEAOF)",
    "http": "run `hansard vacuum` where the server's store is",
}


class Admin(StorePart):
    async def tenants(self) -> list[str]:
        """The tenants that hold anything, in order."""
        return await self._backend.list_tenants()

    async def delete_tenant(self, tenant: str) -> Receipt:
        """Deletes a tenant with everything that it holds, for good."""
        name = checks.id_of(tenant, "tenant", self.limits)
        return await self._backend.delete_tenant(Context(name, self._view.clock()))

    async def stats(self) -> Stats:
        """How much the whole store holds."""
        return await self._backend.stats(None)

    async def check(self) -> AsyncIterator[Problem | int]:
        """Looks at the whole store: yields each problem, and now and then how many conversations it has looked at."""
        async for found in self._backend.check(None):
            yield found

    async def reindex(self, *, forget_others: bool = False) -> AsyncIterator[int]:
        """Builds the search index anew, and the vectors of the embedder: yields how many messages are done.

        Without an index there is nothing to do; without an embedder all vectors stay as they are. Those of other
        embedders stay too, unless they shall be forgotten.
        """
        if checks.flag(forget_others, "forget_others") and self._view.embeddings is None:
            raise ValidationError("forget_others keeps the vectors of the store's embedder: connect with embedder=…")
        tenants = await self.tenants()  # a store that was closed says so, whether or not it has an index
        if self.capabilities.search == "index":
            async for done in cast(Indexed, self._backend).reindex():
                yield done
        if self._view.embeddings is not None:
            for tenant in tenants:
                async for done in self._view.embeddings.rebuild(tenant, forget_others=forget_others):
                    yield done

    async def vacuum(self) -> Vacuumed:
        """Gives back the space of what was deleted, while others read; on some backends writers wait meanwhile.

        `Unsupported` unless `capabilities.vacuum`.
        """
        name = self.capabilities.name
        self._view.need(self.capabilities.vacuum, "vacuum", f"vacuum: {_NOTHING.get(name, 'it has no such operation')}")
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
        """Copies all tenants, or these, into the other store. See `Store.copy_to`."""
        names = await self.tenants() if tenants is None else self._names(tenants)
        return await transfers.copy_tenants(self._view, other, names, on_conflict, progress, verify=verify)
