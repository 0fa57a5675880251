"""What narrows a read: turns, roles, participants, scope, time; each alone, together, and under paging."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hansard.model import Message, MessageScope, Participant
from hansard.testing.contract.base import Contract, contents, history, require, say
from hansard.testing.targets import Driver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
SCOPES: tuple[MessageScope | None, ...] = (None, "channel", "dm", "thread")


def mixed(store: Driver) -> None:
    """24 messages over which every filter picks another part."""
    roles = ("user", "assistant", "tool")
    batch = [
        Message(
            roles[number % 3],
            number,
            participant=Participant("user", f"p{number % 2}") if number % 4 else None,
            scope=SCOPES[number % 4],
            created_at=NOON + number * TICK,
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
    "nothing": ({"since": NOON, "until": NOON}, lambda n: False),
    "all together": (
        {"roles": ["user"], "participant_ids": ["p1"], "scope": "channel", "since": NOON + 4 * TICK},
        lambda n: n % 3 == 0 and n % 4 == 1 and n >= 4,
    ),
}


class TestFilters(Contract):
    needs = ("our times",)

    @pytest.mark.parametrize(("given", "picks"), FILTERS.values(), ids=FILTERS)
    def test_each_filter(self, store: Driver, given: dict[str, Any], picks: Any) -> None:
        mixed(store)
        expected = [number for number in range(24) if picks(number)]
        assert contents(store.get_messages("c", limit=100, **given)) == expected
        assert contents(store.get_messages("c", limit=100, order="desc", **given)) == expected[::-1]
        assert contents(store.get_messages("c", last=3, **given)) == expected[-3:]
        assert history(store, "c", **given) == expected

    @pytest.mark.parametrize(("given", "picks"), FILTERS.values(), ids=FILTERS)
    def test_each_filter_page_by_page(self, store: Driver, given: dict[str, Any], picks: Any) -> None:
        mixed(store)
        expected = [number for number in range(24) if picks(number)]
        page = store.get_messages("c", limit=3, **given)
        found = contents(page)
        while page.has_more:
            page = store.get_messages("c", limit=3, after=page[-1].cursor, **given)
            assert page, "has_more promised another message"
            found += contents(page)
        assert found == expected

    def test_a_filter_does_not_cost_the_place(self, store: Driver) -> None:
        mixed(store)
        user = store.get_messages("c", roles=["user"], limit=2)[-1]
        assert contents(store.get_messages("c", roles=["tool"], limit=2, after=user.id)) == [5, 8]
        assert contents(store.get_messages("c", roles=["tool"], before=user.cursor)) == [2]

    def test_participants_of_every_kind_and_name(self, store: Driver) -> None:
        odd = ["it's", 'a"b', "ünï", "😀", "a,b", "100%", "a\\b", " "]
        store.append("c", [Message("user", name, participant=Participant("agent", name)) for name in odd])
        for name in odd:
            assert contents(store.get_messages("c", participant_ids=[name])) == [name]


TURNS = ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]


class TestTurns(Contract):
    @pytest.mark.parametrize(
        ("turns", "first"), [(1, 7), (2, 3), (3, 1), (4, 0), (99, 0)], ids=["1", "2", "3", "4", "99"]
    )
    def test_the_newest_turns(self, store: Driver, turns: int, first: int) -> None:
        store.append("c", [Message(role, number) for number, role in enumerate(TURNS)])
        page = store.get_messages("c", turns=turns)
        assert contents(page) == list(range(first, len(TURNS)))
        assert page.has_more == (first > 0)

    def test_a_long_turn(self, store: Driver) -> None:
        # Longer than what is read at once: the turn must still come whole.
        say(store, "c", "before")
        say(store, "c", "question")
        say(store, "c", *range(250), role="assistant")
        assert contents(store.get_messages("c", turns=1)) == ["question", *range(250)]
        assert len(store.get_messages("c", turns=2)) == 252

    def test_turns_of_a_branch(self, store: Driver) -> None:
        require(store, "branches")
        stored = store.append("c", [Message(role, number) for number, role in enumerate(TURNS)]).messages
        store.branch("c", at=stored[2].id)
        say(store, "c", "edited")
        assert contents(store.get_messages("c", turns=1)) == ["edited"]
        assert contents(store.get_messages("c", turns=2)) == [1, 2, "edited"]
