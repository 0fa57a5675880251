"""Ratings and labels: one rating of each person, filters, and their end with what they belong to."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import ConversationNotFound, MessageNotFound, QuotaExceeded, ValidationError
from hansard.model import Message, Rating
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, assert_exact, require, say, version_of
from hansard.testing.targets import Driver


def ids_of(store: Driver, **filters: Any) -> list[str]:
    return [conversation.id for conversation in store.list_conversations(**filters).items]


def opinions(message: Message) -> dict[str | None, float]:
    return {rating.by: rating.value for rating in message.ratings}


class TestRatings(Contract):
    def test_each_person_has_one_rating_of_a_message(self, store: Driver, clock: Clock) -> None:
        clock.stop()
        (message,) = say(store, "c", "hello")
        store.rate("c", message.id, 1, by="ada", comment="good")
        store.rate("c", message.id, -1, by="bob")
        rated = store.rate("c", message.id, 5, by="ada", comment="very good")
        assert opinions(rated) == {"bob": -1, "ada": 5}
        assert rated.ratings[-1] == Rating(5, "ada", "very good", clock())
        assert opinions(store.rate("c", message.id, 0.5)) == {"bob": -1, "ada": 5, None: 0.5}
        stored = store.get_message("c", message.id)
        assert stored.ratings == store.get_messages("c")[0].ratings
        assert opinions(stored) == {"bob": -1, "ada": 5, None: 0.5}
        assert opinions(store.remove_rating("c", message.id, by="ada")) == {"bob": -1, None: 0.5}
        assert opinions(store.remove_rating("c", message.id)) == {"bob": -1}
        assert_exact(store, "c")

    def test_repeating_a_call_changes_nothing(self, store: Driver) -> None:
        (message,) = say(store, "c", "hello")
        store.rate("c", message.id, 1, by="ada")
        store.add_label("c", "billing")
        store.add_label("c", "later", message_id=message.id)
        before = version_of(store, "c")
        store.rate("c", message.id, 1.0, by="ada")
        store.remove_rating("c", message.id, by="bob")
        assert store.add_label("c", "billing") == ("billing",)
        assert store.add_label("c", "later", message_id=message.id) == ("later",)
        assert store.remove_label("c", "other") == ("billing",)
        assert version_of(store, "c") == before

    def test_an_edit_keeps_ratings_and_labels(self, store: Driver) -> None:
        (message,) = say(store, "c", "hello")
        store.rate("c", message.id, 1, by="ada")
        store.add_label("c", "later", message_id=message.id)
        edited = store.update_message("c", message.id, content="hello again", metadata={"a": 1})
        assert (edited.labels, opinions(edited)) == (("later",), {"ada": 1})
        # A retry of the append, and a snapshot of the same messages, do not know of them.
        store.append("c", [Message("user", "hello again", message.id, metadata={"a": 1})])
        store.replace_messages("c", [Message("user", "hello again", message.id, metadata={"a": 1})])
        assert opinions(store.get_message("c", message.id)) == {"ada": 1}

    def test_what_is_missing_cannot_be_rated_or_labelled(self, store: Driver) -> None:
        say(store, "c", "hello")
        with pytest.raises(MessageNotFound):
            store.rate("c", "msg_missing", 1)
        with pytest.raises(MessageNotFound):
            store.add_label("c", "x", message_id="msg_missing")
        for call in (store.add_label, store.remove_label):
            with pytest.raises(ConversationNotFound):
                call("missing", "x")
        with pytest.raises(ConversationNotFound):
            store.rate("missing", "msg_missing", 1)

    def test_bad_values_are_refused(self, store: Driver) -> None:
        (message,) = say(store, "c", "hello")
        values: list[Any] = [None, True, "1", float("nan"), float("inf"), 10**12]
        for value in values:
            with pytest.raises(ValidationError):
                store.rate("c", message.id, value)
        labels: list[Any] = ["", " x", 5, None, "x" * 257]
        for label in labels:
            with pytest.raises(ValidationError):
                store.add_label("c", label)
        with pytest.raises(ValidationError):
            store.rate("c", message.id, 1, comment="x" * 10_001)
        with pytest.raises(ValidationError):
            store.append("c", [Message("user", "x", ratings=(Rating(1, "ada"), Rating(2, "ada")))])
        for number in range(100):
            store.add_label("c", f"label {number}")
        with pytest.raises(QuotaExceeded):
            store.add_label("c", "one more")
        assert store.get_message("c", message.id).ratings == ()

    def test_a_removed_message_takes_its_marks_with_it(self, store: Driver) -> None:
        require(store, "records")
        first, second, third = say(store, "c", "1", "2", "3")
        for message in (first, second, third):
            store.rate("c", message.id, 1, by="ada")
        assert ids_of(store, rating=1) == ["c"]
        store.delete_message("c", first.id)
        store.pop_message("c")
        assert ids_of(store, rating=1) == ["c"]
        store.clear_messages("c")
        assert ids_of(store, rating=1) == []
        store.append("c", [Message("user", "1", first.id)], revive=True)
        assert store.get_message("c", first.id).ratings == ()
        assert ids_of(store, rating=1) == []

    def test_a_fork_has_the_marks_of_its_source(self, store: Driver) -> None:
        require(store, "records", "branches")
        (message,) = say(store, "c", "1")
        store.add_label("c", "x")
        store.rate("c", message.id, 1, by="ada")
        forked = store.fork("c", new_id="copy")
        assert forked.labels == ("x",)
        assert set(ids_of(store, label="x")) == set(ids_of(store, rating=1)) == {"c", "copy"}


class TestMarkFilters(Contract):
    needs = ("records",)

    def fill(self, store: Driver, clock: Clock) -> None:
        for number in range(6):
            clock.now += HOUR
            say(store, f"c{number}", f"lamp {number}", user_id="ada" if number % 2 else "bob")
        for number in (1, 2, 4, 5):
            store.add_label(f"c{number}", "billing")

    def test_a_list_by_label_is_in_order_and_has_pages(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        assert ids_of(store, label="billing") == ["c5", "c4", "c2", "c1"]
        assert ids_of(store, label="billing", order="asc") == ["c1", "c2", "c4", "c5"]
        assert ids_of(store, label="billing", user_id="ada") == ["c5", "c1"]
        assert ids_of(store, label="other") == []
        page = store.list_conversations(label="billing", limit=3)
        assert [each.id for each in page.items] == ["c5", "c4", "c2"]
        rest = store.list_conversations(label="billing", limit=3, after=page.next_cursor)
        assert ([each.id for each in rest.items], rest.next_cursor) == (["c1"], None)
        back = store.list_conversations(label="billing", limit=3, before=rest.previous_cursor)
        assert [each.id for each in back.items] == ["c5", "c4", "c2"]
        assert [each.id for each in store.iter_conversations(label="billing")] == ["c5", "c4", "c2", "c1"]
        store.remove_label("c4", "billing")
        assert ids_of(store, label="billing") == ["c5", "c2", "c1"]
        store.delete_conversation("c5")
        assert ids_of(store, label="billing") == ["c2", "c1"]
        assert store.list_labels() == ["billing"]

    def test_labels_given_as_metadata_are_labels(self, store: Driver) -> None:
        store.create_conversation("a", metadata={"hansard.labels": ["x"]})
        store.append("b", [Message("user", "1")], metadata={"hansard.labels": ["x", "y"]})
        store.create_conversation("c")
        store.update_conversation("c", metadata={"hansard.labels": ["x"]})
        assert set(ids_of(store, label="x")) == {"a", "b", "c"}
        store.update_conversation("c", metadata={"hansard.labels": None})
        assert set(ids_of(store, label="x")) == {"a", "b"}
        assert store.list_labels() == ["x", "y"]

    def test_a_list_by_rating_finds_what_is_rated_now(self, store: Driver) -> None:
        first, second = (say(store, name, "1")[0] for name in ("a", "b"))
        store.rate("a", first.id, -1, by="ada")
        store.rate("b", second.id, 1, by="ada")
        store.append("c", [Message("assistant", "2", ratings=(Rating(-1),))])
        assert set(ids_of(store, rating=-1)) == {"a", "c"}
        store.add_label("a", "x")
        assert ids_of(store, rating=-1, label="x") == ["a"]
        store.rate("a", first.id, 1, by="ada")
        assert set(ids_of(store, rating=1)) == {"a", "b"}
        assert ids_of(store, rating=-1.0) == ["c"]
        store.remove_rating("b", second.id, by="ada")
        assert ids_of(store, rating=1) == ["a"]

    def test_a_search_filters_by_label_and_rating(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        (message,) = store.get_messages("c0")
        store.add_label("c0", "later", message_id=message.id)
        store.rate("c0", message.id, 1)
        assert {hit.conversation.id for hit in store.search("lamp", label="billing")} == {"c1", "c2", "c4", "c5"}
        assert [hit.conversation.id for hit in store.search("lamp", label="later")] == ["c0"]
        assert [hit.conversation.id for hit in store.search("lamp", rating=1)] == ["c0"]
        assert list(store.search("lamp", rating=1, label="billing")) == []
        hits = store.search("lamp", label="billing", order="newest", limit=3)
        assert [hit.conversation.id for hit in hits] == ["c5", "c4", "c2"]
        rest = store.search("lamp", label="billing", order="newest", limit=3, cursor=hits.next_cursor)
        assert [hit.conversation.id for hit in rest] == ["c1"]

    def test_a_view_sees_and_gives_only_its_own(self, store: Driver) -> None:
        (mine,) = say(store, "ada's", "1", user_id="ada")
        (theirs,) = say(store, "bob's", "1", user_id="bob")
        ada = store.user("ada")
        store.add_label("bob's", "secret")
        store.rate("bob's", theirs.id, 1, by="ada")
        for call in (
            lambda: ada.rate("bob's", theirs.id, 1),
            lambda: ada.add_label("bob's", "x"),
            lambda: ada.remove_label("bob's", "secret"),
            lambda: ada.add_label("bob's", "x", message_id=theirs.id),
        ):
            with pytest.raises(ConversationNotFound):
                call()
        with pytest.raises(ValidationError):
            ada.rate("ada's", mine.id, 1, by="bob")
        assert opinions(ada.rate("ada's", mine.id, 1)) == {"ada": 1}
        assert ids_of(ada, label="secret") == []
        assert ids_of(ada, rating=1) == ["ada's"]
        assert ada.list_labels() == []
        assert set(ids_of(store, rating=1)) == {"ada's", "bob's"}

    def test_erasing_a_user_takes_the_ratings_that_the_user_gave(self, store: Driver) -> None:
        (message,) = say(store, "bob's", "1", user_id="bob")
        (other,) = say(store, "unowned", "1")
        for id, rated in (("bob's", message), ("unowned", other)):
            store.rate(id, rated.id, 1, by="ada", comment="written by ada")
            store.rate(id, rated.id, -1, by="bob")
        store.append("third", [Message("user", "1", "m", ratings=(Rating(1, "ada"),))])
        store.erase_user("ada")
        assert opinions(store.get_message("bob's", message.id)) == {"bob": -1}
        assert opinions(store.get_message("unowned", other.id)) == {"bob": -1}
        assert store.get_message("third", "m").ratings == ()
        assert ids_of(store, rating=1) == []
        assert not [each for each in store.records.iter(["hansard"]) if "ada" in each.namespace]
