"""Process memory: the definition of truth. Begin with `backend.py`."""

from __future__ import annotations

from hansard.backends.memory.backend import MemoryBackend
from hansard.urls import Url

__all__ = ["MemoryBackend", "open_backend"]


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> MemoryBackend:
    """`memory://?max_conversations=500&max_messages=500`"""
    options = {name: url.number(name) for name in ("max_conversations", "max_messages")}
    url.finish(tuple(options))
    return MemoryBackend(**options)
