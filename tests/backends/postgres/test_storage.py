"""The storage without a Store: its answers are those of memory, and a write is one commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from tests.backends.postgres.kit import play
from tests.servers import postgres

from hansard.backends.memory import MemoryStorage
from hansard.backends.postgres import PostgresStorage
from hansard.backends.postgres.options import parse
from hansard.backends.stored import StoredBackend
from hansard.contract.storage import Run, Storage, Wants, Without
from hansard.contract.types import Append, Context, Draft, NewBranch, NewConversation, RecordWrite
from hansard.errors import Conflict
from hansard.model import Message, Summary
from hansard.rules import NO_END, operations
from hansard.testing import Clock
from hansard.urls import Url

CONTEXT = Context("default", Clock().now)
NOTE = (("n",), "k")


@asynccontextmanager
async def opened() -> AsyncIterator[PostgresStorage]:
    target = postgres.target()
    assert target.url is not None
    storage = await PostgresStorage.open(parse(Url(target.url)))
    try:
        yield storage
    finally:
        await storage.close()
        target.close()


def batch(*ids: str) -> Append:
    drafts = tuple(
        Draft(Message("user", f"text {id}", id=id, format="text"), f"text {id}", 8, given_id=True) for id in ids
    )
    return Append(drafts, NewConversation())


async def fill(storage: Storage) -> None:
    """Messages on two segments, a summary, a tombstone, a record and a blob."""
    backend = StoredBackend(storage)
    await backend.append(CONTEXT, "c", batch("1", "2", "3"))
    await backend.create_branch(CONTEXT, "c", NewBranch("side", at="2", activate=False))
    later = structs.replace(CONTEXT, now=CONTEXT.now + timedelta(seconds=1))
    await backend.append(later, "c", structs.replace(batch("4", "5"), branch="side"))
    await backend.put_summary(CONTEXT, Summary("c", 1, 2, "so far", created_at=CONTEXT.now))
    await backend.delete_conversation(CONTEXT, "gone")
    await storage.put_blob(CONTEXT, "0" * 64, b"bytes", CONTEXT.now)
    await storage.write_records(CONTEXT, [RecordWrite(*NOTE, {"at": 1})])


WANTS = {
    "nothing": Wants(),
    "ids": Wants(ids=["5", "1", "missing", "nul\0"]),
    "many ids": Wants(ids=["5", "1", *(f"x{number}" for number in range(200))]),
    "runs": Wants(runs=[Run(1, 0, 2), Run(2, 0, NO_END)]),
    "the later run first": Wants(runs=[Run(2, 0, NO_END), Run(1, 1, 3)]),
    "newest": Wants(runs=[Run(1, 0, 2), Run(2, 0, NO_END)], newest=3),
    "newest of one": Wants(runs=[Run(2, 4, NO_END), Run(1, 0, 2)], newest=2),
    "spans": Wants(spans=[Run(2, 0, NO_END), Run(1, 3, NO_END), Run(1, 1, 3)]),
    "last time without a branch": Wants(last_time_without=Without(runs=[Run(2, 0, NO_END)])),
    "last time without ids": Wants(last_time_without=Without(ids=["5", "3"])),
    "last time without all": Wants(last_time_without=Without(runs=[Run(1, 0, NO_END), Run(2, 0, NO_END)])),
    "summaries and more": Wants(summaries=True, spans=[Run(1, 0, NO_END)], ids=["2"]),
    "beside": Wants(tombstones=["x"], blobs=["0" * 64, "1" * 64], records=[NOTE, (("n",), "missing")]),
    "records and ids": Wants(ids=["1"], records=[NOTE], tombstones=["x"]),
}


def test_answers_are_those_of_memory() -> None:
    async def check() -> None:
        memory = MemoryStorage()
        await fill(memory)
        async with opened() as storage:
            await fill(storage)
            for name, wants in WANTS.items():
                expected = await memory.read(CONTEXT, "c", wants)
                assert expected is not None
                assert _plain(await storage.read(CONTEXT, "c", wants)) == _plain(expected), name
                assert _plain(await storage.write(CONTEXT, "c", partial(_asking, wants=wants))) == _plain(expected), (
                    name
                )
                assert await storage.read(structs.replace(CONTEXT, user="ann"), "c", wants) is None

    play(check)


async def _asking(tx: Any, wants: Wants) -> Any:
    return tx.state, await tx.get(wants)


def _plain(found: Any) -> Any:
    """As builtin values: a storage may answer with any sequence."""
    head, answer = found
    fields = structs.asdict(answer)
    sequences = {name: list(value) for name, value in fields.items() if isinstance(value, list | tuple)}
    return head, fields | sequences


def test_records_commit_with_an_append() -> None:
    write = RecordWrite(*NOTE, {"at": 1}, conversation_id="c", expected_revision=0)

    async def check() -> None:
        async with opened() as storage:

            async def append(id: str, record: RecordWrite) -> None:
                await storage.write(
                    CONTEXT, "c", partial(operations.append, append=structs.replace(batch(id), records=(record,)))
                )

            async def revisions() -> list[int]:
                return [each.revision if each else 0 for each in await storage.get_records(CONTEXT, [NOTE])]

            await append("1", write)
            assert await revisions() == [1]
            with pytest.raises(Conflict):
                await append("2", write)
            assert await StoredBackend(storage).find_messages(CONTEXT, "c", ["2"]) == [], "neither is stored"
            await append("1", structs.replace(write, value=2, expected_revision=1))
            assert await revisions() == [2]
            await append("3", structs.replace(write, delete=True, expected_revision=2))
            assert await revisions() == [0]

    play(check)


def test_a_segment_is_never_numbered_again() -> None:
    """Also when the branch that had the highest number is gone, and for whoever opens the storage later."""

    async def segment_of(backend: StoredBackend[Any], id: str) -> int:
        image = await backend.read_image(CONTEXT, "c")
        assert image is not None
        return next(branch.segment for branch in image.branches if branch.id == id)

    async def check() -> None:
        async with opened() as storage:
            backend = StoredBackend(storage)
            await fill(storage)
            first = await segment_of(backend, "side")
            await backend.delete_branch(CONTEXT, "c", "side", None)
            await backend.create_branch(CONTEXT, "c", NewBranch("other", at="2"))
            assert await segment_of(backend, "other") > first

    play(check)
