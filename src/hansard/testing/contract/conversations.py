"""Conversations: creating, updating, and listing in pages in both directions."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import pytest

from hansard.errors import Conflict, ConversationNotFound
from hansard.limits import Limits
from hansard.model import Conversation, Message, Order, Page
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
    rows,
    say,
    version_of,
)
from hansard.testing.targets import Driver


def ids(page: Page) -> list[str]:
    return [conversation.id for conversation in page.items]


class TestConversations(Contract):
    def test_create_stores_every_field(self, store: Driver, clock: Clock) -> None:
        expires = clock.now + HOUR
        made = store.create_conversation(
            "c", user_id="u", agent_id="a", audit_id="x", title="T", metadata={"k": [1, {}]}, expires_at=expires
        )
        expected = Conversation(
            "c",
            "u",
            "a",
            "x",
            "T",
            {"k": [1, {}]},
            created_at=made.created_at,
            updated_at=made.created_at,
            expires_at=expires,
        )
        assert facts(made) == facts(expected)
        assert facts(store.get_conversation("c")) == facts(expected)
        assert [branch.id for branch in store.list_branches("c")] == ["main"]
        assert_exact(store, "c")

    def test_creating_an_existing_conversation_is_a_conflict(self, store: Driver) -> None:
        say(store, "c", "x", title="kept")
        before = state(store)
        with pytest.raises(Conflict):
            store.create_conversation("c", title="other")
        assert state(store) == before

    @races
    def test_only_one_concurrent_create_succeeds(self, store: Driver) -> None:
        for id in ("c", "d", "e"):
            calls = [lambda each, id=id: each.create_conversation(id) for _ in range(8)]
            results = store.together(calls)
            assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 7 + ["Conversation"]

    def test_generated_ids_sort_by_creation(self, store: Driver) -> None:
        made = [store.create_conversation().id for _ in range(3)]
        assert made == sorted(set(made))
        assert all(id.startswith("conv_") for id in made)

    def test_append_creates_the_conversation_with_the_given_fields(self, store: Driver, clock: Clock) -> None:
        expires = clock.now + HOUR
        appended = store.append(
            "c",
            Message("user", "x"),
            user_id="u",
            agent_id="a",
            audit_id="x",
            title="T",
            metadata={"k": 1},
            expires_at=expires,
        )
        assert appended.created
        found = store.get_conversation("c")
        assert found is not None
        given = (found.user_id, found.agent_id, found.audit_id, found.title, found.metadata, found.expires_at)
        assert given == ("u", "a", "x", "T", {"k": 1}, expires)
        # These apply only when the call creates the conversation.
        again = store.append("c", Message("user", "y"), agent_id="b", title="U", metadata={"l": 2})
        assert not again.created
        after = store.get_conversation("c")
        assert after is not None
        assert (after.agent_id, after.title, after.metadata) == ("a", "T", {"k": 1})

    def test_create_false_refuses_a_missing_conversation(self, store: Driver) -> None:
        with pytest.raises(ConversationNotFound):
            store.append("c", Message("user", "x"), create=False)
        with pytest.raises(ConversationNotFound):
            store.append_message("c", "user", "x", create=False)
        with pytest.raises(ConversationNotFound):
            store.append("c", [], create=False)
        assert store.get_conversation("c") is None
        store.create_conversation("c")
        store.append("c", Message("user", "x"), create=False)
        assert history(store, "c") == ["x"]

    def test_the_first_named_user_becomes_the_owner(self, store: Driver) -> None:
        say(store, "c", "a")
        say(store, "c", "b", user_id="u_1")
        found = store.get_conversation("c")
        assert found is not None
        assert found.user_id == "u_1", "the user who is named first becomes the owner"
        before = state(store)
        with pytest.raises(Conflict):
            say(store, "c", "c", user_id="u_2")
        assert state(store) == before
        store.update_conversation("c", user_id="u_2")
        say(store, "c", "c", user_id="u_2")
        assert history(store, "c") == ["a", "b", "c"]

    @rows(
        ("given", "changed"),
        [
            ({"title": "T"}, {"title": "T"}),
            ({"title": None}, {"title": None}),
            ({"agent_id": "b"}, {"agent_id": "b"}),
            ({"audit_id": None}, {"audit_id": None}),
            ({"user_id": "v"}, {"user_id": "v"}),
            (
                {"metadata": {"a": 2, "new": None, "c": {"d": 1}}},
                {"metadata": {"a": 2, "b": 2, "kept": None, "c": {"d": 1}}},
            ),
            ({"metadata": {"a": None, "b": None}}, {"metadata": {"kept": None}}),
            ({}, {}),
        ],
    )
    def test_an_update_changes_only_the_given_fields(
        self, store: Driver, given: dict[str, Any], changed: dict[str, Any]
    ) -> None:
        before = store.create_conversation(
            "c", user_id="u", agent_id="a", audit_id="x", title="S", metadata={"a": 1, "b": 2, "kept": None}
        )
        after = store.update_conversation("c", **given)
        expected = Conversation(
            **{
                **{name: getattr(before, name) for name in before.__struct_fields__},
                **changed,
                "version": before.version + 1,
                "updated_at": after.updated_at,
            }
        )
        assert facts(after) == facts(expected)
        assert facts(store.get_conversation("c")) == facts(expected)

    def test_updating_a_missing_conversation_is_not_found(self, store: Driver) -> None:
        with pytest.raises(ConversationNotFound):
            store.update_conversation("missing", title="x")
        assert store.get_conversation("missing") is None

    def test_an_archived_conversation_is_listed_only_when_asked(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "x")
        say(store, "d", "y")
        now = clock.now
        archived = store.update_conversation("c", archived=True)
        assert archived.archived_at is not None
        assert archived.archived_at >= now
        assert ids(store.list_conversations()) == ["d"]
        assert ids(store.list_conversations(archived=True)) == ["c"]
        assert ids(store.list_conversations(archived=None)) == ["d", "c"]
        assert history(store, "c") == ["x"]
        assert store.update_conversation("c", archived=False).archived_at is None

    def test_a_given_created_at_is_kept_and_used_for_order_and_age(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        clock.stop()
        began = clock() - timedelta(days=400, microseconds=1)
        made = store.create_conversation("old", created_at=began.astimezone(timezone(timedelta(hours=5))))
        assert (made.created_at, made.updated_at, made.version) == (began, clock(), 0)
        found = store.get_conversation("old")
        assert found is not None
        assert found.created_at == began
        store.create_conversation("new")
        assert ids(store.list_conversations()) == ["new", "old"]
        clock.advance(timedelta(days=1))
        month = timedelta(days=30)
        assert store.purge(month, dry_run=True).conversations == 1, "its age is that of its created_at"
        assert store.purge(month, by="updated", dry_run=True).conversations == 0, "it was written recently"
        written = clock() - timedelta(days=399)
        store.append_message("old", "user", "Hello", created_at=written)
        found = store.get_conversation("old")
        assert found is not None
        assert (found.created_at, found.last_message_at) == (began, written)
        assert_exact(store, "old")
        clock.advance(timedelta(days=31))
        assert store.purge(month, by="updated").conversations == 2

    def test_iterating_lists_every_conversation_once(self, store: Driver, clock: Clock) -> None:
        small = store.again(limits=Limits(page=4))
        names = [f"c{number:02}" for number in range(12)]
        for number, name in enumerate(names):
            clock.advance(timedelta(seconds=1))
            store.create_conversation(name, user_id="u" if number % 2 == 0 else None)
        assert [each.id for each in small.iter_conversations(order="asc")] == names
        assert [each.id for each in small.iter_conversations(user_id="u", sort="updated_at")] == names[::2][::-1]
        assert list(small.iter_conversations(agent_id="nobody")) == []

    def test_auto_title_is_the_first_line_of_the_first_user_message(self, store: Driver) -> None:
        titled = store.again(auto_title=True)
        appended = titled.append("c", [Message("system", "rules"), Message("user", "  Where is my order?\nPlease.")])
        found = titled.get_conversation("c")
        assert found is not None
        assert found.title == "Where is my order?"
        assert appended.version == found.version, "the version to expect next"
        say(titled, "d", "x", title="given")
        assert [each.title for each in titled.list_conversations().items] == ["given", "Where is my order?"]

    def test_auto_title_is_set_only_by_the_first_user_message(self, store: Driver) -> None:
        titled = store.again(auto_title=True)

        def title(id: str) -> str | None:
            found = titled.get_conversation(id)
            assert found is not None
            return found.title

        titled.create_conversation("c")
        say(titled, "c", "Be brief.", role="system")
        assert title("c") is None
        appended = titled.append("c", [Message("assistant", "Hello"), Message("user", "Where is it?")])
        assert title("c") == "Where is it?"
        found = titled.get_conversation("c")
        assert found is not None
        assert appended.version == found.version, "the version to expect next"
        titled.update_conversation("c", title=None)
        say(titled, "c", "And now?")
        assert title("c") is None, "a removed title is not set again"
        titled.create_conversation("given", title="Given")
        say(titled, "given", "x")
        assert title("given") == "Given"
        say(store, "old", "said before")
        say(titled, "old", "said now")
        assert title("old") is None, "its first user message was appended without auto_title"


class TestListing(Contract):
    def fill(self, store: Driver, clock: Clock) -> None:
        """Appends c0 … c9, a minute apart; agents alternate."""
        for number in range(10):
            clock.advance(timedelta(minutes=1))
            say(store, f"c{number}", "x", user_id="u", agent_id=f"a{number % 2}", metadata={"n": number, "odd": None})

    def test_conversations_are_listed_by_last_message(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        say(store, "c3", "again")
        assert ids(store.list_conversations(limit=3)) == ["c3", "c9", "c8"]
        assert ids(store.list_conversations(limit=3, order="asc")) == ["c0", "c1", "c2"]

    def test_sort_by_updated_at_counts_every_change(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        store.update_conversation("c3", title="t")
        assert ids(store.list_conversations(limit=2)) == ["c9", "c8"]
        assert ids(store.list_conversations(limit=2, sort="updated_at")) == ["c3", "c9"]

    @pytest.mark.parametrize("order", ["asc", "desc"])
    @pytest.mark.parametrize("owner", [{}, {"user_id": "u"}, {"agent_id": "a1"}], ids=["all", "user", "agent"])
    def test_pages_sorted_by_updated_at_are_complete(
        self, store: Driver, clock: Clock, order: Order, owner: dict[str, Any]
    ) -> None:
        """Mixes appends and other changes, some at the same time, some of messages with a given time."""
        self.fill(store, clock)
        for id in ("c3", "c9", "c4"):
            store.update_conversation(id, title="t")
        say(store, "c4", "again")
        store.append("c1", [Message("user", "from long ago", created_at=clock.now - HOUR)])
        clock.stop()
        store.update_conversation("c5", title="t")
        say(store, "c7", "again")
        expected = ["c0", "c2", "c6", "c8", "c3", "c9", "c4", "c1", "c5", "c7"]
        if "agent_id" in owner:
            expected = [id for id in expected if int(id[1]) % 2]
        expected = expected if order == "asc" else expected[::-1]
        page = store.list_conversations(sort="updated_at", order=order, limit=3, **owner)
        found = ids(page)
        while page.next_cursor is not None:
            page = store.list_conversations(sort="updated_at", order=order, limit=3, after=page.next_cursor, **owner)
            found += ids(page)
        assert found == expected
        back = store.list_conversations(sort="updated_at", order=order, limit=3, before=page.previous_cursor, **owner)
        assert ids(back) == expected[: -len(page.items)][-3:]

    def test_an_empty_conversation_is_listed_by_its_creation(self, store: Driver, clock: Clock) -> None:
        say(store, "old", "x")
        clock.advance(HOUR)
        store.create_conversation("empty")
        clock.advance(HOUR)
        say(store, "new", "x")
        assert ids(store.list_conversations()) == ["new", "empty", "old"]

    def test_equal_times_are_ordered_by_id(self, store: Driver, clock: Clock) -> None:
        clock.stop()
        for id in ("b", "d", "a", "c"):
            store.create_conversation(id)
        assert ids(store.list_conversations(order="asc")) == ["a", "b", "c", "d"]
        page = store.list_conversations(limit=2)
        assert ids(page) == ["d", "c"]
        assert ids(store.list_conversations(limit=2, after=page.next_cursor)) == ["b", "a"]

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_pages_are_complete_in_both_directions(self, store: Driver, clock: Clock, order: Order) -> None:
        self.fill(store, clock)
        everything = [f"c{number}" for number in range(10)]
        everything = everything if order == "asc" else everything[::-1]
        first = store.list_conversations(order=order, limit=4)
        assert first.previous_cursor is None
        second = store.list_conversations(order=order, limit=4, after=first.next_cursor)
        third = store.list_conversations(order=order, limit=4, after=second.next_cursor)
        assert ids(first) + ids(second) + ids(third) == everything
        assert third.next_cursor is None
        back = store.list_conversations(order=order, limit=4, before=third.previous_cursor)
        assert ids(back) == ids(second)
        back = store.list_conversations(order=order, limit=4, before=back.previous_cursor)
        assert ids(back) == ids(first)
        assert back.previous_cursor is None

    def test_deletions_between_pages_skip_nothing(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        first = store.list_conversations(limit=4)
        for id in ids(first):
            store.delete_conversation(id)
        assert ids(store.list_conversations(limit=4, after=first.next_cursor)) == ["c5", "c4", "c3", "c2"]

    def test_an_offset_skips_conversations(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        page = store.list_conversations(offset=7, limit=2)
        assert ids(page) == ["c2", "c1"]
        assert page.next_cursor is not None
        assert page.previous_cursor is not None
        assert ids(store.list_conversations(offset=50)) == []

    @rows(
        ("given", "expected"),
        [
            ({"agent_id": "a1"}, [9, 7, 5, 3, 1]),
            ({"user_id": "u", "agent_id": "a0"}, [8, 6, 4, 2, 0]),
            ({"user_id": "nobody"}, []),
            ({"metadata": {"n": 4}}, [4]),
            ({"metadata": {"n": 4, "missing": 1}}, []),
            ({"metadata": {"n": 4}, "agent_id": "a1"}, []),
        ],
    )
    def test_each_filter_lists_exactly_what_matches(
        self, store: Driver, clock: Clock, given: dict[str, Any], expected: list[int]
    ) -> None:
        self.fill(store, clock)
        assert ids(store.list_conversations(**given)) == [f"c{number}" for number in expected]

    @rows("value", [1, "1", True, None, 1.5, [1, 2], {"a": {"b": 1}}, "", "it's", "ü😀", 10**30])
    def test_metadata_filters_compare_values_with_their_type(self, store: Driver, value: Any) -> None:
        # Catches a filter that compares texts or drops types: "1" is not 1.
        everything: list[Any] = ["1", "", "it's", "ü😀", [1, 2], {"a": {"b": 1}}, 10**30, 1.5, False, 0, 2]
        others = [each for each in everything if facts(each) != facts(value)]
        store.create_conversation("wanted", metadata={"k": value})
        store.create_conversation("without")
        for number, other in enumerate(others):
            store.create_conversation(f"other{number}", metadata={"k": other})
        assert ids(store.list_conversations(metadata={"k": value})) == ["wanted"]

    def test_filtered_pages_are_complete(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        page = store.list_conversations(agent_id="a1", limit=2)
        found = ids(page)
        while page.next_cursor:
            page = store.list_conversations(agent_id="a1", limit=2, after=page.next_cursor)
            found += ids(page)
        assert found == ["c9", "c7", "c5", "c3", "c1"]

    def test_an_empty_store_lists_nothing(self, store: Driver) -> None:
        page = store.list_conversations()
        assert (page.items, page.next_cursor, page.previous_cursor) == ([], None, None)

    def test_listing_returns_what_get_conversation_returns(self, store: Driver) -> None:
        require(store, "branches")
        say(store, "c", "x", metadata={"a": [1]}, title="t")
        store.branch("c")
        store.add_summary("c", "short", from_seq=1, to_seq=1)
        assert facts(store.list_conversations().items) == facts([store.get_conversation("c")])
        assert contents(store.get_messages("c")) == ["x"]
        assert version_of(store, "c") == 2
