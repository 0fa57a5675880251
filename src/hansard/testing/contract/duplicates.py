"""Promise 4: appending the same message id twice stores it once, so a retry is always safe."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from hansard.errors import Conflict
from hansard.model import Message, Participant, Source, Usage
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import (
    Contract,
    assert_exact,
    contents,
    history,
    races,
    require,
    rows,
    say,
    version_of,
)
from hansard.testing.targets import Driver

FIRST = Message(
    "user",
    {"a": 1, "b": [True, "x"]},
    id="m1",
    format="json",
    participant=Participant("user", "u_1"),
    mentions=("bot",),
    scope="channel",
    trace_id="t",
    sources=(Source("d"),),
    usage=Usage(1, 2),
    metadata={"k": 1},
)

OTHER_BODIES: dict[str, dict[str, Any]] = {
    "role": {"role": "assistant"},
    "content": {"content": {"a": 2, "b": [True, "x"]}},
    "a number for a boolean": {"content": {"a": 1, "b": [1, "x"]}},
    "a float for a number": {"content": {"a": 1.0, "b": [True, "x"]}},
    "order of keys": {"content": {"b": [True, "x"], "a": 1}},
    "format": {"format": "parts"},
    "participant": {"participant": Participant("user", "u_2")},
    "mentions": {"mentions": ("bot", "cat")},
    "scope": {"scope": "dm"},
    "status": {"status": "blocked"},
    "pinned": {"pinned": True},
    "trace_id": {"trace_id": "t2"},
    "sources": {"sources": ()},
    "usage": {"usage": Usage(1, 3)},
    "metadata": {"metadata": {"k": True}},
    "created_at": {"created_at": datetime(2020, 1, 1, tzinfo=UTC)},
}


class TestDuplicates(Contract):
    needs = ("our ids",)

    def test_appending_a_stored_id_returns_the_stored_message(self, store: Driver) -> None:
        first = store.append("c", FIRST)
        before = state(store)
        again = store.append("c", FIRST)
        assert (first.stored, again.stored) == (1, 0)
        assert (first.created, again.created) == (True, False)
        assert again.version == first.version
        assert facts(again.messages) == facts(first.messages)
        assert state(store) == before

    def test_another_body_under_a_stored_id_is_ignored(self, store: Driver) -> None:
        store.append("c", FIRST)
        before = state(store)
        again = store.append("c", Message("assistant", "something else", id="m1"))
        assert contents(again.messages) == [FIRST.content]
        assert again.stored == 0
        assert state(store) == before

    def test_on_duplicate_error_accepts_an_equal_body(self, store: Driver) -> None:
        store.append("c", FIRST)
        before = state(store)
        assert store.append("c", FIRST, on_duplicate="error").stored == 0
        assert state(store) == before

    @rows("other", OTHER_BODIES.values(), ids=OTHER_BODIES)
    def test_on_duplicate_error_refuses_another_body(self, store: Driver, other: dict[str, Any]) -> None:
        store.append("c", FIRST)
        before = state(store)
        batch = [Message("user", "new", id="m2"), structs.replace(FIRST, **other)]
        with pytest.raises(Conflict):
            store.append("c", batch, on_duplicate="error")
        assert state(store) == before

    def test_an_id_repeated_in_a_batch_is_stored_once(self, store: Driver) -> None:
        appended = store.append("c", [FIRST, FIRST, Message("user", "other", id="m1")])
        assert appended.stored == 1
        assert [message.seq for message in appended.messages] == [appended.messages[0].seq] * 3
        assert contents(appended.messages) == [FIRST.content] * 3
        assert_exact(store, "c")

    def test_on_duplicate_error_refuses_another_body_in_the_same_batch(self, store: Driver) -> None:
        batch = [FIRST, FIRST, Message("user", "other", id="m1")]
        with pytest.raises(Conflict):
            store.append("c", batch, on_duplicate="error")
        assert store.get_conversation("c") is None

    def test_a_batch_stores_only_its_new_ids(self, store: Driver) -> None:
        store.append("c", [Message("user", "b", id="b"), Message("user", "d", id="d")])
        batch = [Message("user", letter, id=letter) for letter in "abcde"]
        appended = store.append("c", batch)
        assert appended.stored == 3
        assert [message.id for message in appended.messages] == list("abcde")
        assert history(store, "c") == ["b", "d", "a", "c", "e"]
        assert_exact(store, "c")

    def test_a_retry_succeeds_whatever_the_expected_version(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        batch = [Message("user", "one", id="m1"), Message("user", "two", id="m2")]
        first = store.append("c", batch, expected_version=0)
        # The answer was lost, and another writer appended meanwhile.
        say(store, "c", "three")
        before = state(store)
        again = store.append("c", batch, expected_version=0)
        assert facts(again.messages) == facts(first.messages)
        assert again.stored == 0
        assert state(store) == before

    def test_a_changed_retry_conflicts_with_the_expected_version(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        store.append("c", Message("user", "one", id="m1"), expected_version=0)
        before = state(store)
        for changed in (
            [Message("user", "one", id="m1"), Message("user", "two", id="m2")],
            [Message("user", "one, but other", id="m1")],
        ):
            with pytest.raises(Conflict) as refused:
                store.append("c", changed, expected_version=0)
            assert (refused.value.expected, refused.value.actual) == (0, 1)
        assert state(store) == before

    def test_messages_without_an_id_are_never_duplicates(self, store: Driver) -> None:
        say(store, "c", "x", "x")
        say(store, "c", "x")
        messages = store.get_messages("c")
        assert contents(messages) == ["x", "x", "x"]
        assert len({message.id for message in messages}) == 3

    def test_ids_are_unique_in_a_conversation_only(self, store: Driver) -> None:
        for where in (store, store.tenant("acme")):
            for conversation in ("c", "d"):
                where.append(conversation, Message("user", f"{where.tenant_id} {conversation}", id="m1"))
        assert store.get_message("d", "m1").content == "default d"
        assert store.tenant("acme").get_message("c", "m1").content == "acme c"

    def test_an_id_is_unique_across_branches(self, store: Driver) -> None:
        require(store, "branches")
        store.append("c", Message("user", "on main", id="m1"))
        store.branch("c", empty=True, branch_id="other")
        appended = store.append("c", Message("user", "on the other", id="m1"), branch="other")
        assert contents(appended.messages) == ["on main"]
        assert history(store, "c", branch="other") == []
        assert_exact(store, "c")

    def test_a_retry_after_an_update_returns_the_updated_message(self, store: Driver) -> None:
        store.append("c", FIRST)
        store.update_message("c", "m1", content="changed")
        version = version_of(store, "c")
        assert contents(store.append("c", FIRST).messages) == ["changed"]
        assert version_of(store, "c") == version

    @races
    def test_concurrent_appends_of_one_id_store_it_once(self, store: Driver) -> None:
        results = store.together([lambda each: each.append("c", FIRST)] * 8)
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert sum(result.stored for result in results) == 1
        assert len({result.messages[0].seq for result in results}) == 1
        assert len(store.get_messages("c")) == 1
        assert_exact(store, "c")
