"""Redis, one server or a cluster. Begin with `keys.py` and `transaction.py`."""

from __future__ import annotations

from pathlib import Path

from hansard.backends.redis.options import RedisOptions, options_of
from hansard.backends.redis.storage import RedisStorage
from hansard.backends.stored import StoredBackend
from hansard.errors import Unsupported
from hansard.urls import Url

__all__ = ["RedisBackend", "RedisStorage", "open_backend"]


class RedisBackend(StoredBackend[RedisStorage]):
    def __init__(self, options: RedisOptions) -> None:
        storage = RedisStorage(options)
        super().__init__(storage, list_own=storage.list_own)

    async def backup(self, target: Path) -> None:
        raise Unsupported(
            "back up a Redis server with its own tools (BGSAVE, its append-only file), or use copy_to()",
            capability="backup",
        )


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> RedisBackend:
    """`redis://host:6379/0`, `rediss://…`, `redis+unix:///path`, `redis+cluster://host1:6379,host2:6379`."""
    backend = RedisBackend(options_of(url))
    try:
        await backend.storage.open()
    except BaseException:
        await backend.close()
        raise
    return backend
