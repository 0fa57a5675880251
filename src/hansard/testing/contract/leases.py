"""A message in progress whose writer died reads as interrupted, once its lease has run out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hansard.model import Message
from hansard.rules import LEASE, leased
from hansard.store import Store
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, races, require, rows, say
from hansard.testing.contract.watch import Tail
from hansard.testing.targets import Driver


def append_in_progress(store: Driver, **fields: Any) -> None:
    message = Message("assistant", "half a", id="m", status="in_progress", **fields)
    store.append("c", [message, Message("user", "next")])


class TestLeases(Contract):
    @pytest.fixture(autouse=True)
    def _stopped_clock(self, clock: Clock) -> None:
        clock.stop()

    def test_a_message_reads_as_interrupted_after_its_lease(self, store: Driver, clock: Clock) -> None:
        append_in_progress(store, metadata=leased({"k": 1}, clock() + HOUR))
        assert store.get_message("c", "m").status == "in_progress"
        clock.advance(2 * HOUR)
        version = store.get_conversation("c")
        readings = [
            store.get_message("c", "m"),
            store.get_messages("c", limit=1)[0],
            store.get_messages("c", last=2)[0],
            next(iter(store.iter_messages("c"))),
            store.window("c", messages=2)[0],
            store.search("half", conversation_id="c")[0].message,
        ]
        assert [(each.status, each.content) for each in readings] == [("interrupted", "half a")] * 6
        assert store.get_conversation("c") == version, "reading writes nothing"

    def test_a_renewed_lease_reads_as_in_progress(self, store: Driver, clock: Clock) -> None:
        append_in_progress(store, metadata=leased(None, clock() + HOUR))
        clock.advance(2 * HOUR)
        store.update_message("c", "m", content="half a word", metadata=leased(None, clock() + HOUR))
        assert store.get_message("c", "m").status == "in_progress"
        store.update_message("c", "m", content="half a word.", status="complete", metadata=None)
        clock.advance(2 * HOUR)
        ended = store.get_message("c", "m")
        assert (ended.status, ended.content, ended.metadata) == ("complete", "half a word.", None)

    @rows("lease", [None, 7, "soon", "", [], "2020-01-01", "2020-01-01T00:00:00"])
    def test_metadata_that_is_not_a_time_is_not_a_lease(self, store: Driver, clock: Clock, lease: Any) -> None:
        append_in_progress(store, metadata={LEASE: lease})
        clock.advance(1000 * HOUR)
        assert store.get_message("c", "m").status == "in_progress"

    def test_a_lease_does_not_change_a_finished_message(self, store: Driver, clock: Clock) -> None:
        for status in ("complete", "interrupted", "blocked"):
            store.append("c", Message("assistant", "x", id=status, status=status, metadata=leased(None, clock())))
        clock.advance(HOUR)
        assert [message.status for message in store.get_messages("c")] == ["complete", "interrupted", "blocked"]

    @races
    def test_a_watcher_sees_a_lease_run_out(self, store: Driver, clock: Clock) -> None:
        require(store, "watch")
        last = say(store, "c", "question")[0]

        async def watch(inner: Store) -> None:
            async with Tail(inner.watch("c", after=last.id)) as tail:
                soon = leased(None, clock() + timedelta(milliseconds=50))
                await inner.append_message("c", "assistant", "He", id="m", status="in_progress", metadata=soon)
                assert (await tail.next()).status == "in_progress"
                waiting = asyncio.ensure_future(tail.next())
                clock.advance(HOUR)
                lapsed = await waiting
                assert (lapsed.status, lapsed.content) == ("interrupted", "He"), "it is delivered without a write"
                await inner.update_message("c", "m", content="Hello", metadata=leased(None, clock() + HOUR))
                assert (await tail.next()).status == "in_progress", "its writer was only late"
                await inner.update_message("c", "m", content="Hello.", status="complete", metadata=None)
                assert (await tail.next()).status == "complete"

        store.scenario(watch)
