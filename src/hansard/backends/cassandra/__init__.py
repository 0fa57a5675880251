"""Apache Cassandra. Begin with `rows.py` and `transaction.py`."""

from __future__ import annotations

from hansard.backends.cassandra.options import CassandraOptions, options_of
from hansard.backends.cassandra.storage import CassandraStorage
from hansard.backends.stored import StoredBackend
from hansard.urls import Url

__all__ = ["CassandraBackend", "CassandraStorage", "open_backend"]


class CassandraBackend(StoredBackend[CassandraStorage]):
    def __init__(self, options: CassandraOptions, prefix: str) -> None:
        super().__init__(CassandraStorage(options, prefix))


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> CassandraBackend:
    """`cassandra://host1,host2:9042/keyspace`"""
    backend = CassandraBackend(*options_of(url))
    try:
        await backend.storage.open(upgrade=upgrade)
    except BaseException:
        await backend.close()
        raise
    return backend
