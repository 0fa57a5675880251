"""Redis, one server or a cluster. Begin with `keys.py` and `writer.py`."""

from __future__ import annotations

from hansard.backends.redis.backend import RedisBackend
from hansard.backends.redis.options import options_of
from hansard.urls import Url

__all__ = ["RedisBackend", "open_backend"]


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> RedisBackend:
    """`redis://host:6379/0`, `rediss://…`, `redis+unix:///path`, `redis+cluster://host1:6379,host2:6379`."""
    backend = RedisBackend(options_of(url))
    try:
        await backend.open()
    except BaseException:
        await backend.close()
        raise
    return backend
