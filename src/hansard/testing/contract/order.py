"""Promise 2: messages are in the order of arrival, whatever the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hansard.model import Message
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, contents, history, require, rows, say
from hansard.testing.targets import Driver


def at(minute: int, content: str) -> Message:
    return Message("user", content, created_at=datetime(2020, 1, 1, 0, minute, tzinfo=UTC))


class TestOrder(Contract):
    def test_seq_strictly_increases(self, store: Driver) -> None:
        stored = [*say(store, "c", "a"), *say(store, "c", "b", "c", "d"), *say(store, "c", "e")]
        seqs = [message.seq for message in stored]
        assert seqs == sorted(set(seqs))
        assert seqs[0] > 0
        assert history(store, "c") == ["a", "b", "c", "d", "e"]

    def test_order_is_kept_while_the_clock_is_stopped(self, store: Driver, clock: Clock) -> None:
        # Catches ordering by time: equal times would be sorted by id or at random.
        clock.stop()
        for number in range(30):
            say(store, "c", number)
        assert history(store, "c") == list(range(30))

    def test_order_is_kept_when_the_clock_goes_back(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        first = say(store, "c", "before")[0]
        clock.advance(-HOUR)
        second = say(store, "c", "after")[0]
        assert history(store, "c") == ["before", "after"]
        assert second.created_at >= first.created_at
        assert contents(store.get_messages("c", last=1)) == ["after"]

    @rows(
        "written",
        [
            datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=UTC),
            datetime(1, 1, 2, tzinfo=UTC),
            datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC),
            datetime(2024, 6, 1, 12, 0, 0, 999999, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        ],
    )
    def test_a_given_time_is_stored_to_the_microsecond(self, store: Driver, written: datetime) -> None:
        require(store, "our times")
        stored = store.append("c", Message("user", "x", created_at=written)).messages[0]
        read = store.get_message("c", stored.id)
        assert stored.created_at == read.created_at == written
        assert read.created_at.utcoffset() == timedelta(0)

    def test_later_messages_are_never_older_than_a_given_time(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        ahead = clock.now + HOUR
        batch = [Message("user", "a"), Message("user", "b", created_at=ahead), Message("user", "c")]
        first, second, third = store.append("c", batch).messages
        assert first.created_at < ahead
        assert second.created_at == third.created_at == ahead
        assert say(store, "c", "d")[0].created_at == ahead

    def test_backfilled_history_sorts_by_time_when_asked(self, store: Driver) -> None:
        require(store, "our times")
        store.append("c", [at(3, "third"), at(1, "first"), at(2, "second"), at(1, "first again")])
        in_time = ["first", "first again", "second", "third"]
        assert history(store, "c") == ["third", "first", "second", "first again"]
        assert history(store, "c", sort="time") == in_time
        assert history(store, "c", sort="time", order="desc") == in_time[::-1]
        assert contents(store.get_messages("c", sort="time", last=2)) == ["second", "third"]

    def test_pages_sorted_by_time_are_complete(self, store: Driver) -> None:
        require(store, "our times")
        store.append("c", [at(3, "third"), at(1, "first"), at(2, "second"), at(1, "first again")])
        page = store.get_messages("c", sort="time", limit=2)
        assert contents(page) == ["first", "first again"]
        for place in (page[-1].id, page[-1].cursor):
            assert contents(store.get_messages("c", sort="time", after=place)) == ["second", "third"]
            assert contents(store.get_messages("c", sort="time", before=place)) == ["first"]
        down = store.get_messages("c", sort="time", order="desc", limit=2)
        assert contents(down) == ["third", "second"]
        down = store.get_messages("c", sort="time", order="desc", after=down[-1].cursor)
        assert contents(down) == ["first again", "first"]

    def test_seq_is_never_used_twice(self, store: Driver) -> None:
        # Catches seq = max(seq) + 1: the seq of a removed last message would be used again.
        highest = 0
        removals = (
            lambda: store.pop_message("c"),
            lambda: store.delete_message("c", store.get_messages("c", last=1)[0].id),
            lambda: store.replace_messages("c", []),
            lambda: store.clear_messages("c"),
        )
        for remove in removals:
            say(store, "c", "kept")
            newest = say(store, "c", "gone")[0].seq
            assert newest > highest
            highest = newest
            remove()
        assert say(store, "c", "new")[0].seq > highest

    def test_last_message_at_is_that_of_the_last_to_arrive(self, store: Driver) -> None:
        require(store, "our times")
        store.append("c", [at(5, "late"), at(1, "early")])
        found = store.get_conversation("c")
        assert found is not None
        assert found.last_message_at == at(1, "").created_at
