"""Work over whole tenants, for storages that walk the conversations of a tenant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from msgspec import structs

from hansard import rules
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Operation, T
from hansard.contract.types import Context
from hansard.model import Conversation, Receipt, Stats
from hansard.rules import operations


class TenantMaintenance(ABC):
    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    async def write(self, context: Context, id: str, operation: Operation[T]) -> T: ...

    @abstractmethod
    async def tenants(self) -> list[str]:
        """Returns the tenants that may hold anything, in order."""

    @abstractmethod
    async def settle(self, tenant: str) -> None:
        """Finishes the writes that other processes have left open in a tenant."""

    @abstractmethod
    def conversations(self, tenant: str) -> AsyncGenerator[tuple[Conversation, int], None]:
        """Yields every conversation, also expired ones, with the number of its messages that are not indexed."""

    @abstractmethod
    async def count_records(self, tenant: str) -> int: ...

    @abstractmethod
    async def measure_blobs(self, tenant: str) -> tuple[int, int]:
        """Returns the number and total size of a tenant's blobs."""

    @abstractmethod
    async def erase_rest(self, context: Context) -> Receipt:
        """Removes everything of a tenant that has no conversations any longer, and its name."""

    async def holds_anything(self, tenant: str) -> bool:
        async with aclosing(self.conversations(tenant)) as walked:
            async for _ in walked:
                return True
        return bool(await self.count_records(tenant) or (await self.measure_blobs(tenant))[0])

    async def list_tenants(self) -> list[str]:
        found = []
        for tenant in await self.tenants():
            await self.settle(tenant)
            found += [tenant] if await self.holds_anything(tenant) else []
        return found

    async def stats(self, tenant: str | None) -> Stats:
        name, is_indexed = self.capabilities.name, self.capabilities.search == "index"
        total = Stats(backend=name, unindexed=0 if is_indexed else None)
        active: Counter[str] = Counter()
        for each in await self.tenants() if tenant is None else [tenant]:
            await self.settle(each)
            total = await self._add_stats(each, total, active)
        return structs.replace(total, active=rules.newest_days(active))

    async def _add_stats(self, tenant: str, total: Stats, active: Counter[str]) -> Stats:
        conversations = messages = unindexed = 0
        async for conversation, behind in self.conversations(tenant):
            conversations += 1
            messages += conversation.message_count
            unindexed += behind
            active.update(rules.active_days([conversation]))
        records = await self.count_records(tenant)
        blobs, blob_bytes = await self.measure_blobs(tenant)
        return structs.replace(
            total,
            tenants=total.tenants + bool(conversations or records or blobs),
            conversations=total.conversations + conversations,
            messages=total.messages + messages,
            unindexed=None if total.unindexed is None else total.unindexed + unindexed,
            records=total.records + records,
            blobs=total.blobs + blobs,
            blob_bytes=total.blob_bytes + blob_bytes,
        )

    async def drop(self, context: Context, id: str, *, if_expired: bool = False) -> Receipt:
        """Removes a conversation without a tombstone."""
        return await self.write(context, id, partial(operations.drop_conversation, if_expired=if_expired))

    async def delete_tenant(self, context: Context) -> Receipt:
        tenant, total = context.tenant, Receipt(at=context.now)
        await self.settle(tenant)
        # Repeated: a walk can miss a conversation that another writer moves at the same time.
        while ids := [conversation.id async for conversation, _ in self.conversations(tenant)]:
            for id in ids:
                total += await self.drop(context, id)
            await self.settle(tenant)
        return total + await self.erase_rest(context)
