"""`erase_user`: the user's conversations, messages in others, records and usage; nothing of other users."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.errors import Denied
from hansard.model import Message, Participant, Usage
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, assert_exact, history, require, require_folder, say
from hansard.testing.targets import Driver, Target

ADA = Participant("user", "ada")


def by(who: Participant, text: str) -> Message:
    return Message("user", text, participant=who, usage=Usage(1, model="m"))


def fill(store: Driver) -> None:
    store.append("ada's", [by(ADA, "mine"), by(Participant("user", "bob"), "bob's")], user_id="ada")
    store.append("ada's second", [by(ADA, "mine")], user_id="ada")
    store.update_conversation("ada's second", archived=True)
    bob = Participant("user", "bob")
    # An agent may have the same id: it is not the user.
    store.append(
        "bob's", [by(bob, "1"), by(ADA, "2"), by(Participant("agent", "ada"), "3"), by(ADA, "4")], user_id="bob"
    )
    store.append("unowned", [by(ADA, "only ada's")])


class TestEraseUser(Contract):
    def test_erasing_removes_everything_of_the_user_and_nothing_else(self, store: Driver) -> None:
        fill(store)
        if store.capabilities.records:
            store.user("ada").records.put(["n"], "k", 1)
            store.user("bob").records.put(["n"], "k", 2)
            store.records.put(["n"], "k", 3)
        receipt = store.erase_user("ada")
        assert (receipt.conversations, receipt.messages) == (2, 6)
        assert receipt.usage_rows == 1
        assert store.get_conversation("ada's") is None
        assert store.get_conversation("ada's second") is None
        assert history(store, "bob's") == ["1", "3"]
        assert history(store, "unowned") == []
        for conversation in ("bob's", "unowned"):
            assert_exact(store, conversation)
        assert {row.user_id for row in store.usage()} == {"bob", None}
        if store.capabilities.records:
            assert receipt.records == 1
            assert store.user("ada").records.get(["n"], "k") is None
            for view, value in ((store.user("bob"), 2), (store, 3)):
                record = view.records.get(["n"], "k")
                assert record is not None
                assert record.value == value

    def test_erasing_again_finds_nothing(self, store: Driver) -> None:
        fill(store)
        store.erase_user("ada")
        assert not store.erase_user("ada")
        assert not store.erase_user("never there")

    def test_erasing_leaves_other_tenants_alone(self, store: Driver) -> None:
        fill(store)
        fill(store.tenant("acme"))
        store.tenant("acme").erase_user("ada")
        assert history(store, "ada's") == ["mine", "bob's"]
        assert history(store, "bob's") == ["1", "2", "3", "4"]

    def test_erasing_removes_hundreds_of_messages(self, store: Driver) -> None:
        for conversation in ("c", "d"):
            store.append(conversation, [by(ADA if n % 3 else Participant("user", "bob"), str(n)) for n in range(150)])
        assert store.erase_user("ada").messages == 200
        assert len(history(store, "d")) == 50
        assert_exact(store, "d")

    def test_erasing_removes_messages_from_every_branch(self, store: Driver) -> None:
        require(store, "branches")
        first, _ = store.append("c", [by(Participant("user", "bob"), "1"), by(ADA, "2")]).messages
        store.branch("c", at=first.id)
        store.append("c", [by(ADA, "3")])
        assert store.erase_user("ada").messages == 2
        assert history(store, "c", branch="main") == ["1"]
        assert_exact(store, "c")

    @pytest.mark.parametrize("how", ["store", "tenant", "user"])
    def test_erasing_removes_what_has_expired(self, store: Driver, clock: Clock, how: str) -> None:
        # Catches an erasure of visible data only: expired data is invisible, but still stored.
        acme = store if how == "store" else store.tenant("acme")
        ada = acme.user("ada") if how == "user" else acme
        fill(acme)
        for conversation in ("ada's", "ada's second", "bob's", "unowned"):
            acme.update_conversation(conversation, expires_at=clock.now + HOUR)
        say(acme, "eve's", "stays until it is swept", user_id="eve", expires_at=clock.now + HOUR)
        clock.advance(2 * HOUR)
        receipt = ada.erase_user("ada")
        assert (receipt.conversations, receipt.messages) == (2, 6)
        assert not ada.erase_user("ada")
        assert acme.stats().messages == 3, "bob's two messages and eve's one"
        assert store.purge().messages == 3

    @pytest.mark.parametrize("how", ["store", "tenant", "user"])
    def test_erased_content_is_gone_from_the_files_even_if_expired(
        self, target: Target, store: Driver, clock: Clock, how: str
    ) -> None:
        require(store, "durability")
        require_folder(target)
        secret = f"secret-xyzzy-{'q' * 40}"
        acme = store if how == "store" else store.tenant("acme")
        ada = acme.user("ada") if how == "user" else acme
        options: dict[str, Any] = {"expires_at": clock.now + HOUR}
        say(acme, "c", f"1{secret}", user_id="ada", title=f"2{secret}", metadata={"k": f"3{secret}"}, **options)
        acme.append("bob's", [by(ADA, f"4{secret}"), by(Participant("user", "bob"), "stays")], user_id="bob", **options)
        if store.capabilities.records:
            acme.records.put(["n"], "k", f"5{secret}", conversation_id="c")
        clock.advance(2 * HOUR)
        receipt = ada.erase_user("ada")
        store.close()
        raw = target.raw()
        assert b"stays" in raw
        assert not receipt.physically_gone or secret.encode() not in raw

    def test_a_user_may_erase_only_themselves(self, store: Driver) -> None:
        fill(store)
        with pytest.raises(Denied):
            store.user("bob").erase_user("ada")
        assert history(store, "ada's") == ["mine", "bob's"]
        assert store.user("ada").erase_user("ada").conversations == 2

    def test_a_replay_does_not_restore_erased_messages(self, store: Driver) -> None:
        require(store, "our ids")
        spool = Message("user", "2", id="m", participant=ADA)
        store.append("bob's", [Message("user", "1"), spool], user_id="bob")
        store.erase_user("ada")
        with pytest.raises(Exception, match="deleted"):
            store.append("bob's", spool)
        assert history(store, "bob's") == ["1"]
