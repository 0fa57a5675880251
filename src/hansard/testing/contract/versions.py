"""Promise 5: compare-and-swap on request; without it, appends never conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import Conflict, ConversationNotFound
from hansard.model import Message
from hansard.testing.comparison import state
from hansard.testing.contract.base import Contract, assert_exact, history, races, require, rows, say, version_of
from hansard.testing.targets import Driver

Write = Callable[..., Any]

WRITES: dict[str, Write] = {
    "append": lambda store, **cas: store.append("c", Message("user", "new"), **cas),
    "append_message": lambda store, **cas: store.append_message("c", "user", "new", **cas),
    "replace_messages": lambda store, **cas: store.replace_messages("c", [Message("user", "new")], **cas),
    "update_message": lambda store, **cas: store.update_message("c", _newest(store), content="new", **cas),
    "delete_message": lambda store, **cas: store.delete_message("c", _newest(store), **cas),
    "delete_messages": lambda store, **cas: store.delete_messages("c", [_newest(store)], **cas),
    "clear_messages": lambda store, **cas: store.clear_messages("c", **cas),
    "pop_message": lambda store, **cas: store.pop_message("c", **cas),
    "update_conversation": lambda store, **cas: store.update_conversation("c", title="new", **cas),
    "metadata": lambda store, **cas: store.update_conversation("c", metadata={"a": 1}, **cas),
    "branch": lambda store, **cas: store.branch("c", **cas),
    "switch_branch": lambda store, **cas: store.switch_branch("c", "side", **cas),
    "delete_branch": lambda store, **cas: store.delete_branch("c", "side", **cas),
}


def _newest(store: Driver) -> str:
    return store.get_messages("c", last=1)[0].id


def prepare(store: Driver, write: str = "") -> int:
    if "branch" in write:
        require(store, "branches")
    say(store, "c", "one", "two", user_id="u_1")
    if store.capabilities.branches:
        store.branch("c", branch_id="side", activate=False)
    return version_of(store, "c")


class TestVersions(Contract):
    @rows("write", WRITES)
    def test_each_write_raises_the_version_by_one(self, store: Driver, write: str) -> None:
        version = prepare(store, write)
        WRITES[write](store)
        assert version_of(store, "c") == version + 1

    @rows("write", WRITES)
    def test_a_write_at_the_expected_version_is_applied(self, store: Driver, write: str) -> None:
        require(store, "compare_and_swap")
        version = prepare(store, write)
        WRITES[write](store, expected_version=version)
        assert version_of(store, "c") == version + 1
        assert_exact(store, "c")

    @rows("write", WRITES)
    def test_a_write_at_another_version_changes_nothing(self, store: Driver, write: str) -> None:
        require(store, "compare_and_swap")
        version = prepare(store, write)
        before = state(store)
        for expected in (version - 1, version + 1):
            with pytest.raises(Conflict) as refused:
                WRITES[write](store, expected_version=expected)
            assert (refused.value.expected, refused.value.actual) == (expected, version)
        assert state(store) == before

    def test_flushes_summaries_and_records_do_not_raise_the_version(self, store: Driver) -> None:
        stored = store.append("c", Message("assistant", "", status="in_progress")).messages[0]
        version = version_of(store, "c")
        store.update_message("c", stored.id, content="growing")
        store.update_message("c", stored.id, content="growing still", metadata={"n": 1})
        assert version_of(store, "c") == version, "the flushes of a message in progress do not count"
        store.add_summary("c", "short", from_seq=stored.seq, to_seq=stored.seq)
        if store.capabilities.records:
            store.records.put(["n"], "k", 1, conversation_id="c")
        assert version_of(store, "c") == version
        store.update_message("c", stored.id, status="complete")
        assert version_of(store, "c") == version + 1, "finishing it counts"
        store.update_message("c", stored.id, status="in_progress")
        assert version_of(store, "c") == version + 2, "and so does reopening it"

    def test_append_returns_the_version_to_expect_next(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        version = 0
        for number in range(4):
            version = store.append("c", Message("user", number), expected_version=version).version
        assert version_of(store, "c") == version
        assert history(store, "c") == [0, 1, 2, 3]

    def test_a_missing_conversation_is_at_version_0(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        with pytest.raises(Conflict) as refused:
            store.append("c", Message("user", "x"), expected_version=3)
        assert (refused.value.expected, refused.value.actual) == (3, 0)
        assert store.get_conversation("c") is None
        store.append("c", Message("user", "x"), expected_version=0)
        for write in (store.clear_messages, store.pop_message):
            with pytest.raises(ConversationNotFound):
                write("missing", expected_version=0)

    @races
    def test_only_one_concurrent_compare_and_swap_wins(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        version = prepare(store)
        calls = [
            lambda each, number=number: each.append("c", Message("user", number), expected_version=version)
            for number in range(8)
        ]
        results = store.together(calls)
        assert sum(isinstance(result, Conflict) for result in results) == 7
        assert version_of(store, "c") == version + 1
        assert_exact(store, "c")

    @races
    def test_appends_without_an_expected_version_never_conflict(self, store: Driver) -> None:
        calls = [lambda each, number=number: each.append("c", Message("user", number)) for number in range(12)]
        results = store.together(calls)
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert sorted(history(store, "c")) == list(range(12))
        assert_exact(store, "c")
