"""Reports which files below some folders have changed: by the operating system's events, or else by polling."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

Folders = Callable[[], list[Path]]

TICK = 5.0
"""Seconds after which folders that were made meanwhile are found."""
_SHARE = 200
"""Polling waits as many times longer than it takes, so that it costs half a percent of a core."""
_SHORTEST = 0.5


async def changes(folders: Folders) -> AsyncGenerator[set[Path] | None, None]:
    """Yields the files that have changed; None if any may have. An empty set means that nothing has for a while."""
    try:
        from watchfiles import awatch
    except ImportError:
        async for _ in _polling():
            yield None
        return
    while True:
        watched = folders()
        if not watched:
            await asyncio.sleep(TICK)
            continue
        events = awatch(
            *watched,
            watch_filter=None,
            debounce=300,
            step=100,
            rust_timeout=int(TICK * 1000),
            yield_on_timeout=True,
        )
        first = asyncio.ensure_future(anext(events))
        try:
            # The watch has begun before everything is scanned, so that nothing is missed between the two.
            await asyncio.sleep(0)
            yield None
            found = await first
            while folders() == watched:
                yield {Path(path) for _, path in found}
                found = await anext(events)
        finally:
            first.cancel()
            await asyncio.wait([first])
            await events.aclose()


async def _polling() -> AsyncGenerator[None, None]:
    while True:
        began = time.process_time()
        yield
        await asyncio.sleep(max(_SHORTEST, _SHARE * (time.process_time() - began)))
