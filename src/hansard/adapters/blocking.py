"""Blocking calls for frameworks with both async and blocking methods, on any store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hansard.blocking import Call, run_to_end
from hansard.errors import Unsupported
from hansard.store import Store

__all__ = ["Call", "caller_of"]


def caller_of(store: Store) -> Call:
    """Returns how blocking code calls an async store: directly if it never suspends, else from another thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None

    def call(coroutine: Coroutine[Any, Any, Any]) -> Any:
        if store.capabilities.blocking:
            return run_to_end(coroutine)
        if loop is None or not loop.is_running() or _is_here(loop):
            coroutine.close()
            raise Unsupported(
                "a blocking call on the event loop of an async store: use the framework's async methods, "
                "or a store of hansard.sync",
                capability="blocking",
            )
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    return call


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
