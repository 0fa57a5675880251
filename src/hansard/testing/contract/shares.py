"""Shares: a token shows a snapshot, of nothing deleted or written later, until it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import ConversationNotFound, Denied, NotFound
from hansard.model import Message, Participant, Share
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, contents, require, say
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver


def shown(store: Driver, share: Share) -> list[Any]:
    assert share.token is not None
    return contents(store.open_share(share.token).messages)


def ended(store: Driver, share: Share) -> bool:
    assert share.token is not None
    with pytest.raises(NotFound):
        store.open_share(share.token)
    return True


class TestShares(Contract):
    needs = ("records", "our ids")

    def test_a_share_shows_the_moment_of_sharing(self, store: Driver) -> None:
        first, second, third = say(store, "c", "1", "2", "3", user_id="ada", title="Lamps")
        share = store.user("ada").share("c")
        assert (share.message_count, share.branch, share.redacted) == (3, "main", False)
        say(store, "c", "later")
        store.rate("c", first.id, 1, by="eve")
        assert shown(store, share) == ["1", "2", "3"]
        store.update_message("c", second.id, content="changed")
        store.delete_message("c", third.id)
        assert shown(store, share) == ["1"]
        assert store.open_share(share.token or "").title == "Lamps"
        assert shown(store.tenant("default"), share) == ["1"]

    def test_a_share_shows_only_what_was_said(self, store: Driver) -> None:
        who = Participant("user", "ada@example.com", "Ada", {"phone": 1})
        messages = [
            Message("system", "be kind"),
            Message("user", "hidden", metadata={"hidden": True}),
            Message("user", "hello", participant=who, metadata={"secret": 1}, trace_id="t"),
            Message("assistant", "hi", participant=Participant("user", "bob@example.com")),
        ]
        store.append("c", messages, user_id="ada@example.com", metadata={"secret": 1})
        share = store.share("c")
        found = store.open_share(share.token or "")
        assert contents(found.messages) == ["hello", "hi"]
        for secret in ("example.com", "secret", "phone", "'t'", "be kind"):
            assert secret not in repr(found)
        assert found.messages[0].participant is not None
        assert found.messages[0].participant.display_name == "Ada"

    def test_a_share_ends(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "1", user_id="ada")
        soon, never = store.share("c", expires_at=HOUR), store.share("c")
        assert [each.id for each in store.list_shares("c")] == [soon.id, never.id]
        assert [each.token for each in store.list_shares("c")] == [None, None]
        clock.advance(2 * HOUR)
        assert ended(store, soon)
        assert shown(store, never) == ["1"]
        assert store.unshare("c", never.id)
        assert not store.unshare("c", never.id)
        assert ended(store, never)
        last = store.share("c")
        store.delete_conversation("c")
        assert ended(store, last)
        say(store, "c", "another")
        assert ended(store, last)

    def test_only_the_owner_shares(self, store: Driver) -> None:
        say(store, "c", "1", user_id="ada")
        store.add_member("c", "bob")
        share = store.user("ada").share("c")
        calls: list[Callable[[Driver], Any]] = [
            lambda view: view.share("c"),
            lambda view: view.list_shares("c"),
            lambda view: view.unshare("c", share.id),
        ]
        for call in calls:
            with pytest.raises(Denied):
                call(store.user("bob"))
            with pytest.raises(ConversationNotFound):
                call(store.user("eve"))
        assert shown(store, share) == ["1"]

    def test_the_token_is_not_stored_and_belongs_to_its_tenant(self, store: Driver) -> None:
        say(store.tenant("acme"), "c", "1")
        share = store.tenant("acme").share("c")
        assert share.token is not None
        assert share.token not in repr(list(store.tenant("acme").records.iter()))
        assert shown(store, share) == ["1"]
        assert ended(store.tenant("other"), share)
        secret = share.token.partition("~")[0]
        of_others = [secret + "~" + name for name in ("", "!", "A", "AA", "_____w", "b3RoZXI", "YWNt" * 1000)]
        for wrong in ("", "x", share.token[:-1], share.token + "x", share.token[:8], secret, *of_others):
            with pytest.raises(NotFound):
                store.open_share(wrong)

    def test_a_redacted_share_holds_nothing_that_is_deleted(self, store: Driver) -> None:
        first, _ = say(store, "c", "call Zelda 1", "call Zelda 2", title="about Zelda")
        share = store.share("c", redact=lambda text: text.replace("Zelda", "…"))
        found = store.open_share(share.token or "")
        assert (found.title, [each.text for each in found.messages]) == ("about …", ["call … 1", "call … 2"])
        assert "Zelda" not in repr(list(store.records.iter(["hansard"])))
        store.delete_message("c", first.id)
        assert [each.text for each in store.open_share(share.token or "").messages] == ["call … 2"]
        assert "… 1" not in repr(list(store.records.iter(["hansard"])))
        store.clear_messages("c")
        assert "… 2" not in repr(list(store.records.iter(["hansard"])))

    def test_another_branch_and_pictures_are_shared(self, store: Driver) -> None:
        require(store, "branches", "blobs")
        (first, _) = say(store, "c", picture(1), "2")
        store.branch("c", at=first.id, branch_id="side")
        say(store, "c", "aside")
        assert shown(store, store.share("c")) == [picture(1), "aside"]
        main = store.share("c", branch="main")
        assert shown(store, main) == [picture(1), "2"]
        with pytest.raises(NotFound):
            store.share("c", branch="nowhere")
