"""Members: they see a conversation of another user and append to it, and may do nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import Conflict, ConversationNotFound, Denied, ValidationError
from hansard.model import Message
from hansard.store import Put
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, assert_exact, contents, history, require, say
from hansard.testing.targets import Driver


def ids_of(store: Driver, **filters: Any) -> list[str]:
    return [conversation.id for conversation in store.list_conversations(**filters).items]


def share(store: Driver) -> Driver:
    """Stores a conversation of ada, with bob as a member, and returns the view of bob."""
    say(store, "ada's", "the lamp", user_id="ada")
    assert store.user("ada").add_member("ada's", "bob") == ("bob",)
    return store.user("bob")


class TestMembers(Contract):
    needs = ("records",)

    def test_a_member_reads_what_the_owner_reads(self, store: Driver) -> None:
        bob = share(store)
        seen = bob.get_conversation("ada's")
        assert seen is not None
        assert (seen.user_id, seen.members) == ("ada", ("bob",))
        (message,) = bob.get_messages("ada's")
        assert message.content == "the lamp"
        assert bob.get_message("ada's", message.id).content == "the lamp"
        assert history(bob, "ada's") == ["the lamp"]
        assert contents(bob.window("ada's")) == ["the lamp"]
        assert len(bob.list_branches("ada's")) == 1
        store.add_summary("ada's", "a lamp", from_seq=1, to_seq=1)
        assert [each.text for each in bob.list_summaries("ada's")] == ["a lamp"]
        places: list[dict[str, Any]] = [
            *({"conversation_id": "ada's"}, {"conversation_id": "ada's", "branch": "main"}),
            *({}, {"all_branches": True}, {"order": "newest"}, {"conversation_id": "ada's", "order": "newest"}),
        ]
        for where in places:
            assert [hit.message.content for hit in bob.search("lamp", **where)] == ["the lamp"]

    def test_a_list_shows_own_and_shared_conversations_in_one_order(self, store: Driver, clock: Clock) -> None:
        for number in range(6):
            clock.advance(HOUR)
            say(store, f"c{number}", "1", user_id="bob" if number % 2 else "ada")
        for id in ("c0", "c4"):
            store.add_member(id, "bob")
        bob = store.user("bob")
        assert ids_of(bob) == ["c5", "c4", "c3", "c1", "c0"]
        assert ids_of(bob, order="asc") == ["c0", "c1", "c3", "c4", "c5"]
        page = bob.list_conversations(limit=2)
        assert [each.id for each in page.items] == ["c5", "c4"]
        page = bob.list_conversations(limit=2, after=page.next_cursor)
        assert [each.id for each in page.items] == ["c3", "c1"]
        rest = bob.list_conversations(limit=2, after=page.next_cursor)
        assert ([each.id for each in rest.items], rest.next_cursor) == (["c0"], None)
        assert ids_of(bob, offset=1, limit=3) == ["c4", "c3", "c1"]
        store.add_label("c4", "x")
        assert ids_of(bob, label="x") == ["c4"]
        assert ids_of(store, user_id="bob") == ["c5", "c3", "c1"]
        assert ids_of(store.user("ada")) == ["c4", "c2", "c0"]
        assert ids_of(store.user("eve")) == []

    def test_a_member_appends_as_the_author(self, store: Driver) -> None:
        bob = share(store)
        bob.append("ada's", [Message("user", "mine"), Message("assistant", "answer")])
        store.append("ada's", [Message("user", "also mine")], user_id="bob")
        found = store.get_messages("ada's")
        who = [message.participant.id if message.participant else None for message in found]
        assert who == [None, "bob", None, "bob"]
        conversation = store.get_conversation("ada's")
        assert conversation is not None
        assert conversation.user_id == "ada"
        assert history(bob, "ada's") == history(store.user("ada"), "ada's")
        with pytest.raises(Conflict):
            store.append("ada's", [Message("user", "x")], user_id="eve")
        assert_exact(store, "ada's")

    def test_a_member_streams_and_rates(self, store: Driver) -> None:
        bob = share(store)
        (said,) = store.get_messages("ada's")
        id = bob.append_message("ada's", "assistant", "be", status="in_progress")
        bob.update_message("ada's", id, content="because", status="complete")
        assert [(each.by, each.value) for each in bob.rate("ada's", said.id, 1).ratings] == [("bob", 1)]
        assert bob.remove_rating("ada's", said.id).ratings == ()
        with pytest.raises(Denied):
            bob.update_message("ada's", id, content="because of that")

    def test_a_member_may_not_do_what_only_the_owner_may(self, store: Driver) -> None:
        bob = share(store)
        store.add_member("ada's", "carl")
        (message,) = store.get_messages("ada's")
        calls: list[Any] = [
            lambda: bob.delete_conversation("ada's"),
            lambda: bob.update_conversation("ada's", title="mine"),
            lambda: bob.update_conversation("ada's", metadata={"hansard.members": ["eve"]}),
            lambda: bob.update_message("ada's", message.id, content="x"),
            lambda: bob.delete_message("ada's", message.id),
            lambda: bob.clear_messages("ada's"),
            lambda: bob.pop_message("ada's"),
            lambda: bob.replace_messages("ada's", []),
            lambda: bob.add_member("ada's", "eve"),
            lambda: bob.remove_member("ada's", "carl"),
            lambda: bob.remove_member("ada's", "ada"),
            lambda: bob.add_label("ada's", "x"),
            lambda: bob.add_label("ada's", "x", message_id=message.id),
        ]
        if store.capabilities.append_records:
            put = Put(["n"], "k", 1, conversation_id="ada's")
            calls.append(lambda: bob.append("ada's", [Message("user", "x")], records=[put]))
        calls.append(lambda: bob.records.put(["n"], "k", 1, conversation_id="ada's"))
        if store.capabilities.branches:
            calls.append(lambda: bob.branch("ada's", at=message.id))
        for call in calls:
            with pytest.raises(Denied, match="only the owner"):
                call()
        assert bob.purge(HOUR * 0).conversations == 0
        assert history(store, "ada's") == ["the lamp"]
        conversation = store.get_conversation("ada's")
        assert conversation is not None
        assert (conversation.title, conversation.members, conversation.labels) == (None, ("bob", "carl"), ())

    def test_a_user_who_is_no_member_finds_nothing(self, store: Driver) -> None:
        share(store)
        eve = store.user("eve")
        assert eve.get_conversation("ada's") is None
        assert eve.get_messages("ada's") == []
        assert list(eve.search("lamp")) == []
        for call in (
            lambda: eve.append("ada's", [Message("user", "x")]),
            lambda: eve.add_member("ada's", "eve"),
            lambda: eve.remove_member("ada's", "eve"),
            lambda: eve.remove_member("ada's", "bob"),
        ):
            with pytest.raises(ConversationNotFound):
                call()
        assert not store.tenant("other").user("bob").list_conversations().items
        assert store.tenant("other").user("bob").get_conversation("ada's") is None

    def test_a_membership_ends(self, store: Driver) -> None:
        bob = share(store)
        bob.append("ada's", [Message("user", "mine")])
        assert store.user("ada").remove_member("ada's", "bob") == ()
        assert bob.get_conversation("ada's") is None
        assert ids_of(bob) == []
        with pytest.raises(ConversationNotFound):
            bob.append("ada's", [Message("user", "x")])
        assert history(store, "ada's") == ["the lamp", "mine"]
        store.add_member("ada's", "bob")
        assert bob.remove_member("ada's", "bob") == ()
        assert ids_of(bob) == []
        store.add_member("ada's", "bob")
        store.delete_conversation("ada's")
        assert ids_of(bob) == []
        say(store, "ada's", "another", user_id="ada")
        assert bob.get_messages("ada's") == []

    def test_the_owner_is_no_member(self, store: Driver) -> None:
        share(store)
        with pytest.raises(ValidationError):
            store.add_member("ada's", "ada")
        with pytest.raises(ConversationNotFound):
            store.add_member("missing", "bob")

    def test_erasing_a_member_takes_the_messages_and_the_membership(self, store: Driver) -> None:
        bob = share(store)
        bob.append("ada's", [Message("user", "mine"), Message("assistant", "answer")])
        store.erase_user("bob")
        assert history(store, "ada's") == ["the lamp", "answer"]
        conversation = store.get_conversation("ada's")
        assert conversation is not None
        assert conversation.members == ()
        assert ids_of(bob) == []
        assert not [each for each in store.records.iter(["hansard"]) if "bob" in each.namespace]
        assert_exact(store, "ada's")

    def test_an_expired_conversation_is_gone_for_members_too(self, store: Driver, clock: Clock) -> None:
        bob = share(store)
        store.update_conversation("ada's", expires_at=clock() + HOUR)
        assert ids_of(bob) == ["ada's"]
        clock.advance(2 * HOUR)
        assert ids_of(bob) == []
        assert bob.get_messages("ada's") == []

    def test_a_member_watches(self, store: Driver) -> None:
        require(store, "watch")
        bob = share(store)
        tail = bob.watch("ada's", after=store.get_messages("ada's")[0].id)
        say(store, "ada's", "next")
        assert next(iter(tail)).content == "next"
