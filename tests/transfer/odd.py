"""Backends that are odd on purpose: memory with other capabilities, with hooks, or with a loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec import structs

from hansard import Store
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend, Capabilities
from hansard.contract.types import Context, Restore, Row

Hook = Callable[..., Awaitable[None]]


class Odd:
    """Memory. `before` and `after` are called around a method, with its arguments; `changes` alter its capabilities."""

    def __init__(self, **changes: Any) -> None:
        self.inner = MemoryBackend()
        self.calls: dict[str, int] = {}
        self.before: dict[str, Hook] = {}
        self.after: dict[str, Hook] = {}
        self._changes = changes

    @property
    def capabilities(self) -> Capabilities:
        return structs.replace(self.inner.capabilities, **self._changes)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            if name in self.before:
                await self.before[name](*args, **kwargs)
            result = await found(*args, **kwargs)
            if name in self.after:
                await self.after[name](*args, **kwargs)
            return result

        return call

    def store(self, **options: Any) -> Store:
        return Store(cast(Backend, self), **options)


class OwnIds(Odd):
    """Gives every message an id and a time of its own."""

    def __init__(self) -> None:
        super().__init__(own_ids=True, own_times=True)

    async def restore(self, context: Context, restore: Restore) -> int:
        rows = []
        for row in restore.rows:
            message = structs.replace(row.draft.message, id=f"own-{row.draft.message.seq}", created_at=context.now)
            rows.append(structs.replace(row, draft=structs.replace(row.draft, message=message)))
        return await self.inner.restore(context, structs.replace(restore, rows=tuple(rows)))


class Lossy(Odd):
    """Claims to keep everything, and does not."""

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        rows = await self.inner.read_rows(context, id, after_seq, limit, max_bytes)
        return [Row(row.segment, structs.replace(row.message, metadata={"n": 1.0})) for row in rows]


class Suspending:
    """A backend with an async driver: it works only on the loop that it was first used on."""

    def __init__(self) -> None:
        self.inner = MemoryBackend()
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def capabilities(self) -> Capabilities:
        return structs.replace(self.inner.capabilities, blocking=False)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            self.loop = self.loop or asyncio.get_running_loop()
            assert self.loop is asyncio.get_running_loop()
            return await found(*args, **kwargs)

        return call
