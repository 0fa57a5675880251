"""Filters of reads: turns, roles, participants, scope, time, pins; each alone, together, and under paging."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hansard.model import Message, MessageScope, Participant
from hansard.testing.contract.base import Contract, contents, history, require, rows, say
from hansard.testing.targets import Driver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SCOPES: tuple[MessageScope | None, ...] = (None, "channel", "dm", "thread")


def mixed(store: Driver) -> None:
    """Appends 24 messages, of which every filter matches another part."""
    roles = ("user", "assistant", "tool")
    batch = [
        Message(
            roles[number % 3],
            number,
            participant=Participant("user", f"p{number % 2}") if number % 4 else None,
            scope=SCOPES[number % 4],
            created_at=NOON + number * TICK,
            pinned=number % 5 == 0,
        )
        for number in range(24)
    ]
    store.append("c", batch)


FILTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "role": ({"roles": ["tool"]}, lambda n: n % 3 == 2),
    "roles": ({"roles": ["user", "assistant"]}, lambda n: n % 3 != 2),
    "no roles": ({"roles": []}, lambda n: True),
    "participant": ({"participant_ids": ["p1"]}, lambda n: n % 4 and n % 2),
    "participants": ({"participant_ids": ["p0", "p1", "p7"]}, lambda n: n % 4),
    "scope": ({"scope": "dm"}, lambda n: n % 4 == 2),
    "since": ({"since": NOON + 7 * TICK}, lambda n: n >= 7),
    "until": ({"until": NOON + 7 * TICK}, lambda n: n < 7),
    "between": ({"since": NOON + 3 * TICK, "until": NOON + 9 * TICK}, lambda n: 3 <= n < 9),
    "pinned": ({"pinned": True}, lambda n: n % 5 == 0),
    "not pinned": ({"pinned": False}, lambda n: n % 5),
    "pinned, by time": ({"pinned": True, "sort": "time"}, lambda n: n % 5 == 0),
    "pinned, since": ({"pinned": True, "since": NOON + 7 * TICK}, lambda n: n % 5 == 0 and n >= 7),
    "pinned, role": ({"pinned": True, "roles": ["user"]}, lambda n: n % 15 == 0),
    "nothing": ({"since": NOON, "until": NOON}, lambda n: False),
    "all together": (
        {"roles": ["user"], "participant_ids": ["p1"], "scope": "channel", "since": NOON + 4 * TICK},
        lambda n: n % 3 == 0 and n % 4 == 1 and n >= 4,
    ),
}


class TestFilters(Contract):
    needs = ("our times",)

    @rows(("given", "picks"), FILTERS.values(), ids=FILTERS)
    def test_each_filter_returns_exactly_what_matches(self, store: Driver, given: dict[str, Any], picks: Any) -> None:
        mixed(store)
        expected = [number for number in range(24) if picks(number)]
        assert contents(store.get_messages("c", limit=100, **given)) == expected
        assert contents(store.get_messages("c", limit=100, order="desc", **given)) == expected[::-1]
        assert contents(store.get_messages("c", last=3, **given)) == expected[-3:]
        assert history(store, "c", **given) == expected

    @rows(("given", "picks"), FILTERS.values(), ids=FILTERS)
    def test_filtered_pages_are_complete(self, store: Driver, given: dict[str, Any], picks: Any) -> None:
        mixed(store)
        expected = [number for number in range(24) if picks(number)]
        page = store.get_messages("c", limit=3, **given)
        found = contents(page)
        while page.has_more:
            page = store.get_messages("c", limit=3, after=page[-1].cursor, **given)
            assert page, "has_more promised another message"
            found += contents(page)
        assert found == expected

    def test_a_position_may_be_a_message_that_the_filter_excludes(self, store: Driver) -> None:
        mixed(store)
        user = store.get_messages("c", roles=["user"], limit=2)[-1]
        assert contents(store.get_messages("c", roles=["tool"], limit=2, after=user.id)) == [5, 8]
        assert contents(store.get_messages("c", roles=["tool"], before=user.cursor)) == [2]

    def test_participant_ids_match_exactly(self, store: Driver) -> None:
        odd = ["it's", 'a"b', "ünï", "😀", "a,b", "100%", "a\\b", " "]
        store.append("c", [Message("user", name, participant=Participant("agent", name)) for name in odd])
        for name in odd:
            assert contents(store.get_messages("c", participant_ids=[name])) == [name]


class TestPinned(Contract):
    """Pinned messages are found anywhere in a history, and only while they are pinned."""

    def test_only_messages_pinned_now_are_found(self, store: Driver) -> None:
        stored = say(store, "c", *range(6))
        assert store.get_messages("c", pinned=True) == []
        for number in (4, 1):
            store.update_message("c", stored[number].id, pinned=True)
        assert contents(store.get_messages("c", pinned=True)) == [1, 4]
        assert contents(store.get_messages("c", pinned=False)) == [0, 2, 3, 5]
        store.update_message("c", stored[4].id, content="changed", metadata={"pinned": True})
        assert contents(store.get_messages("c", pinned=True)) == [1, "changed"]
        store.update_message("c", stored[1].id, pinned=False)
        store.update_message("c", stored[0].id, metadata={"pinned": True})
        assert contents(store.get_messages("c", pinned=True)) == ["changed"]

    def test_removed_messages_are_not_found_as_pinned(self, store: Driver) -> None:
        store.append("c", [Message("user", number, id=f"m{number}", pinned=True) for number in range(6)])
        store.delete_message("c", "m1")
        store.pop_message("c")
        assert contents(store.get_messages("c", pinned=True)) == [0, 2, 3, 4]
        store.replace_messages("c", [Message("user", 9, pinned=True), Message("user", 10)])
        assert contents(store.get_messages("c", pinned=True)) == [9]
        store.clear_messages("c")
        assert store.get_messages("c", pinned=True) == []
        say(store, "c", "again")
        assert store.get_messages("c", pinned=True) == []
        store.append("d", Message("user", 1, pinned=True))
        store.delete_conversation("d")
        say(store, "d", "again")
        assert store.get_messages("d", pinned=True) == []

    def test_pins_are_read_by_branch(self, store: Driver) -> None:
        require(store, "branches")
        store.append("c", [Message("user", number, id=f"m{number}", pinned=number % 2 == 0) for number in range(6)])
        store.branch("c", at="m3", branch_id="side")
        store.append("c", [Message("user", "s", pinned=True), Message("user", "t")])
        assert contents(store.get_messages("c", pinned=True)) == [0, 2, "s"]
        assert contents(store.get_messages("c", pinned=True, order="desc", limit=2)) == ["s", 2]
        assert contents(store.get_messages("c", pinned=True, branch="main")) == [0, 2, 4]
        store.update_message("c", "m0", pinned=False)
        assert contents(store.get_messages("c", pinned=True, branch="main")) == [2, 4], "on every branch"
        assert contents(store.get_messages("c", pinned=True)) == [2, "s"]
        forked = store.fork("c", branch="side")
        assert contents(store.get_messages(forked.id, pinned=True)) == [2, "s"]

    def test_a_pin_in_a_long_history_stays_in_windows(self, store: Driver) -> None:
        stored = say(store, "c", *map(str, range(150)))
        store.update_message("c", stored[40].id, pinned=True)
        assert contents(store.window("c", messages=2)) == ["40", "148", "149"]
        prompt = store.assemble_prompt("c", max_turns=3)
        assert [message["content"] for message in prompt.messages] == ["40", "147", "148", "149"]
        assert prompt.decisions[0].why == "pinned"


TURNS = ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]


class TestTurns(Contract):
    @rows(("turns", "first"), [(1, 7), (2, 3), (3, 1), (4, 0), (99, 0)], ids=["1", "2", "3", "4", "99"])
    def test_turns_returns_the_newest_turns(self, store: Driver, turns: int, first: int) -> None:
        store.append("c", [Message(role, number) for number, role in enumerate(TURNS)])
        page = store.get_messages("c", turns=turns)
        assert contents(page) == list(range(first, len(TURNS)))
        assert page.has_more == (first > 0)

    def test_a_turn_longer_than_a_page_is_whole(self, store: Driver) -> None:
        # Longer than one read of the backend: the turn must still be complete.
        say(store, "c", "before")
        say(store, "c", "question")
        say(store, "c", *range(250), role="assistant")
        assert contents(store.get_messages("c", turns=1)) == ["question", *range(250)]
        assert len(store.get_messages("c", turns=2)) == 252

    def test_turns_are_those_of_the_branch(self, store: Driver) -> None:
        require(store, "branches")
        stored = store.append("c", [Message(role, number) for number, role in enumerate(TURNS)]).messages
        store.branch("c", at=stored[2].id)
        say(store, "c", "edited")
        assert contents(store.get_messages("c", turns=1)) == ["edited"]
        assert contents(store.get_messages("c", turns=2)) == [1, 2, "edited"]
