"""Branches share their beginning without copying it; a fork is independent."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, NotFound
from hansard.model import Message
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import Contract, assert_exact, contents, history, races, require, say
from hansard.testing.targets import Driver


def branch_contents(store: Driver, branch: str | None = None) -> list[Any]:
    return history(store, "c", branch=branch)


class TestBranches(Contract):
    needs = ("branches",)

    def test_a_branch_at_a_message_includes_it(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b", "c")
        made = store.branch("c", at=messages[1].id, branch_id="side")
        assert (made.id, made.parent, made.message_count, made.active) == ("side", "main", 2, True)
        assert made.from_seq == messages[1].seq
        assert branch_contents(store) == ["a", "b"]
        assert branch_contents(store, "main") == ["a", "b", "c"]
        stored = say(store, "c", "x")[0]
        assert stored.branch == "side"
        assert stored.seq > messages[2].seq, "one counter for all branches"
        assert branch_contents(store) == ["a", "b", "x"]
        assert_exact(store, "c")

    def test_a_branch_before_a_message_excludes_it(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b", "c")
        store.branch("c", before=messages[1].id)
        say(store, "c", "b, but better")
        assert branch_contents(store) == ["a", "b, but better"]
        store.branch("c", before=messages[0].id)
        assert branch_contents(store) == []
        assert_exact(store, "c")

    def test_a_branch_shares_everything_or_nothing(self, store: Driver) -> None:
        say(store, "c", "a", "b")
        store.branch("c", branch_id="all")
        assert branch_contents(store, "all") == ["a", "b"]
        store.branch("c", empty=True, branch_id="none")
        assert branch_contents(store, "none") == []
        say(store, "c", "later", branch="main")
        assert branch_contents(store, "all") == ["a", "b"], "later messages of the parent are not shared"
        assert_exact(store, "c")

    def test_an_empty_conversation_may_be_branched(self, store: Driver) -> None:
        store.create_conversation("c")
        store.branch("c", branch_id="side")
        say(store, "c", "x")
        assert branch_contents(store, "side") == ["x"]
        assert branch_contents(store, "main") == []
        assert_exact(store, "c")

    def test_nested_branches_share_each_beginning(self, store: Driver) -> None:
        # Catches a path that is not cut where each branch begins: the end of the grandparent would show.
        path = []
        for depth in range(5):
            ids = [message.id for message in say(store, "c", f"{depth}a", f"{depth}b", f"{depth}c")]
            path.append(ids)
            store.branch("c", at=ids[1], branch_id=f"b{depth}")
        expected = [f"{depth}{letter}" for depth in range(5) for letter in "ab"]
        assert branch_contents(store) == expected
        assert branch_contents(store, "main") == ["0a", "0b", "0c"]
        assert branch_contents(store, "b1") == ["0a", "0b", "1a", "1b", "2a", "2b", "2c"]
        store.branch("c", at=path[1][0], branch_id="shallow")
        say(store, "c", "new")
        assert branch_contents(store) == ["0a", "0b", "1a", "new"]
        assert contents(store.get_messages("c", branch="b4", last=3)) == expected[-3:]
        assert_exact(store, "c")

    def test_a_branch_may_start_from_a_named_branch(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b")
        store.branch("c", at=messages[0].id, branch_id="one")
        other = say(store, "c", "one's")[0]
        store.branch("c", source="main", branch_id="two")
        assert branch_contents(store, "two") == ["a", "b"]
        with pytest.raises(MessageNotFound):
            store.branch("c", source="main", at=other.id)
        with pytest.raises(NotFound):
            store.branch("c", source="missing")
        assert_exact(store, "c")

    def test_activate_false_keeps_the_active_branch(self, store: Driver) -> None:
        say(store, "c", "a")
        assert not store.branch("c", branch_id="side", activate=False).active
        found = store.get_conversation("c")
        assert found is not None
        assert found.branch == "main"

    def test_switching_changes_the_branch_that_is_read_and_appended_to(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b")
        store.branch("c", at=messages[0].id, branch_id="side")
        assert store.switch_branch("c", "main").branch == "main"
        assert branch_contents(store) == ["a", "b"]
        say(store, "c", "c")
        assert branch_contents(store, "side") == ["a"]
        with pytest.raises(NotFound):
            store.switch_branch("c", "missing")
        with pytest.raises(ConversationNotFound):
            store.switch_branch("missing", "main")

    def test_branches_are_listed_oldest_first(self, store: Driver) -> None:
        say(store, "c", "a", "b")
        for name in ("z", "a", "m"):
            store.branch("c", branch_id=name)
        listed = store.list_branches("c")
        assert [branch.id for branch in listed] == ["main", "z", "a", "m"], "oldest first"
        assert [branch.active for branch in listed] == [False, False, False, True]
        assert [branch.parent for branch in listed] == [None, "main", "z", "a"]
        assert store.list_branches("missing") == []

    def test_a_name_in_use_is_a_conflict(self, store: Driver) -> None:
        say(store, "c", "a")
        store.branch("c", branch_id="side", activate=False)
        before = state(store)
        for name in ("side", "main"):
            with pytest.raises(Conflict):
                store.branch("c", branch_id=name)
        assert state(store) == before

    def test_branching_what_does_not_exist_is_not_found(self, store: Driver) -> None:
        say(store, "c", "a")
        before = state(store)
        with pytest.raises(ConversationNotFound):
            store.branch("missing")
        with pytest.raises(MessageNotFound):
            store.branch("c", at="missing")
        with pytest.raises(MessageNotFound):
            store.branch("c", before="missing")
        with pytest.raises(NotFound):
            store.append("c", Message("user", "x"), branch="missing")
        with pytest.raises(NotFound):
            store.pop_message("c", branch="missing")
        with pytest.raises(NotFound):
            store.replace_messages("c", [], branch="missing")
        with pytest.raises(NotFound):
            store.delete_branch("c", "missing")
        assert state(store) == before

    def test_deleting_a_branch_keeps_what_others_read(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b", "c")
        store.branch("c", at=messages[1].id, branch_id="side")
        own = say(store, "c", "x", "y")
        store.switch_branch("c", "main")
        receipt = store.delete_branch("c", "side")
        assert (receipt.branches, receipt.messages) == (1, 2), "only messages that no other branch has"
        assert branch_contents(store) == ["a", "b", "c"]
        with pytest.raises(MessageNotFound):
            store.get_message("c", own[0].id)
        with pytest.raises(NotFound):
            store.get_messages("c", branch="side")
        assert_exact(store, "c")

    def test_an_active_or_parent_branch_cannot_be_deleted(self, store: Driver) -> None:
        say(store, "c", "a")
        store.branch("c", branch_id="parent")
        say(store, "c", "b")
        store.branch("c", branch_id="child")
        for active, needed in (("child", "child"), ("child", "parent"), ("main", "main"), ("main", "parent")):
            store.switch_branch("c", active)
            before = state(store)
            with pytest.raises(Conflict):
                store.delete_branch("c", needed)
            assert state(store) == before
        store.delete_branch("c", "child")
        store.delete_branch("c", "parent")
        assert branch_contents(store) == ["a"]
        assert_exact(store, "c")

    def test_the_count_covers_all_branches(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b")
        store.branch("c", at=messages[0].id)
        say(store, "c", "x", "y")
        found = store.get_conversation("c")
        assert found is not None
        assert found.message_count == 4


class TestForks(Contract):
    def test_a_fork_is_independent_of_its_original(self, store: Driver) -> None:
        messages = say(store, "c", "a", {"b": 1}, "c", user_id="u", agent_id="g", title="T", metadata={"k": 1})
        fork = store.fork("c", at=messages[1].id, new_id="f", metadata={"l": 2})
        assert (fork.id, fork.user_id, fork.agent_id, fork.title) == ("f", "u", "g", "T")
        assert fork.metadata == {"k": 1, "l": 2}
        assert fork.message_count == 2
        same = frozenset({"conversation_id", "seq"})
        assert facts(list(store.get_messages("f")), leave_out=same) == facts(messages[:2], leave_out=same)
        say(store, "f", "only here")
        store.update_message("c", messages[0].id, content="changed")
        store.delete_conversation("c")
        assert history(store, "f") == ["a", {"b": 1}, "only here"]
        assert_exact(store, "f")

    def test_a_fork_copies_one_branch(self, store: Driver) -> None:
        require(store, "branches")
        messages = say(store, "c", "a", "b")
        store.branch("c", at=messages[0].id, branch_id="side")
        say(store, "c", "x")
        assert history(store, store.fork("c").id) == ["a", "x"]
        assert history(store, store.fork("c", branch="main").id) == ["a", "b"]

    def test_a_long_conversation_is_forked_in_full(self, store: Driver) -> None:
        messages = say(store, "c", *range(700))
        fork = store.fork("c", at=messages[650].id)
        assert history(store, fork.id) == list(range(651))
        assert_exact(store, fork.id)

    @races
    def test_a_failed_fork_leaves_nothing(self, store: Driver) -> None:
        say(store, "c", "a")
        with pytest.raises(MessageNotFound):
            store.fork("c", at="missing", new_id="f")
        with pytest.raises(ConversationNotFound):
            store.fork("missing", new_id="f")
        assert store.get_conversation("f") is None
        with pytest.raises(Conflict):
            store.fork("c", new_id="c")
        assert history(store, "c") == ["a"]
        assert history(store, store.fork("c", new_id="f").id) == ["a"], "the id is free again"
