"""A pytest plugin that puts Hansard's saver and store in place of the ones that LangGraph's own tests use.

Those tests take a saver from a fixture, or make an `InMemorySaver`, an `InMemoryStore` or a `SqliteStore` themselves.
Here all of them are Hansard's. The plugin is imported by its bare name, in a pytest of its own, because the archives of
LangGraph have a package `tests` too.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import expected  # type: ignore[import-not-found]  # beside this file
import langgraph.checkpoint.memory as memory_savers
import langgraph.store.memory as memory_stores
import langgraph.store.sqlite as sqlite_stores
import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

import hansard.sync
from hansard.adapters.langgraph.saver import HansardSaver
from hansard.adapters.langgraph.store import HansardStore

_FIXTURES = {"sync_checkpointer", "async_checkpointer", "sync_store", "async_store"}
_CLASSES = ("MemorySaver", "MemoryStore")
_WHOLE = ("test_delta_channel_", "test_store", "test_async_store", "test_memory")
"""Beginnings of the names of files whose helpers make the savers and stores, not their tests."""
_PAIRS = {("encrypted", "sync"), ("encrypted", "exit"), ("memory", "async")}
"""Savers and durabilities that are tried together: each of both, but not all with all, which would take too long."""
_SAVERS = {"encrypted", "memory"} if os.environ.get("HANSARD_ADAPTERS") == "all" else {"encrypted"}
"""Savers for tests without durabilities. To the saver both are a blocking store; the encrypted one stores more."""


class Reversing:
    """A cipher that hides nothing, but leaves no text readable."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


class InMemorySaver(HansardSaver):
    """Hansard's saver where a test makes LangGraph's."""

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        made = hansard.sync.connect("memory://").langgraph_checkpointer
        super().__init__(made._store, made._call, serde=serde)


class InMemoryStore(HansardStore):
    """Hansard's long-term store where a test makes LangGraph's."""

    def __init__(self, *, index: Any = None, url: str = "memory://") -> None:
        made = hansard.sync.connect(url).langgraph_store
        super().__init__(made._store, made._call)
        self._index = index


class SqliteStore(InMemoryStore):
    @classmethod
    @contextmanager
    def from_conn_string(cls, _: str, *, index: Any = None, ttl: Any = None) -> Iterator[SqliteStore]:
        yield cls._made(index, ttl)

    @classmethod
    def _made(cls, index: Any, ttl: Any) -> SqliteStore:
        store = cls(index=index and {**index, "fields": index.get("text_fields") or index.get("fields")})
        store.ttl_config = ttl
        return store

    def setup(self) -> None:
        """Hansard's store needs none."""


class AsyncSqliteStore(SqliteStore):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]
        cls, _: str, *, index: Any = None, ttl: Any = None
    ) -> AsyncIterator[SqliteStore]:
        yield cls._made(index, ttl)

    async def setup(self) -> None:  # type: ignore[override]
        """Hansard's store needs none."""


def pytest_configure() -> None:
    """Before any test module is imported: those take the classes by name."""
    memory_savers.InMemorySaver = memory_savers.MemorySaver = InMemorySaver  # type: ignore[misc, assignment]
    memory_stores.InMemoryStore = InMemoryStore  # type: ignore[misc, assignment]
    sqlite_stores.SqliteStore = SqliteStore  # type: ignore[misc, assignment]
    sqlite_stores.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[misc, assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that have to do with a saver or a store, and marks those that must fail."""
    left_out = [item for item in items if not _is_ours(item) or not _is_chosen(item) or _reason(expected.TIMED, item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        why = _reason(expected.DIFFERENT, item)
        if why is not None:
            item.add_marker(pytest.mark.xfail(reason=why, strict=True))


def _is_ours(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    source = inspect.getsource(item.function)
    return (
        bool(_FIXTURES.intersection(item.fixturenames))
        or item.path.name.startswith(_WHOLE)
        or any(name in source for name in _CLASSES)
    )


def _is_chosen(item: pytest.Item) -> bool:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    saver, durability = given.get("sync_checkpointer"), given.get("durability")
    if saver is None:
        return True
    return saver in _SAVERS if durability is None else (saver, durability) in _PAIRS


def _reason(table: dict[str, str], item: pytest.Item) -> str | None:
    why: str | None = expected.reason(table, item.path.name, item.nodeid.partition("::")[2])
    return why


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def deterministic_uuids() -> Iterator[Any]:
    made = (UUID(f"00000000-0000-4000-8000-{number:012}", version=4) for number in range(10000))
    with mock.patch("uuid.uuid4", side_effect=made) as patched:
        yield patched


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def cache() -> InMemoryCache[Any]:
    return InMemoryCache()


@pytest.fixture(params=["memory", "encrypted"])
def sync_checkpointer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HansardSaver]:
    with hansard.sync.connect(_url(request.param, tmp_path)) as store:
        yield _configured(store.langgraph_checkpointer, request.param)


@pytest.fixture(params=["sqlite"])
async def async_checkpointer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HansardSaver]:
    async with hansard.connect(_url(request.param, tmp_path)) as store:
        yield _configured(store.langgraph_checkpointer, request.param)


@pytest.fixture
def sync_store() -> Iterator[HansardStore]:
    with hansard.sync.connect("memory://") as store:
        yield store.langgraph_store


@pytest.fixture
async def async_store() -> AsyncIterator[HansardStore]:
    async with hansard.connect("memory://") as store:
        yield store.langgraph_store


def _url(name: str, folder: Path) -> str:
    return "memory://" if name == "memory" else f"sqlite:///{folder}/chats.db"


def _configured(saver: HansardSaver, name: str) -> HansardSaver:
    if name == "encrypted":
        saver.serde = EncryptedSerializer(Reversing())
    return saver
