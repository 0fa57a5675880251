"""The rows of marks: used again, so that readers pass over no tombstones, and never cleared for another write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of
from tests.backends.cassandra.mortal_link import Died

import hansard
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.partitions import CassandraPartitions


class RecordingLink(Link):
    rows: list[str]

    async def put(self, name: str, *arguments: Any) -> None:
        if name == "put_mark":
            self.rows.append(arguments[2])
        await super().put(name, *arguments)


async def _open(url: str) -> tuple[CassandraBackend, RecordingLink]:
    backend = backend_of(url)
    link = backend.storage.link
    link.__class__ = RecordingLink
    assert isinstance(link, RecordingLink)
    link.rows = []
    await backend.storage.open(upgrade=False)
    return backend, link


def test_writes_use_the_same_rows(url: str) -> None:
    async def run() -> None:
        backend, link = await _open(url)
        async with hansard.Store(backend) as store:
            for number in range(5):
                await store.append_message(f"a{number}", "user", "Hello")
            assert (len(link.rows), len(set(link.rows))) == (5, 1)
            await asyncio.gather(*(store.append_message(f"b{number}", "user", "Hello") for number in range(8)))
            await asyncio.gather(*(store.append_message(f"c{number}", "user", "Hello") for number in range(8)))
            assert (len(link.rows), len(set(link.rows))) == (21, 8)
            assert await link.read("read_marks", "default") == []

    asyncio.run(run())


def test_a_row_whose_mark_was_not_cleared_is_not_used_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_: Any) -> None:
        raise Died

    async def run() -> None:
        backend, link = await _open(url)
        async with hansard.Store(backend) as store:
            with monkeypatch.context() as patch:
                patch.setattr(CassandraPartitions, "apply", die)
                with pytest.raises(Died):
                    await store.append_message("a", "user", "Hello")
            await store.append_message("b", "user", "Hello")
            assert len(set(link.rows)) == 2
            assert len(await link.read("read_marks", "default")) == 1
            assert len((await store.list_conversations()).items) == 2
            assert await link.read("read_marks", "default") == []

    asyncio.run(run())


def test_a_settler_that_is_late_leaves_the_next_mark_of_the_row(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_: Any) -> None:
        raise Died

    async def run() -> None:
        backend, link = await _open(url)
        partitions = backend.storage.writer._partitions
        found: list[Any] = []

        async def read_marks(*_: Any) -> None:
            found.extend(await partitions.marks("default"))

        async with hansard.Store(backend) as store:
            with monkeypatch.context() as patch:
                patch.setattr(CassandraPartitions, "_add_usage", read_marks)
                usage = hansard.Usage(model="m", input_tokens=1)
                await store.append("a", [hansard.Message("user", "Hello", usage=usage)])
                patch.setattr(CassandraPartitions, "_add_usage", die)
                with pytest.raises(Died):
                    await store.append("b", [hansard.Message("user", "Hello", usage=usage)])
            assert len(set(link.rows)) == 1
            ((mark, _),) = found
            assert mark.id == "a"
            await partitions.clear_mark("default", mark)
            assert [mark.id for mark, _ in await partitions.marks("default")] == ["b"]

    asyncio.run(run())


def test_a_mark_of_an_earlier_version_is_settled_and_cleared(url: str) -> None:
    async def run() -> None:
        backend, link = await _open(url)
        async with hansard.Store(backend) as store:
            said = b'{"id":"gone","n":7,"stamp":"s","after":null,"after_n":0,"era":1,"deadline":1}'
            table = f"{link.options.keyspace}.marks"
            await link.execute(
                f"INSERT INTO {table} (prefix, tenant, id, n, doc) VALUES (%s, 'default', 'gone', 7, %s)",
                (link.prefix, said),
            )
            assert (await store.list_conversations()).items == []
            assert await link.read("read_marks", "default") == []

    asyncio.run(run())
