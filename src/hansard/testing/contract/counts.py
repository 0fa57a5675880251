"""Promises 6 and 7: read your writes, and counts are exact after every kind of write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import Conflict
from hansard.model import Conversation, Message
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import (
    HOUR,
    Contract,
    assert_exact,
    contents,
    history,
    races,
    require,
    say,
    version_of,
)
from hansard.testing.targets import Driver, Target

Write = Callable[[Driver], Any]

# Applied in this order to one conversation.
STEPS: list[tuple[str, Write]] = [
    ("append", lambda store: say(store, "c", *range(6))),
    ("append one", lambda store: store.append_message("c", "assistant", "x")),
    ("append twice", lambda store: [store.append_message("c", "user", "y", id="y") for _ in range(2)]),
    ("update", lambda store: store.update_message("c", nth(store, 0), content="changed")),
    ("delete the first", lambda store: store.delete_message("c", nth(store, 0))),
    ("delete the newest", lambda store: store.delete_message("c", nth(store, -1))),
    ("delete several", lambda store: store.delete_messages("c", [nth(store, 1), nth(store, 2), "missing"])),
    ("pop", lambda store: store.pop_message("c")),
    ("replace by more", lambda store: store.replace_messages("c", drafts("a", "b", "c", "d"))),
    ("replace the tail", lambda store: store.replace_messages("c", [*store.get_messages("c", limit=2), *drafts("z")])),
    ("replace by less", lambda store: store.replace_messages("c", store.get_messages("c", limit=1))),
    ("append again", lambda store: say(store, "c", *range(4))),
    ("clear", lambda store: store.clear_messages("c")),
    ("pop nothing", lambda store: store.pop_message("c")),
    ("replace nothing", lambda store: store.replace_messages("c", drafts("p", "q"))),
]

BRANCH_STEPS: list[tuple[str, Write]] = [
    ("append", lambda store: say(store, "c", *range(6))),
    ("branch", lambda store: store.branch("c", at=nth(store, 2), branch_id="b")),
    ("append to it", lambda store: say(store, "c", "b1", "b2")),
    ("append to main", lambda store: say(store, "c", "m1", branch="main")),
    ("branch again", lambda store: store.branch("c", at=nth(store, 3), branch_id="bb")),
    ("append there", lambda store: say(store, "c", "bb1")),
    ("delete a shared one", lambda store: store.delete_message("c", nth(store, 0))),
    ("pop an own one", lambda store: store.pop_message("c")),
    ("pop a shared one", lambda store: store.pop_message("c")),
    ("pop another shared one", lambda store: store.pop_message("c")),
    ("append after that", lambda store: say(store, "c", "bb2")),
    ("replace with shared beginning", lambda store: store.replace_messages("c", [*first(store, 1), *drafts("r")])),
    ("replace main", lambda store: store.replace_messages("c", drafts("other"), branch="main")),
    ("switch", lambda store: store.switch_branch("c", "main")),
    ("delete a branch", lambda store: store.delete_branch("c", "bb")),
    ("delete its parent", lambda store: store.delete_branch("c", "b")),
    ("clear", lambda store: store.clear_messages("c")),
]


def nth(store: Driver, index: int) -> str:
    return list(store.iter_messages("c"))[index].id


def first(store: Driver, count: int) -> list[Message]:
    return list(store.get_messages("c", limit=count))


def drafts(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def described(store: Driver) -> Conversation:
    found = store.get_conversation("c")
    assert found is not None
    return found


class TestCounts(Contract):
    def test_counts_are_exact_after_every_kind_of_write(self, store: Driver) -> None:
        for what, write in STEPS:
            write(store)
            assert_exact(store, "c", after=what)

    def test_counts_are_exact_after_every_kind_of_write_on_branches(self, store: Driver) -> None:
        require(store, "branches")
        for what, write in BRANCH_STEPS:
            write(store)
            assert_exact(store, "c", after=what)

    def test_every_write_raises_updated_at(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "x", "y")
        made = described(store).created_at
        for write in (
            lambda: say(store, "c", "z"),
            lambda: store.update_message("c", nth(store, 0), pinned=True),
            lambda: store.delete_message("c", nth(store, 0)),
            lambda: store.update_conversation("c", title="t"),
        ):
            clock.advance(HOUR)
            before = described(store).updated_at
            write()
            assert described(store).updated_at > before
            assert described(store).created_at == made

    def test_updated_at_never_goes_back(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "x")
        before = described(store).updated_at
        clock.advance(-HOUR)
        store.update_conversation("c", title="t")
        assert described(store).updated_at >= before

    def test_last_message_at_is_that_of_the_newest_remaining_message(self, store: Driver, clock: Clock) -> None:
        first = say(store, "c", "first")[0]
        clock.advance(HOUR)
        second = say(store, "c", "second")[0]
        assert described(store).last_message_at == second.created_at
        store.pop_message("c")
        assert described(store).last_message_at == first.created_at
        store.clear_messages("c")
        assert described(store).last_message_at is None


@races
class TestReadYourWrites(Contract):
    def test_a_write_is_read_at_once(self, store: Driver) -> None:
        for number in range(20):
            stored = say(store, "c", number)[0]
            assert contents(store.get_messages("c", last=1)) == [number]
            assert facts(store.get_message("c", stored.id)) == facts(stored)
            assert described(store).message_count == number + 1

    def test_append_returns_what_is_stored(self, store: Driver) -> None:
        appended = store.append("c", [Message("user", {"n": number}, metadata={"k": [1]}) for number in range(3)])
        assert facts(appended.messages) == facts(list(store.get_messages("c")))
        assert appended.version == version_of(store, "c")
        assert appended.created

    def test_changing_a_passed_or_returned_object_changes_nothing_stored(self, store: Driver) -> None:
        # Catches a store that keeps the caller's objects, or returns its own.
        content: Any = {"list": [1]}
        metadata: Any = {"deep": {"a": 1}}
        value: Any = {"v": [1]}
        stored = store.append("c", Message("user", content, metadata=metadata), metadata=metadata).messages[0]
        if store.capabilities.records:
            store.records.put(["n"], "k", value)
        before = state(store)
        returned: Any = (stored.content, stored.metadata)
        for mutable in (content, metadata, value, *returned):
            mutable["changed"] = True
        content["list"].append(2)
        metadata["deep"]["b"] = 2
        read = store.get_messages("c")[0]
        read.content["list"].append(3)
        described(store).metadata["x"] = 1
        store.list_conversations().items[0].metadata["x"] = 1
        assert state(store) == before

    def test_changing_returned_empty_metadata_changes_nothing_stored(self, store: Driver) -> None:
        store.create_conversation("c").metadata["x"] = 1
        described(store).metadata["y"] = 1
        assert described(store).metadata == {}

    def test_two_handles_read_each_others_writes(self, target: Target, store: Driver) -> None:
        # Catches a cached state that is not checked within the write: seq or counts would clash.
        require(store, "shared")
        other = target.open("blocking")
        for number in range(10):
            writer, reader = (store, other) if number % 2 else (other, store)
            say(writer, "c", number)
            assert history(reader, "c") == list(range(number + 1))
        with pytest.raises(Conflict):
            other.append("c", Message("user", "x"), expected_version=version_of(store, "c") - 1)
        store.clear_messages("c")
        assert history(other, "c") == []
        say(other, "c", "after")
        assert_exact(store, "c")
        assert_exact(other, "c")

    def test_two_handles_read_each_others_branches(self, target: Target, store: Driver) -> None:
        require(store, "shared", "branches")
        other = target.open("blocking")
        first, _ = say(store, "c", "a", "b")
        say(other, "c", "c")
        store.branch("c", at=first.id, branch_id="side")
        say(other, "c", "d")
        assert history(other, "c") == history(store, "c") == ["a", "d"]
        other.delete_conversation("c")
        assert store.get_conversation("c") is None
        say(store, "c", "again")
        assert history(other, "c") == ["again"]
        assert_exact(other, "c")
