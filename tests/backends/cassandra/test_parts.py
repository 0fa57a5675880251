"""Long conversations: their older messages are in parts, and every call finds them as in a short one."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.backends.cassandra.counted import backend_of, counted
from tests.backends.cassandra.mortal_link import Died, MortalLink
from tests.backends.cassandra.raw import rows_with

import hansard
from hansard.backends.cassandra import CassandraBackend, read, seal
from hansard.backends.cassandra.connection import Statement
from hansard.testing.clock import Clock

LENGTH = int(os.environ.get("HANSARD_CONVERSATION", "120"))
"""Messages of the longest conversation; `make soak` has more."""
NAME = ("default", "c")
SECRET = "zanzibar"


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "PART", 10)
    monkeypatch.setattr(seal, "KEPT", 5)


class MortalSealerLink(MortalLink):
    async def put_together(self, statements: Sequence[Statement]) -> None:
        self.count()
        await super().put_together(statements)


async def _open(url: str) -> CassandraBackend:
    backend = backend_of(url)
    await backend.storage.open(upgrade=False)
    return backend


def _messages(first: int, last: int) -> list[hansard.Message]:
    return [hansard.Message("user", f"text {number}", id=f"m{number}") for number in range(first, last)]


async def _everything(store: hansard.Store) -> list[Any]:
    messages = await store.get_messages("c", last=1000)
    some = [message.id for message in messages[::9]]
    return [
        [(message.id, message.seq, message.text, message.pinned) for message in messages],
        [message.text for message in await store.get_messages("c", last=12)],
        [await store.get_message("c", id) is not None for id in some],
        [message.id for message in await store.get_messages("c", pinned=True)],
        [hit.message.id for hit in await store.search("text", order="newest", limit=100, token_cap=None)],
        (await store.get_conversation("c")).message_count,  # type: ignore[union-attr]
        [(branch.id, branch.message_count) for branch in await store.list_branches("c")],
    ]


async def _change(store: hansard.Store, chance: random.Random, step: int) -> None:
    ids = [message.id for message in await store.get_messages("c", last=1000)]
    id = chance.choice(ids)
    match step % 7:
        case 0:
            await store.update_message("c", id, content=f"text changed {step}")
        case 1:
            await store.delete_message("c", id)
        case 2:
            await store.update_message("c", id, pinned=True)
        case 3:
            await store.append("c", [hansard.Message("user", "text again", id=id)])
        case 4:
            await store.pop_message("c")
        case 5:
            await store.branch("c", at=id, branch_id=f"b{step}")
        case _:
            await store.switch_branch("c", "main")
    await store.append("c", _messages(1000 + 10 * step, 1007 + 10 * step))


def test_a_conversation_in_parts_reads_as_in_memory(url: str) -> None:
    async def run() -> None:
        backend = await _open(url)
        async with (
            hansard.Store(backend, clock=Clock()) as store,
            hansard.connect("memory://", clock=Clock()) as memory,
        ):
            for each in (store, memory):
                await each.append("c", _messages(0, 33), user_id="ann")
            for step in range(9):
                for each in (store, memory):
                    await _change(each, random.Random(step), step)
                if step in (4, 8):
                    assert await _everything(store) == await _everything(memory), step
            head = await read.load(backend.storage.link, NAME)
            assert head is not None
            assert len(head.parts) > 2
            assert await store.check() == []
            for each in (store, memory):
                await each.replace_messages("c", _messages(5000, 5040))
            assert await _everything(store) == await _everything(memory)
            await store.delete_conversation("c")
            assert await rows_with(backend.storage.link, "text") == []

    asyncio.run(run())


def test_appends_and_tails_cost_the_same(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append("c", _messages(0, 40))
            counts.clear()
            await store.append_message("c", "user", "one more")
            assert counts == {"swap": 1}
            counts.clear()
            assert len(await store.get_messages("c", last=4)) == 4
            assert counts == {"read_head": 1}

    asyncio.run(run())


@pytest.mark.timeout(3600)
def test_a_very_long_conversation(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if LENGTH > 10_000:
        monkeypatch.undo()

    async def run() -> None:
        backend = await _open(url)
        batch = min(1000, LENGTH // 10)
        async with hansard.Store(backend) as store:
            for first in range(0, LENGTH, batch):
                await store.append("c", _messages(first, first + batch))
        async with counted(url) as (store, counts):
            last = await store.get_messages("c", last=4)
            assert [message.text for message in last] == [f"text {LENGTH - each}" for each in (4, 3, 2, 1)]
            assert counts == {"read_head": 1}
            await store.append_message("c", "user", f"text {LENGTH}", id=f"m{LENGTH}")
            counts.clear()
            await store.append_message("c", "user", "the last")
            assert counts == {"swap": 1}
            assert (await store.get_message("c", "m1")).text == "text 1"
            ids = [message.id async for message in store.iter_messages("c")]
            assert ids[:-1] == [f"m{number}" for number in range(LENGTH + 1)]

    asyncio.run(run())


def test_an_id_in_a_part_is_not_stored_twice(url: str) -> None:
    async def run() -> None:
        async with hansard.Store(await _open(url)) as store:
            await store.append("c", _messages(0, 40))
            again = await store.append("c", [hansard.Message("user", "text 3", id="m3")])
            assert again.messages[0].seq == 4
            assert (await store.get_conversation("c")).message_count == 40  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_writer_that_dies_while_it_seals_leaves_everything_readable(url: str) -> None:
    """Whatever statement it dies before; the next write goes on, and a deletion leaves nothing."""

    async def run() -> None:
        backend = await _open(url)
        link = backend.storage.link
        link.__class__ = MortalSealerLink
        assert isinstance(link, MortalSealerLink)
        async with hansard.Store(backend) as store:
            for number in range(2, 40):
                await store.append("c", _messages(0, 13))
                link.left = number
                try:
                    await store.append("c", [hansard.Message("user", SECRET), hansard.Message("user", "last")])
                except Died:
                    assert link.left <= 0
                link.left, lived = -1, link.left > 0
                # Another process, which has no remembered heads.
                async with hansard.Store(await _open(url)) as other:
                    texts = [f"text {each}" for each in range(13)] + [SECRET, "last"]
                    assert [message.text for message in await other.get_messages("c", last=100)] == texts
                    await other.append_message("c", "user", "more")
                    head = await read.load(link, NAME)
                    assert head is not None
                    assert (head.sealed, head.claim) == (10, None)
                    assert [message.text for message in await other.get_messages("c", last=100)] == [*texts, "more"]
                    assert await other.check() == []
                    await other.delete_conversation("c")
                    assert await rows_with(link, "text") == await rows_with(link, SECRET) == []
                if lived:
                    break
            else:
                raise AssertionError("it has no end")
            assert number > 5

    asyncio.run(run())


def test_a_damaged_message_does_not_fail_the_appends_after_it(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        backend = await _open(url)
        link = backend.storage.link
        async with hansard.Store(backend) as store:
            await store.append("c", [hansard.Message("user", f"text {at}") for at in range(14)])
            await link.execute(
                f"UPDATE {link.options.keyspace}.conversations SET doc = %s WHERE prefix = %s AND tenant = 'default' "
                "AND id = 'c' AND part = 0 AND era = 1 AND kind = 5 AND segment = 1 AND seq = 3 AND name = ''",
                (b"damaged", link.prefix),
            )
            for _ in range(2):
                await store.append_message("c", "user", "later")
            assert [each.text for each in await store.get_messages("c", last=2)] == ["later", "later"]
            with pytest.raises(hansard.Corrupt):
                await store.get_messages("c", limit=5)

    asyncio.run(run())
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("change", ["delete_message", "update_message", "clear_messages"])
def test_a_late_copy_brings_nothing_back(url: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        backend = await _open(url)
        sealer = backend.storage.writer.sealer
        copy = sealer._copy
        async with hansard.Store(backend) as store, hansard.Store(await _open(url)) as other:
            await store.append("c", [hansard.Message("user", SECRET, id="m")])
            await store.append("c", _messages(1, 14))

            async def late(*arguments: Any) -> None:
                monkeypatch.setattr(sealer, "_copy", copy)
                arguments_of = {"delete_message": ["m"], "clear_messages": []}
                if change == "update_message":
                    await other.update_message("c", "m", content="changed")
                else:
                    await getattr(other, change)("c", *arguments_of[change])
                await copy(*arguments)

            monkeypatch.setattr(sealer, "_copy", late)
            await store.append_message("c", "user", "text of the one that seals")
            assert await rows_with(backend.storage.link, SECRET) == []
            left = {"delete_message": 14, "update_message": 15, "clear_messages": 0}[change]
            assert len(await store.get_messages("c", last=100)) == left
            assert await store.check() == []

    asyncio.run(run())


def test_readers_see_every_message_while_others_seal(url: str) -> None:
    async def run() -> None:
        async with hansard.Store(await _open(url)) as store, hansard.Store(await _open(url)) as other:
            await store.append("c", _messages(0, 5))
            is_done = False

            async def write() -> None:
                nonlocal is_done
                for number in range(5, 55, 5):
                    await store.append("c", _messages(number, number + 5))
                is_done = True

            async def look() -> None:
                while not is_done:
                    found = [message.id for message in await other.get_messages("c", last=1000)]
                    assert found == [f"m{number}" for number in range(len(found))]

            await asyncio.gather(write(), look(), look())

    asyncio.run(run())
