"""Process memory, the reference storage. Begin with `storage.py`; operations see `transaction.py`."""

from __future__ import annotations

from hansard.backends.memory.storage import MemoryStorage
from hansard.backends.stored import StoredBackend
from hansard.urls import Url

__all__ = ["MemoryBackend", "MemoryStorage", "open_backend"]


class MemoryBackend(StoredBackend[MemoryStorage]):
    def __init__(self, *, max_conversations: int | None = None, max_messages: int | None = None) -> None:
        super().__init__(MemoryStorage(max_conversations=max_conversations, max_messages=max_messages))


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> MemoryBackend:
    """`memory://?max_conversations=500&max_messages=500`"""
    options = {name: url.number(name) for name in ("max_conversations", "max_messages")}
    url.finish(tuple(options))
    return MemoryBackend(**options)
