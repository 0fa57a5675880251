"""Promise 13: views are walls. Every public method is called through a view that must not read a conversation: its data
must not change, nor appear in a result or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import ConversationNotFound, Denied, HansardError, NotFound, ValidationError
from hansard.model import Message, Participant, Usage
from hansard.testing.comparison import facts, state
from hansard.testing.contract.base import Contract, contents, history, require, say
from hansard.testing.contract.blobs import data, picture
from hansard.testing.contract.calls import BRANCH, CALLS, ID, MESSAGE, OWNER, supported
from hansard.testing.targets import Driver

SECRET = "XYZZY"

VIEWS: dict[str, Callable[..., Driver]] = {
    "another tenant": lambda store, name="eve": store.tenant(name),
    "another user": lambda store, name="eve": store.user(name),
    "another tenant's user": lambda store, name="eve": store.tenant(f"of-{name}").user(OWNER),
}


def store_a_secret(store: Driver) -> None:
    """Stores a conversation with the secret in every field and every kind of data."""
    who = Participant("user", "bob", SECRET)
    messages = [
        Message("user", SECRET, id=MESSAGE, participant=who, usage=Usage(7, model=SECRET), metadata={"a": SECRET}),
        Message("user", picture(1)),
    ]
    store.append(ID, messages, user_id=OWNER, title=SECRET, metadata={"a": SECRET})
    if store.capabilities.branches:
        store.branch(ID, at=MESSAGE, branch_id=BRANCH)
        store.switch_branch(ID, "main")
    store.add_summary(ID, SECRET, from_seq=1, to_seq=1)
    store.rate(ID, MESSAGE, 7, by=SECRET, comment=SECRET)
    store.add_label(ID, SECRET, message_id=MESSAGE)
    store.add_label(ID, SECRET)
    if store.capabilities.records:
        store.add_member(ID, "carl")
        for view in (store, store.user(OWNER)):
            view.records.put(["n"], "k", SECRET)
            view.records.put(["n"], SECRET, SECRET, conversation_id=ID)


class TestWalls(Contract):
    needs = ("our ids",)

    def test_no_method_reads_or_changes_another_view(self, store: Driver, subtests: pytest.Subtests) -> None:
        store_a_secret(store)
        before = self._hidden_state(store)
        described = store.get_conversation(ID)
        for number, name in enumerate(each for each in CALLS if supported(store, each)):
            with subtests.test(name):
                for kind, view in VIEWS.items():
                    shown: Any
                    try:
                        shown = facts(CALLS[name](view(store, f"eve-{number}")))
                    except HansardError as error:
                        shown = [str(error), error.details]
                    assert SECRET not in repr(shown), kind
                # Its version: any change of the conversation is found here. All of the owner's data is compared once.
                assert store.get_conversation(ID) == described
        assert self._hidden_state(store) == before
        assert history(store, ID) == [SECRET, picture(1)]

    def _hidden_state(self, store: Driver) -> Any:
        """Returns the owner's data; removes first what the other views have created in the tenant."""
        for each in store.list_conversations(archived=None).items:
            if each.user_id != OWNER:
                store.delete_conversation(each.id)
        return state(store), state(store.user(OWNER))

    @pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
    def test_errors_do_not_show_whether_a_conversation_exists(
        self, store: Driver, view: Callable[[Driver], Driver]
    ) -> None:
        store_a_secret(store)
        outside = view(store)
        for call in (
            lambda id: outside.update_conversation(id, title="x"),
            lambda id: outside.append(id, Message("user", "x"), create=False),
            lambda id: outside.replace_messages(id, []),
            lambda id: outside.update_message(id, MESSAGE, content="x"),
            lambda id: outside.get_message(id, MESSAGE),
            lambda id: outside.get_messages(id, after=MESSAGE),
            outside.fork,
            lambda id: outside.rate(id, MESSAGE, 1),
            lambda id: outside.remove_rating(id, MESSAGE),
            lambda id: outside.add_label(id, "x"),
            lambda id: outside.remove_member(id, "carl"),
            lambda id: outside.remove_label(id, "x", message_id=MESSAGE),
            lambda id: outside.add_summary(id, "x", from_seq=1, to_seq=1),
        ):
            errors = []
            for id in (ID, "never"):
                with pytest.raises(NotFound) as refused:
                    call(id)
                errors.append((type(refused.value), str(refused.value).replace(id, "…"), refused.value.details))
            assert errors[0] == errors[1], "the error shows that the conversation exists"

    def test_another_users_id_cannot_be_taken(self, store: Driver) -> None:
        store_a_secret(store)
        eve = store.user("eve")
        for write in (
            lambda: eve.append(ID, Message("user", "x")),
            lambda: eve.append_message(ID, "user", "x"),
            lambda: eve.create_conversation(ID),
            lambda: eve.fork(say(eve, "mine", "x")[0].conversation_id, new_id=ID),
        ):
            with pytest.raises(ConversationNotFound):
                write()
        assert history(store, ID) == [SECRET, picture(1)]

    def test_a_cursor_of_another_view_reads_nothing(self, store: Driver) -> None:
        store_a_secret(store)
        say(store, "newer", "x", user_id=OWNER)
        cursor = store.get_message(ID, MESSAGE).cursor
        listing = store.list_conversations(limit=1).next_cursor
        for view in VIEWS.values():
            assert view(store).get_messages(ID, after=cursor) == []
            assert view(store).list_conversations(after=listing).items == []
            if store.capabilities.records:
                records = store.records.scan(limit=1).next_cursor
                assert view(store).records.scan(after=records).items == []

    def test_filters_show_nothing_of_another_user(self, store: Driver) -> None:
        store_a_secret(store)
        eve = store.user("eve")
        with pytest.raises(ValidationError):
            eve.list_conversations(user_id=OWNER)
        assert eve.list_conversations(metadata={"a": SECRET}).items == []
        with pytest.raises(ValidationError):
            say(eve, "mine", "x", user_id=OWNER)
        with pytest.raises(ValidationError):
            eve.create_conversation("mine", user_id=OWNER)

    def test_a_view_cannot_open_another_view(self, store: Driver) -> None:
        for view in (store.tenant("a"), store.user("u"), store.tenant("a").user("u")):
            with pytest.raises(Denied):
                view.tenant("b")
            with pytest.raises(Denied):
                _ = view.admin
            with pytest.raises(Denied):
                view.backup("x")
        for view in (store.user("u"), store.tenant("a").user("u")):
            with pytest.raises(Denied):
                view.user("v")
            for call in (view.stats, view.check):
                with pytest.raises(Denied):
                    call()
            assert view.user("u").user_id == "u"

    def test_closing_a_view_leaves_the_store_open(self, store: Driver) -> None:
        store.user("u").close()
        store.tenant("t").close()
        say(store, "c", "x")
        assert history(store, "c") == ["x"]

    def test_a_user_reads_only_blobs_of_their_messages(self, store: Driver) -> None:
        require(store, "blobs")
        store_a_secret(store)
        ref = store.get_messages(ID, blobs="refs")[1].blobs[0]
        mine = say(store.user("eve"), "mine", "x")[0]
        with pytest.raises(NotFound):
            store.tenant("evil").blobs.get(ref.sha256)
        with pytest.raises(Denied):
            store.user("eve").blobs.get(ref.sha256)
        for conversation, message in ((ID, MESSAGE), ("mine", mine.id)):
            with pytest.raises(NotFound):
                store.user("eve").blobs.get(ref.sha256, conversation_id=conversation, message_id=message)
        id = store.get_messages(ID)[1].id
        assert store.user(OWNER).blobs.get(ref.sha256, conversation_id=ID, message_id=id) == data(1)

    def test_equal_blobs_of_two_tenants_are_independent(self, store: Driver) -> None:
        require(store, "blobs")
        for tenant in ("one", "two"):
            say(store.tenant(tenant), "c", picture(1))
        assert store.tenant("one").delete_conversation("c").blobs == 1, "another tenant's use does not count"
        assert history(store.tenant("two"), "c") == [picture(1)]

    def test_a_change_of_owner_moves_the_conversation_to_the_new_view(self, store: Driver) -> None:
        say(store.user("u"), "c", "x")
        store.update_conversation("c", user_id="v")
        assert store.user("u").get_conversation("c") is None
        assert contents(store.user("v").get_messages("c")) == ["x"]
        assert [each.id for each in store.user("v").list_conversations().items] == ["c"]
        with pytest.raises(ValidationError):
            store.user("v").update_conversation("c", user_id="u")
        with pytest.raises(ValidationError):
            store.user("v").update_conversation("c", user_id=None)

    def test_no_user_sees_a_conversation_without_an_owner(self, store: Driver) -> None:
        say(store, "c", "x")
        assert store.user("u").get_conversation("c") is None
        with pytest.raises(ConversationNotFound):
            say(store.user("u"), "c", "y")
        assert history(store, "c") == ["x"]

    def test_a_user_sees_only_their_usage(self, store: Driver) -> None:
        store_a_secret(store)
        assert [row.input_tokens for row in store.user(OWNER).usage()] == [7]
        assert store.user("eve").usage() == []
        assert store.tenant("evil").usage() == []

    def test_a_user_has_full_use_of_their_conversations(self, store: Driver) -> None:
        """In a user's view, every permitted call works as in the whole store."""
        store_a_secret(store)
        eve = store.user("eve")
        say(eve, "mine", "a", "b")
        found = store.get_conversation("mine")
        assert found is not None
        assert found.user_id == "eve"
        assert history(eve, "mine") == ["a", "b"]
        assert eve.update_conversation("mine", title="t", user_id="eve").title == "t"
        assert history(eve, eve.fork("mine", new_id="copy").id) == ["a", "b"]
        assert sorted(each.id for each in eve.list_conversations().items) == ["copy", "mine"]
        assert eve.delete_conversation("mine").messages == 2
