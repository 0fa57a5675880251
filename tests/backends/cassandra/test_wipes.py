"""Removals of all messages at once, however much they refer to."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of
from tests.backends.cassandra.mortal_link import Died
from tests.backends.cassandra.raw import rows_with

import hansard
from hansard.backends.cassandra import CassandraBackend, changes, seal
from hansard.backends.cassandra.changes import Change, Leaving
from hansard.backends.cassandra.partitions import CassandraPartitions
from hansard.backends.cassandra.rows import Head
from hansard.contract.storage import Changes
from hansard.contract.types import Context, ConversationState
from hansard.limits import Limits
from hansard.model import NOT_YET, Conversation, Participant

MANY = 12
SECRET = "zanzibar"


async def _open(url: str) -> CassandraBackend:
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    return backend


def _messages(number: int) -> list[hansard.Message]:
    who = Participant("user", f"{SECRET}-{number}")
    picture = {"image": base64.b64encode(f"picture {number} ".encode() * 20).decode()}
    return [hansard.Message("user", picture, participant=who), hansard.Message("user", "thanks")]


async def _fill(store: hansard.Store) -> None:
    for number in range(MANY):
        await store.append("c", _messages(number))
        await store.records.put(("notes",), f"{SECRET} {number}", 1, conversation_id="c")


def test_one_mutation_carries_the_deletion_of_very_many_references() -> None:
    state = ConversationState(Conversation("c", created_at=NOT_YET, updated_at=NOT_YET), 100_000, {})
    references = [(1, seq, f"blob/{'a' * 16}/{seq:064}") for seq in range(100_000)]
    change = Change(Context("default", NOT_YET), "p", ("default", "c"), Head(1, ["s"], 1, 1, state=state), None)
    write = change.make(Changes(state=None, wipes="everything"), 0, Leaving(references=references), checks_ids=False)
    sizes = [len(each) for _, arguments in write.statements("p") for each in arguments if isinstance(each, bytes | str)]
    assert sum(sizes) < 100_000
    assert sum(len(each) for effect in write.effects for each in effect.releases.values()) == 100_000


@pytest.mark.parametrize("call", ["delete_conversation", "clear_messages"])
def test_the_receipt_counts_everything(url: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_MOST_INLINE", 5)
    monkeypatch.setattr(seal, "PART", 6)
    monkeypatch.setattr(seal, "KEPT", 4)

    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend, limits=Limits(blob_bytes=64)) as store:
            await _fill(store)
            receipt = await getattr(store, call)("c")
            is_whole = call == "delete_conversation"
            assert (receipt.messages, receipt.blobs, receipt.records) == (2 * MANY, MANY, MANY if is_whole else 0)
            assert (await store.stats()).blobs == 0
            assert len((await store.records.scan(("notes",))).items) == (0 if is_whole else MANY)
            left = await rows_with(backend.storage.link, SECRET)
            assert left == [] or not is_whole
            await store.append("c", _messages(0))
            assert len(await store.get_messages("c")) == 2
            assert await store.check() == []

    asyncio.run(run())


@pytest.mark.parametrize("step", ["apply", "remove_outgoing", "clear_mark"])
def test_another_process_finishes_the_deletion_of_a_dead_one(
    url: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_MOST_INLINE", 5)

    async def die(*_: Any) -> None:
        raise Died

    async def run() -> None:
        backend = await _open(url)
        async with hansard.Store(backend, limits=Limits(blob_bytes=64)) as store:
            await _fill(store)
            with monkeypatch.context() as patch:
                patch.setattr(CassandraPartitions, step, die)
                with pytest.raises(Died):
                    await store.delete_conversation("c")
        other = await _open(url)
        async with hansard.Store(other) as store:
            await store.list_conversations()
            assert (await store.stats()).blobs == 0
            assert await rows_with(other.storage.link, SECRET) == []
            assert await store.check() == []

    asyncio.run(run())
