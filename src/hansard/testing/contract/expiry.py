"""Expired conversations are invisible at once and purged later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hansard.errors import ConversationNotFound
from hansard.model import Message
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, assert_exact, history, require, require_folder, say
from hansard.testing.targets import Driver, Mode, Target

TICK = timedelta(microseconds=1)


class TestExpiry(Contract):
    def expired(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "x", "y", title="old", user_id="u", expires_at=clock.now + HOUR)
        say(store, "stays", "z", user_id="u")
        if store.capabilities.records:
            store.records.put(["n"], "k", 1, conversation_id="c")
        clock.advance(2 * HOUR)

    def test_a_conversation_expires_exactly_at_expires_at(self, store: Driver, clock: Clock) -> None:
        clock.stop()
        store.create_conversation("c", expires_at=clock.now + HOUR)
        clock.advance(HOUR - TICK)
        assert store.get_conversation("c") is not None
        clock.advance(TICK)
        assert store.get_conversation("c") is None

    def test_an_expired_conversation_is_invisible_at_once(self, store: Driver, clock: Clock) -> None:
        self.expired(store, clock)
        assert store.get_conversation("c") is None
        assert store.get_messages("c") == []
        assert history(store, "c") == []
        assert store.window("c") == []
        assert store.list_branches("c") == []
        assert store.list_summaries("c") == []
        assert [each.id for each in store.list_conversations(archived=None).items] == ["stays"]
        assert [each.id for each in store.user("u").list_conversations().items] == ["stays"]
        if store.capabilities.records:
            assert store.records.get(["n"], "k") is None
            assert store.records.scan(["n"]).items == []

    def test_an_expired_conversation_cannot_be_written(self, store: Driver, clock: Clock) -> None:
        self.expired(store, clock)
        with pytest.raises(ConversationNotFound):
            store.append("c", Message("user", "x"), create=False)
        with pytest.raises(ConversationNotFound):
            store.update_conversation("c", expires_at=None)
        with pytest.raises(ConversationNotFound):
            store.replace_messages("c", [])
        with pytest.raises(ConversationNotFound):
            store.add_summary("c", "x", from_seq=1, to_seq=1)
        with pytest.raises(ConversationNotFound):
            store.fork("c")
        assert not store.clear_messages("c")
        assert not store.delete_conversation("c")

    @pytest.mark.parametrize("how", ["append", "create"])
    def test_the_id_of_an_expired_conversation_may_be_used_again(self, store: Driver, clock: Clock, how: str) -> None:
        self.expired(store, clock)
        if how == "create":
            store.create_conversation("c")
        say(store, "c", "new")
        found = store.get_conversation("c")
        assert found is not None
        assert (found.title, found.user_id, found.expires_at, found.version) == (None, None, None, 1)
        assert history(store, "c") == ["new"]
        if store.capabilities.records:
            assert store.records.get(["n"], "k") is None, "records of the old one do not belong to the new one"
        store.purge()
        assert history(store, "c") == ["new"]
        assert_exact(store, "c")

    def test_purge_deletes_expired_conversations(self, store: Driver, clock: Clock) -> None:
        self.expired(store, clock)
        receipt = store.purge()
        assert (receipt.conversations, receipt.messages) == (1, 2)
        assert receipt.records == (1 if store.capabilities.records else 0)
        assert store.stats().conversations == 1
        assert not store.purge()
        assert store.check() == []

    def test_purge_of_the_store_covers_all_tenants(self, store: Driver, clock: Clock) -> None:
        for tenant in ("one", "two"):
            self.expired(store.tenant(tenant), clock)
        assert store.tenant("one").purge().conversations == 0, "a view purges nothing of other tenants"
        assert store.purge().conversations == 2
        assert history(store.tenant("two"), "stays") == ["z"]

    def test_sweep_reports_whether_more_is_left(self, store: Driver, clock: Clock) -> None:
        for number in range(12):
            say(store, f"c{number}", "x", expires_at=clock.now + HOUR)
        clock.advance(2 * HOUR)
        gone = calls = 0
        more = True
        while more:
            swept = store.run(store.backend.sweep(store.context(), 5))
            gone, more, calls = gone + swept.receipt.conversations, swept.more, calls + 1
            assert calls < 50, "sweep always reports more"
        assert gone == 12
        assert store.stats().conversations == 0

    def test_expiry_may_be_postponed(self, store: Driver, clock: Clock) -> None:
        say(store, "c", "x", expires_at=clock.now + HOUR)
        say(store, "d", "x", expires_at=clock.now + HOUR)
        store.update_conversation("c", expires_at=clock.now + 5 * HOUR)
        store.update_conversation("d", expires_at=None)
        clock.advance(2 * HOUR)
        store.purge()
        assert history(store, "c") == history(store, "d") == ["x"]
        clock.advance(9 * HOUR)
        assert store.get_conversation("c") is None
        assert history(store, "d") == ["x"]

    def test_purged_content_is_gone_from_the_files(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        require(store, "durability")
        require_folder(target)
        secret = f"secret-xyzzy-{'q' * 40}"
        say(store, "c", secret, expires_at=clock.now + HOUR)
        clock.advance(2 * HOUR)
        receipt = store.purge()
        store.close()
        assert not receipt.physically_gone or secret.encode() not in target.raw()
        assert target.open(mode, clock=clock).get_conversation("c") is None
