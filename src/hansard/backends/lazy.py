"""A backend that its first call opens, so that a program can start while its storage is unreachable.

A call that cannot open it raises the error of opening, mostly `Unavailable`, and the next call tries again. Until it is
open, `capabilities` assumes what is true of every storage reached over a network.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from hansard.contract.backend import Backend, Capabilities, Indexed
from hansard.errors import Closed, HansardError
from hansard.model import Problem

Open = Callable[[], Awaitable[Backend]]


def lazy(open: Open, name: str) -> Backend:
    """Returns a backend that calls `open` on first use. `name` is its name until then."""
    return cast(Backend, _Lazy(open, name))


class _Lazy:
    def __init__(self, open: Open, name: str) -> None:
        self._open = open
        self._inner: Backend | None = None
        self._opening = asyncio.Lock()
        self._failure: HansardError | None = None
        """Why the last attempt to open it failed."""
        self._is_closed = False
        # Any search can be done by scanning messages, whatever index the storage has.
        self._assumed = Capabilities(name=name, durability="none", shared=True, search="scan", watch="poll")

    @property
    def capabilities(self) -> Capabilities:
        return self._assumed if self._inner is None else self._inner.capabilities

    async def close(self) -> None:
        self._is_closed = True
        async with self._opening:
            if self._inner is not None:
                await self._inner.close()

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        async for found in (await self._opened()).check(tenant):
            yield found

    async def reindex(self) -> AsyncIterator[int]:
        async for done in cast(Indexed, await self._opened()).reindex():
            yield done

    def __getattr__(self, name: str) -> Any:
        if self._inner is not None:
            return getattr(self._inner, name)
        if not inspect.iscoroutinefunction(getattr(Indexed, name, None)):
            raise AttributeError(name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(await self._opened(), name)(*args, **kwargs)

        return call

    async def _opened(self) -> Backend:
        """Opens the backend. Callers that waited for a failed attempt share its error, so an outage costs one wait."""
        known = self._failure
        async with self._opening:
            if self._is_closed:
                raise Closed("this store was closed")
            if self._inner is None:
                if self._failure is not None and self._failure is not known:
                    raise self._failure
                try:
                    self._inner = await self._open()
                except HansardError as error:
                    self._failure = error
                    raise
            return self._inner
