"""Promise 10: a summary leaves the messages in place, and is deleted with any message that it covers."""

from __future__ import annotations

import pytest

from hansard.errors import ConversationNotFound, NotFound, ValidationError
from hansard.model import Summary
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import Contract, assert_exact, history, require, rows, say
from hansard.testing.targets import Driver


def summary_text(store: Driver) -> str | None:
    found = store.get_conversation("c")
    assert found is not None
    return found.summary


class TestSummaries(Contract):
    def test_summaries_keep_every_field_and_change_no_message(self, store: Driver) -> None:
        messages = say(store, "c", *range(6))
        first = store.add_summary(
            "c",
            "ünï\0😀",
            from_seq=messages[0].seq,
            to_seq=messages[2].seq,
            model="m",
            prompt_id="p",
            token_count=12,
        )
        expected = Summary(
            "c", messages[0].seq, messages[2].seq, "ünï\0😀", "main", "m", "p", 12, created_at=first.created_at
        )
        assert facts(first) == facts(expected)
        second = store.add_summary("c", "more", from_seq=messages[0].seq, to_seq=messages[4].seq)
        assert facts(store.list_summaries("c")) == facts([first, second]), "oldest first"
        assert summary_text(store) == "more"
        assert history(store, "c") == list(range(6))
        assert_exact(store, "c")

    @rows(("text", "from_seq", "to_seq"), [("", 1, 2), ("  \n", 1, 2), ("x", 2, 1), ("x", 0, 1)])
    def test_an_empty_text_or_range_is_refused(self, store: Driver, text: str, from_seq: int, to_seq: int) -> None:
        say(store, "c", *range(3))
        before = state(store)
        with pytest.raises(ValidationError):
            store.add_summary("c", text, from_seq=from_seq, to_seq=to_seq)
        assert state(store) == before

    def test_a_range_beyond_the_last_seq_is_refused(self, store: Driver) -> None:
        last = say(store, "c", *range(3))[-1].seq
        store.create_conversation("empty")
        before = state(store)
        for id, from_seq, to_seq, ends_at in (
            ("c", 1, 10**6, last),
            ("c", last + 1, last + 1, last),
            ("empty", 1, 1, 0),
        ):
            with pytest.raises(ValidationError, match=f"the last seq of conversation '{id}' is {ends_at}"):
                store.add_summary(id, "x", from_seq=from_seq, to_seq=to_seq)
        assert state(store) == before
        store.add_summary("c", "all", from_seq=1, to_seq=last)
        assert summary_text(store) == "all"

    def test_the_backend_itself_refuses_a_range_that_does_not_exist(self, store: Driver) -> None:
        last = say(store, "c", *range(3))[-1].seq
        before = state(store)
        for from_seq, to_seq in ((1, last + 1), (0, 1), (2, 1)):
            summary = Summary("c", from_seq, to_seq, "x", created_at=store.context().now)
            with pytest.raises(ValidationError):
                store.run(store.backend.put_summary(store.context(), summary))
        assert state(store) == before

    def test_summarizing_what_does_not_exist_is_not_found(self, store: Driver) -> None:
        with pytest.raises(ConversationNotFound):
            store.add_summary("missing", "x", from_seq=1, to_seq=1)
        say(store, "c", "x")
        before = state(store)
        with pytest.raises(NotFound):
            store.add_summary("c", "x", from_seq=1, to_seq=1, branch="missing")
        assert state(store) == before
        assert store.list_summaries("missing") == []

    def test_each_branch_has_its_own_summaries(self, store: Driver) -> None:
        require(store, "branches")
        messages = say(store, "c", "a", "b")
        store.add_summary("c", "of main", from_seq=messages[0].seq, to_seq=messages[1].seq)
        store.branch("c", at=messages[0].id, branch_id="side")
        own = say(store, "c", "x")[0]
        store.add_summary("c", "of side", from_seq=messages[0].seq, to_seq=own.seq)
        assert [each.text for each in store.list_summaries("c", branch="main")] == ["of main"]
        assert [each.text for each in store.list_summaries("c", branch="side")] == ["of side"]
        assert [each.text for each in store.list_summaries("c")] == ["of main", "of side"]
        store.switch_branch("c", "main")
        assert store.delete_branch("c", "side").summaries == 1
        assert [each.text for each in store.list_summaries("c")] == ["of main"]
        assert summary_text(store) == "of main"

    def test_deleting_a_message_deletes_the_summaries_that_cover_it(self, store: Driver) -> None:
        messages = say(store, "c", *range(6))
        for number in (1, 3, 5):
            store.add_summary("c", f"to {number}", from_seq=messages[0].seq, to_seq=messages[number].seq)
        receipt = store.delete_message("c", messages[2].id)
        # The last summary builds on the second, so it may contain the deleted message.
        assert receipt.summaries == 2
        assert [each.text for each in store.list_summaries("c")] == ["to 1"]
        assert summary_text(store) == "to 1"
        store.delete_message("c", messages[0].id)
        assert store.list_summaries("c") == []
        assert summary_text(store) is None

    def test_deleting_a_message_keeps_summaries_of_branches_without_it(self, store: Driver) -> None:
        require(store, "branches")
        first, _ = say(store, "c", "a", "b")
        store.branch("c", at=first.id, branch_id="side")
        own = say(store, "c", "s")[0]
        late = say(store, "c", "m", branch="main")[0]
        store.add_summary("c", "of side", from_seq=first.seq, to_seq=own.seq)
        store.add_summary("c", "of main", from_seq=first.seq, to_seq=late.seq, branch="main")
        assert store.delete_message("c", own.id).summaries == 1, (
            "seq is shared by all branches, but the summary of main does not cover this message"
        )
        assert [each.text for each in store.list_summaries("c")] == ["of main"]

    def test_removing_later_messages_keeps_a_summary(self, store: Driver) -> None:
        messages = say(store, "c", *range(4))
        store.add_summary("c", "kept", from_seq=messages[0].seq, to_seq=messages[1].seq)
        store.pop_message("c")
        store.replace_messages("c", store.get_messages("c", limit=2))
        assert summary_text(store) == "kept"
        store.pop_message("c")
        assert store.list_summaries("c") == []

    def test_clearing_deletes_all_summaries(self, store: Driver) -> None:
        messages = say(store, "c", "a")
        store.add_summary("c", "x", from_seq=messages[0].seq, to_seq=messages[0].seq)
        assert store.clear_messages("c").summaries == 1
        assert store.list_summaries("c") == []
        assert summary_text(store) is None

    def test_deleting_a_conversation_deletes_all_summaries(self, store: Driver) -> None:
        messages = say(store, "c", "a")
        store.add_summary("c", "x", from_seq=messages[0].seq, to_seq=messages[0].seq)
        assert store.delete_conversation("c").summaries == 1
        store.create_conversation("c")
        assert store.list_summaries("c") == []
        assert summary_text(store) is None
