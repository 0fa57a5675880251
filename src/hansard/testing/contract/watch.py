"""The live tail: new messages, messages in progress, and writes of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hansard.errors import ValidationError
from hansard.model import Message
from hansard.store import Store
from hansard.testing import processes
from hansard.testing.contract.base import Contract, races, require, require_url, say
from hansard.testing.targets import Driver, Target

PATIENCE = 120.0
"""Seconds after which a test fails instead of hanging; a correct tail answers at once."""


class Tail:
    """A tail that is read with a timeout, and closed at the end."""

    def __init__(self, tail: AsyncIterator[Message]) -> None:
        self._tail = tail

    async def next(self) -> Message:
        return await asyncio.wait_for(anext(self._tail), PATIENCE)

    async def take(self, count: int) -> list[Any]:
        return [(await self.next()).content for _ in range(count)]

    async def __aenter__(self) -> Tail:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tail.aclose()  # type: ignore[attr-defined]


@races
class TestWatch(Contract):
    needs = ("watch",)

    def test_watching_starts_after_an_id_or_a_cursor(self, store: Driver) -> None:
        messages = say(store, "c", *range(5))

        async def watch(inner: Store) -> None:
            for place in (messages[1].id, messages[1].cursor):
                async with Tail(inner.watch("c", after=place)) as tail:
                    assert await tail.take(3) == [2, 3, 4]

        store.scenario(watch)

    def test_messages_are_delivered_as_they_arrive(self, store: Driver) -> None:
        last = say(store, "c", "old")[0]

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=last.id)) as tail:
                for number in range(5):
                    waiting = asyncio.ensure_future(tail.next())
                    await asyncio.sleep(0.01)
                    assert not waiting.done()
                    await inner.append("c", [Message("user", number), Message("assistant", -number)])
                    assert (await waiting).content == number
                    assert await tail.take(1) == [-number]

        store.scenario(watch)

    def test_watching_without_a_position_starts_now(self, store: Driver) -> None:
        say(store, "c", "old")

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c")) as tail:
                waiting = asyncio.ensure_future(tail.next())
                # The tail starts at its first read, so an earlier write may not be delivered.
                while not waiting.done():
                    await asyncio.sleep(0.02)
                    await inner.append_message("c", "user", "new")
                assert (await waiting).content == "new"

        store.scenario(watch)

    def test_a_conversation_may_be_watched_before_it_exists(self, store: Driver) -> None:
        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("later")) as tail:
                waiting = asyncio.ensure_future(tail.next())
                # As above: on a busy machine the tail may start after the first message.
                number = 0
                while not waiting.done():
                    await asyncio.sleep(0.02)
                    await inner.append_message("later", "user", number)
                    number += 1
                assert (await waiting).content in range(number)

        store.scenario(watch)

    def test_a_message_in_progress_is_delivered_at_each_update(self, store: Driver) -> None:
        last = say(store, "c", "question")[0]

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=last.id)) as tail:
                id = await inner.append_message("c", "assistant", "", status="in_progress")
                assert (await tail.next()).content == ""
                for text in ("He", "Hello"):
                    await inner.update_message("c", id, content=text)
                    assert (await tail.next()).content == text
                await inner.update_message("c", id, content="Hello.", status="complete")
                end = await tail.next()
                assert (end.content, end.status, end.id) == ("Hello.", "complete", id)
                await inner.append_message("c", "user", "next")
                assert (await tail.next()).content == "next"

        store.scenario(watch)

    def test_resuming_within_a_message_delivers_the_missed_update(self, store: Driver) -> None:
        say(store, "c", "question")
        id = store.append_message("c", "assistant", "He", status="in_progress")
        cursor = store.get_message("c", id).cursor
        store.update_message("c", id, content="Hell")

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=cursor)) as tail:
                assert (await tail.next()).content == "Hell", "the missed update"
                waiting = asyncio.ensure_future(tail.next())
                await asyncio.sleep(0.01)
                await inner.update_message("c", id, content="Hello", status="complete")
                assert (await waiting).content == "Hello"
                await inner.append_message("c", "user", "next")
                assert await tail.take(1) == ["next"]

        store.scenario(watch)

    def test_resuming_after_a_message_ended_delivers_its_final_state(self, store: Driver) -> None:
        say(store, "c", "question")
        id = store.append_message("c", "assistant", "He", status="in_progress")
        begun = store.get_message("c", id).cursor
        store.update_message("c", id, content="Hell")
        grown = store.get_message("c", id).cursor
        ended = store.update_message("c", id, content="Hello", status="complete").cursor
        say(store, "c", "next")

        async def watch(inner: Store) -> None:
            for cursor, missed in ((begun, ["Hello"]), (grown, ["Hello"]), (ended, []), (id, [])):
                async with Tail(inner.watch("c", after=cursor)) as tail:
                    assert await tail.take(len(missed) + 1) == [*missed, "next"]

        store.scenario(watch)

    def test_resuming_delivers_a_message_in_progress_only_if_updated(self, store: Driver) -> None:
        id = store.append_message("c", "assistant", "He", status="in_progress")
        cursors = [store.get_message("c", id).cursor]
        store.update_message("c", id, content="Hell")
        cursors.append(store.get_message("c", id).cursor)
        say(store, "c", "next")

        async def watch(inner: Store) -> None:
            for cursor, missed in zip(cursors, (["Hell"], []), strict=True):
                async with Tail(inner.watch("c", after=cursor)) as tail:
                    assert await tail.take(len(missed) + 1) == [*missed, "next"]

        store.scenario(watch)

    def test_watching_starts_within_a_message_in_progress(self, store: Driver) -> None:
        id = store.append_message("c", "assistant", "He", status="in_progress")

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c")) as tail:
                waiting = asyncio.ensure_future(tail.next())
                number = 0
                while not waiting.done():
                    await asyncio.sleep(0.02)
                    number += 1
                    await inner.update_message("c", id, content=number)
                assert (await waiting).id == id

        store.scenario(watch)

    def test_several_watchers_each_see_every_message(self, store: Driver) -> None:
        last = say(store, "c", "old")[0]

        async def watch(inner: Store) -> None:
            async def follow() -> list[Any]:
                async with Tail(inner.watch("c", after=last.cursor)) as tail:
                    return await tail.take(20)

            watchers = [asyncio.ensure_future(follow()) for _ in range(3)]
            for number in range(20):
                await inner.append_message("c", "user", number)
            assert await asyncio.gather(*watchers) == [list(range(20))] * 3

        store.scenario(watch)

    def test_a_long_backlog_is_delivered_in_full(self, store: Driver) -> None:
        first = say(store, "c", *range(350))[0]

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=first.id)) as tail:
                assert await tail.take(349) == list(range(1, 350))

        store.scenario(watch)

    def test_watching_a_branch_delivers_only_its_messages(self, store: Driver) -> None:
        require(store, "branches")
        first = say(store, "c", "a", "b")[0]
        store.branch("c", at=first.id, branch_id="side", activate=False)

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", branch="side", after=first.id)) as tail:
                await inner.append_message("c", "user", "on main")
                await inner.append_message("c", "user", "on side", branch="side")
                assert await tail.take(1) == ["on side"]

        store.scenario(watch)

    def test_writes_of_another_handle_are_delivered(self, target: Target, store: Driver) -> None:
        require(store, "shared")
        last = say(store, "c", "old")[0]
        other = target.open("blocking")

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=last.id)) as tail:
                waiting = asyncio.ensure_future(tail.next())
                await asyncio.sleep(0.02)
                await asyncio.to_thread(other.append_message, "c", "user", "from elsewhere")
                assert (await waiting).content == "from elsewhere"

        store.scenario(watch)

    def test_writes_of_another_process_are_delivered(self, target: Target, store: Driver) -> None:
        require(store, "shared")
        url = require_url(target)
        last = say(store, "c", "old")[0]

        async def watch(inner: Store) -> list[Any]:
            async with Tail(inner.watch("c", after=last.id)) as tail:
                writer = processes.Writer(url, "w", batches=2, batch=2)
                seen = await tail.take(4)
                await asyncio.to_thread(writer.wait)
                return seen

        assert store.scenario(watch) == [f"batch w.{number}.{part}" for number in range(2) for part in range(2)]

    def test_wait_returns_for_every_write_since_the_given_mark(self, store: Driver) -> None:
        say(store, "c", "old")

        async def wait(inner: Store) -> None:
            async def waited(seen: int) -> int:
                return await inner.backend.wait(store.context(), "c", seen, PATIENCE)

            mark = await asyncio.wait_for(waited(0), PATIENCE / 2)
            assert mark != 0, "0 is only for the first call, which returns at once"
            await inner.append_message("c", "user", "before a call waits")
            mark = await asyncio.wait_for(waited(mark), PATIENCE / 2)
            waiting = asyncio.ensure_future(waited(mark))
            await asyncio.sleep(0.01)
            await inner.append_message("c", "user", "while a call waits")
            await asyncio.wait_for(waiting, PATIENCE / 2)
            await asyncio.wait_for(inner.backend.wait(store.context(), "never written", 1, 0.01), PATIENCE / 2)

        store.scenario(wait)

    def test_a_cursor_of_another_conversation_is_refused(self, store: Driver) -> None:
        foreign = say(store, "other", "x")[0].cursor
        with pytest.raises(ValidationError):
            next(store.watch("c", after=foreign))
