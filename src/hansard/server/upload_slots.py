"""The uploads that a process receives at the same time: few of them, and few of each tenant."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hansard.errors import RateLimited

_COME_BACK = 10


class UploadSlots:
    """Counted per process: with several workers, each worker allows the full number."""

    def __init__(self, most: int, most_of_tenant: int, seconds: float) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._seconds = seconds
        """How long an upload waits for its slot."""
        self._used: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a slot and keeps it. Refuses the upload if none becomes free in time."""
        try:
            async with asyncio.timeout(self._seconds), self._changed:
                await self._changed.wait_for(lambda: self._is_free(tenant))
                self._used[tenant] += 1
        except TimeoutError:
            raise RateLimited("too many uploads at the same time: try again later", retry_after=_COME_BACK) from None
        try:
            yield
        finally:
            await self._release(tenant)

    def _is_free(self, tenant: str) -> bool:
        return self._used.total() < self._most and self._used[tenant] < self._most_of_tenant

    async def _release(self, tenant: str) -> None:
        self._used[tenant] -= 1
        self._used += Counter()  # forgets tenants without uploads
        # Others wait for this, also if the request is cancelled meanwhile.
        await asyncio.shield(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
