"""Two promises at once: a backend may keep each alone and break them in combination."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import pytest

from hansard.errors import Conflict
from hansard.model import Message
from hansard.testing.clock import Clock
from hansard.testing.contract.base import DAY, Contract, assert_exact, history, require, say
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver


class _Role(str, Enum):  # noqa: UP042  (the common style of SDKs, whose str() is not its value)
    USER = "user"


class TestCrossings(Contract):
    def test_a_popped_message_contains_its_blob(self, store: Driver) -> None:
        # No message refers to the blob any longer: a store that reads it after the removal does not find it.
        require(store, "blobs")
        say(store, "c", "before", picture(1))
        popped = store.pop_message("c")
        assert popped is not None
        assert popped.content == picture(1)
        assert store.stats().blobs == 0

    def test_purge_keeps_a_backfilled_conversation_with_a_recent_message(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        say(store, "c", "now")
        store.append("c", Message("user", "from long ago", created_at=clock() - 1000 * DAY))
        assert store.purge(365 * DAY, dry_run=True).conversations == 0
        store.purge(365 * DAY)
        assert history(store, "c") == ["now", "from long ago"]

    def test_a_user_does_not_see_another_users_deletion(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        old = clock() - DAY
        store.user("ann").append_message("secret", "user", "hi")
        store.user("ann").delete_conversation("secret")
        store.user("ben").append_message("secret", "user", "mine", created_at=old)
        assert history(store.user("ben"), "secret") == ["mine"]

    def test_a_user_cannot_replay_a_deleted_conversation(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        old = clock()
        ann = store.user("ann")
        ann.append_message("c", "user", "hi")
        ann.delete_conversation("c")
        for view in (ann, store):
            with pytest.raises(Conflict):
                view.append_message("c", "user", "hi", created_at=old)

    def test_updating_metadata_keeps_other_keys_that_are_none(self, store: Driver) -> None:
        store.create_conversation("c", metadata={"a": None, "b": 1, "c": 2})
        assert store.update_conversation("c", metadata={"b": None, "d": 3}).metadata == {"a": None, "c": 2, "d": 3}

    def test_enums_are_stored_as_their_text(self, store: Driver) -> None:
        store.append_message("c", _Role.USER, _Role.USER, user_id=_Role.USER)
        message = store.get_messages("c", roles=["user"])[0]
        assert (type(message.role), message.role, message.content) == (str, "user", "user")

    def test_usage_counts_once_after_a_change_of_owner(self, store: Driver) -> None:
        store.append_message("c", "assistant", "a", id="m", usage={"input_tokens": 100})
        store.update_conversation("c", user_id="ann")
        store.update_message("c", "m", usage={"input_tokens": 150})
        rows = store.usage()
        assert sum(row.input_tokens for row in rows) == 150
        assert sum(row.messages for row in rows) == 1

    def test_a_fork_keeps_usage_on_messages_without_counting_it(self, store: Driver) -> None:
        store.append_message("c", "assistant", "a", usage={"input_tokens": 100})
        forked = store.fork("c")
        assert [row.input_tokens for row in store.usage()] == [100]
        message = store.get_messages(forked.id)[0]
        assert message.usage is not None

    def test_deleting_on_one_branch_keeps_summaries_of_another(self, store: Driver) -> None:
        require(store, "branches")
        shared = say(store, "c", "a", "b")
        store.branch("c", branch_id="side")
        own = say(store, "c", "only on the side")[0]
        store.switch_branch("c", "main")
        last = say(store, "c", "c", "d")[-1]
        store.add_summary("c", "of main", from_seq=shared[0].seq, to_seq=last.seq)
        store.delete_message("c", own.id)
        assert [summary.text for summary in store.list_summaries("c")] == ["of main"]
        store.delete_message("c", shared[1].id)
        assert store.list_summaries("c") == []
        assert_exact(store, "c")

    def test_a_snapshot_does_not_restore_deleted_messages(self, store: Driver) -> None:
        store.append("c", [Message("user", "a", id="a"), Message("user", "b", id="b")])
        store.delete_message("c", "b")
        snapshot = [Message("user", "a", id="a"), Message("user", "b", id="b")]
        with pytest.raises(Conflict):
            store.replace_messages("c", snapshot)
        assert history(store, "c") == ["a"]
        store.replace_messages("c", snapshot, revive=True)
        assert history(store, "c") == ["a", "b"]

    def test_filters_do_not_change_what_a_turn_is(self, store: Driver) -> None:
        for number in range(3):
            store.append("c", [Message("user", f"q{number}"), Message("assistant", f"a{number}")])
        assert [message.content for message in store.get_messages("c", turns=1, roles=["assistant"])] == ["a2"]

    def test_erasing_through_a_view_leaves_other_tenants_alone(self, store: Driver, clock: Clock) -> None:
        expires = clock() + timedelta(hours=1)
        store.tenant("b").append("c", [Message("user", "x")], expires_at=expires)
        clock.advance(DAY)
        store.tenant("a").user("u").erase_user("u")
        # It has expired, but a view of another tenant must not remove it.
        assert store.tenant("b").stats().conversations == 1

    def test_a_conversation_may_have_many_branches(self, store: Driver) -> None:
        require(store, "branches")
        for number in range(120):
            say(store, "c", f"m{number}")
            store.branch("c", branch_id=f"b{number}")
        assert len(history(store, "c", roles=["user"])) == 120
        assert history(store, "c", sort="time") == history(store, "c")
        counts = {branch.id: branch.message_count for branch in store.list_branches("c")}
        assert counts == {"main": 1} | {f"b{number}": min(number + 2, 120) for number in range(120)}
        assert history(store, "c", branch="b59") == [f"m{number}" for number in range(61)]
        assert store.check() == []
