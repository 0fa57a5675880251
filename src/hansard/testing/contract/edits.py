"""Changes of messages: update, delete, clear, pop, and replacing all by a snapshot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, QuotaExceeded
from hansard.limits import Limits
from hansard.model import Message, Participant, Source, Usage
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import (
    HOUR,
    Contract,
    assert_exact,
    contents,
    history,
    require,
    rows,
    say,
    version_of,
)
from hansard.testing.targets import Driver

FULL = Message(
    "assistant",
    {"text": "as it was"},
    format="parts",
    participant=Participant("agent", "a_1", "Ada", {"x": 1}),
    mentions=("u_1",),
    scope="dm",
    trace_id="t",
    sources=(Source("d1", "Doc", "chunk", 0.5),),
    usage=Usage(10, 20, model="m"),
    metadata={"a": {"b": 1}},
)

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "content": ({"content": "new"}, {"content": "new", "format": "text"}),
    "content and format": ({"content": [1], "format": "parts"}, {"content": [1], "format": "parts"}),
    "metadata": ({"metadata": {"c": 2}}, {"metadata": {"c": 2}}),
    "metadata to none": ({"metadata": None}, {"metadata": None}),
    "status": ({"status": "interrupted"}, {"status": "interrupted"}),
    "usage": ({"usage": {"input_tokens": 3}}, {"usage": Usage(3)}),
    "usage to none": ({"usage": None}, {"usage": None}),
    "sources": ({"sources": [{"document_id": "d2"}]}, {"sources": (Source("d2"),)}),
    "sources to none": ({"sources": []}, {"sources": ()}),
    "pinned": ({"pinned": True}, {"pinned": True}),
    "nothing": ({}, {}),
}


class TestUpdateMessage(Contract):
    @rows(("given", "changed"), CHANGES.values(), ids=CHANGES)
    def test_an_update_changes_only_the_given_fields(
        self, store: Driver, clock: Clock, given: dict[str, Any], changed: dict[str, Any]
    ) -> None:
        neighbour, before, other = store.append("c", [Message("user", "x"), FULL, Message("user", "y")]).messages
        now = clock.advance(HOUR)
        after = store.update_message("c", before.id, **given)
        assert after.updated_at is not None
        assert after.updated_at >= now
        edited_at = after.updated_at if "content" in given else None
        times = {"updated_at": after.updated_at, "edited_at": edited_at}
        assert facts(after) == facts(structs.replace(before, **times, **changed))
        read = store.get_messages("c")
        assert facts(list(read)) == facts([neighbour, after, other])
        assert_exact(store, "c")

    def test_each_update_gets_a_later_time_whatever_the_clock(self, store: Driver, clock: Clock) -> None:
        # Catches an `updated_at` that repeats when the clock is stopped: a watcher would miss the update.
        id = store.append_message("c", "assistant", "", status="in_progress")
        clock.stop()
        times = []
        for number in range(4):
            updated = store.update_message("c", id, content=number).updated_at
            assert updated is not None
            times.append(updated)
            clock.advance(-timedelta(seconds=number))
        assert times == sorted(set(times))

    def test_only_an_edit_sets_edited_at(self, store: Driver, clock: Clock) -> None:
        id = store.append_message("c", "assistant", "", status="in_progress")
        store.update_message("c", id, content="It gr")
        done = store.update_message("c", id, content="It grew", status="complete")
        same = store.update_message("c", id, content="It grew", pinned=True)
        assert (done.edited_at, same.edited_at) == (None, None)
        now = clock.advance(HOUR)
        edited = store.update_message("c", id, content="It was edited")
        assert edited.edited_at is not None
        assert edited.edited_at >= now
        assert edited.edited_at == edited.updated_at
        clock.advance(HOUR)
        store.update_message("c", id, metadata={"seen": True})
        assert store.get_message("c", id).edited_at == store.get_messages("c")[0].edited_at == edited.edited_at

    def test_updating_what_does_not_exist_is_not_found(self, store: Driver) -> None:
        with pytest.raises(ConversationNotFound):
            store.update_message("missing", "m", content="x")
        say(store, "c", "x")
        with pytest.raises(MessageNotFound):
            store.update_message("c", "m", content="x")

    def test_a_shared_message_changes_on_every_branch(self, store: Driver) -> None:
        require(store, "branches")
        first = say(store, "c", "a", "b")[0]
        store.branch("c", branch_id="side")
        store.update_message("c", first.id, content="A")
        assert history(store, "c", branch="main") == history(store, "c", branch="side") == ["A", "b"]


class TestRemoving(Contract):
    def test_deleting_a_message_removes_only_that_message(self, store: Driver) -> None:
        messages = say(store, "c", *range(5))
        receipt = store.delete_message("c", messages[2].id)
        assert receipt.messages == 1
        assert receipt
        assert history(store, "c") == [0, 1, 3, 4]
        with pytest.raises(MessageNotFound):
            store.get_message("c", messages[2].id)
        assert_exact(store, "c")

    def test_deleting_several_ids_counts_each_message_once(self, store: Driver) -> None:
        ids = [message.id for message in say(store, "c", *range(5))]
        receipt = store.delete_messages("c", [ids[0], "missing", ids[4], ids[0]])
        assert receipt.messages == 2
        assert history(store, "c") == [1, 2, 3]
        assert_exact(store, "c")

    def test_removing_what_does_not_exist_changes_nothing(self, store: Driver) -> None:
        say(store, "c", "x")
        assert not store.delete_message("c", "missing")
        assert not store.delete_messages("c", [])
        assert not store.delete_message("missing", "missing")
        assert not store.clear_messages("missing")
        assert store.pop_message("missing") is None
        assert store.get_conversation("missing") is None
        assert history(store, "c") == ["x"]

    def test_a_shared_message_is_deleted_from_every_branch(self, store: Driver) -> None:
        require(store, "branches")
        first = say(store, "c", "a", "b")[0]
        store.branch("c", branch_id="side")
        say(store, "c", "c")
        assert store.delete_message("c", first.id).messages == 1
        assert history(store, "c", branch="main") == ["b"]
        assert history(store, "c", branch="side") == ["b", "c"]
        assert_exact(store, "c")

    def test_clearing_removes_all_messages_and_keeps_the_conversation(self, store: Driver) -> None:
        say(store, "c", *range(3), title="t", metadata={"a": 1}, user_id="u_1")
        if store.capabilities.branches:
            store.branch("c", branch_id="side")
            say(store, "c", "x")
        receipt = store.clear_messages("c")
        assert receipt.messages == (4 if store.capabilities.branches else 3)
        found = store.get_conversation("c")
        assert found is not None
        assert (found.title, found.metadata, found.user_id, found.branch) == ("t", {"a": 1}, "u_1", "main")
        assert [branch.id for branch in store.list_branches("c")] == ["main"]
        assert history(store, "c") == []
        assert_exact(store, "c")
        say(store, "c", "again")
        assert history(store, "c") == ["again"]

    def test_pop_removes_and_returns_the_newest_message(self, store: Driver) -> None:
        stored = say(store, "c", "a", "b")
        popped = store.pop_message("c")
        assert facts(popped) == facts(stored[1])
        assert_exact(store, "c")
        assert contents([store.pop_message("c") or stored[1]]) == ["a"]
        assert store.pop_message("c") is None
        assert_exact(store, "c")

    def test_popping_on_one_branch_keeps_the_message_on_others(self, store: Driver) -> None:
        require(store, "branches")
        say(store, "c", "a", "b", "c")
        store.branch("c", branch_id="side")
        for expected in ("c", "b"):
            popped = store.pop_message("c")
            assert popped is not None
            assert popped.content == expected
        assert history(store, "c") == ["a"]
        assert history(store, "c", branch="main") == ["a", "b", "c"]
        store.pop_message("c", branch="main")
        assert history(store, "c", branch="main") == ["a", "b"]
        say(store, "c", "d")
        assert history(store, "c") == ["a", "d"]
        assert_exact(store, "c")

    def test_a_popped_id_may_be_appended_again(self, store: Driver) -> None:
        require(store, "our ids")
        store.append("c", Message("user", "x", id="m"))
        store.pop_message("c")
        assert store.append("c", Message("user", "y", id="m")).stored == 1
        assert history(store, "c") == ["y"]


class TestReplaceMessages(Contract):
    def test_unchanged_messages_keep_their_id_and_seq(self, store: Driver) -> None:
        stored = say(store, "c", "a", "b", "c")
        # Messages without an id are the same when their bodies are.
        appended = store.replace_messages("c", [Message("user", text) for text in ("a", "b", "x", "y")])
        assert appended.stored == 2
        assert facts(appended.messages[:2]) == facts(stored[:2])
        assert facts(list(store.get_messages("c"))) == facts(appended.messages)
        assert contents(appended.messages) == ["a", "b", "x", "y"]
        assert appended.messages[2].seq > stored[2].seq
        assert_exact(store, "c")

    def test_an_unchanged_snapshot_stores_nothing(self, store: Driver) -> None:
        stored = store.append("c", [FULL, Message("user", "x")]).messages
        appended = store.replace_messages("c", stored)
        assert appended.stored == 0
        assert facts(list(store.get_messages("c"))) == facts(stored)
        assert_exact(store, "c")

    def test_values_equal_in_python_but_not_in_json_are_replaced(self, store: Driver) -> None:
        # These are equal in Python, but the snapshot must be stored verbatim.
        say(store, "c", {"a": 1, "b": 1.0})
        for content in ({"a": True, "b": 1.0}, {"a": 1, "b": 1}, {"b": 1.0, "a": 1}):
            store.replace_messages("c", [Message("user", content)])
            assert facts(history(store, "c")) == facts([content])
        assert_exact(store, "c")

    def test_a_snapshot_may_reorder_ids(self, store: Driver) -> None:
        require(store, "our ids")
        one, two = Message("user", "one", id="1"), Message("user", "two", id="2")
        store.append("c", [one, two])
        store.replace_messages("c", [two, one])
        assert history(store, "c") == ["two", "one"]
        assert store.get_message("c", "1").content == "one"
        assert_exact(store, "c")

    def test_a_snapshot_with_a_repeated_id_is_refused(self, store: Driver) -> None:
        require(store, "our ids")
        say(store, "c", "kept")
        before = state(store)
        with pytest.raises(Conflict):
            store.replace_messages("c", [Message("user", "a", id="1"), Message("user", "b", id="1")])
        assert state(store) == before

    def test_replacing_on_one_branch_keeps_messages_on_others(self, store: Driver) -> None:
        require(store, "branches")
        stored = say(store, "c", "a", "b", "c")
        store.branch("c", at=stored[1].id, branch_id="side")
        say(store, "c", "s")
        store.replace_messages("c", [*stored[:1], Message("user", "new")])
        assert history(store, "c") == ["a", "new"]
        assert history(store, "c", branch="main") == ["a", "b", "c"]
        store.replace_messages("c", [Message("user", "other")], branch="main")
        assert history(store, "c", branch="main") == ["other"]
        assert history(store, "c") == ["a", "new"]
        assert_exact(store, "c")

    def test_a_snapshot_with_an_id_of_another_branch_is_refused(self, store: Driver) -> None:
        require(store, "branches", "our ids")
        store.append("c", [Message("user", "a", id="a"), Message("user", "b", id="b")])
        store.branch("c", empty=True, branch_id="side")
        before = state(store)
        with pytest.raises(Conflict):
            store.replace_messages("c", [Message("user", "mine", id="b")])
        assert state(store) == before

    def test_an_empty_snapshot_removes_all_messages(self, store: Driver) -> None:
        say(store, "c", "a", "b")
        version = version_of(store, "c")
        assert store.replace_messages("c", []).messages == []
        assert history(store, "c") == []
        assert version_of(store, "c") == version + 1
        assert_exact(store, "c")

    def test_replacing_in_a_missing_conversation_is_not_found(self, store: Driver) -> None:
        with pytest.raises(ConversationNotFound):
            store.replace_messages("missing", [Message("user", "x")])
        assert store.get_conversation("missing") is None

    def test_a_snapshot_over_the_quota_changes_nothing(self, store: Driver) -> None:
        small = store.again(limits=Limits(messages=3))
        stored = say(small, "c", "a", "b", "c")
        before = state(small)
        with pytest.raises(QuotaExceeded):
            small.replace_messages("c", [*stored, Message("user", "d")])
        assert state(small) == before
        small.replace_messages("c", [Message("user", text) for text in "xyz"])
        assert history(small, "c") == ["x", "y", "z"]
