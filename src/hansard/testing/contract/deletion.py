"""Promise 11: a deletion removes everything derived, returns a receipt, and is not undone by a replay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hansard import rules
from hansard.errors import Conflict, MessageNotFound
from hansard.model import Message, Receipt
from hansard.testing.clock import Clock
from hansard.testing.comparison import state
from hansard.testing.contract.base import (
    DAY,
    HOUR,
    Contract,
    assert_exact,
    history,
    require,
    require_folder,
    say,
    version_of,
)
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver, Mode, Target


class TestDeleteConversation(Contract):
    def test_deleting_a_conversation_deletes_everything_derived_from_it(self, store: Driver) -> None:
        messages = say(store, "c", "a", "b", picture(1), user_id="u_1")
        say(store, "other", "stays")
        expected = Receipt(conversations=1, messages=3, branches=1)
        if store.capabilities.branches:
            store.branch("c", branch_id="side")
            say(store, "c", "x")
            expected = Receipt(conversations=1, messages=4, branches=2)
        store.add_summary("c", "s", from_seq=messages[0].seq, to_seq=messages[1].seq)
        if store.capabilities.records:
            for key in ("k", "l"):
                store.records.put(["of", "c"], key, key, conversation_id="c")
            store.records.put(["of", "c"], "free", 1)
        receipt = store.delete_conversation("c")
        assert (receipt.conversations, receipt.messages, receipt.branches, receipt.summaries) == (
            1,
            expected.messages,
            expected.branches,
            1,
        )
        if store.capabilities.records:
            assert receipt.records == 2
            assert [record.key for record in store.records.iter()] == ["free"]
        if store.capabilities.blobs:
            assert receipt.blobs == 1
            assert store.stats().blobs == 0
        self.assert_nothing_is_left(store)
        assert history(store, "other") == ["stays"]

    def assert_nothing_is_left(self, store: Driver) -> None:
        assert store.get_conversation("c") is None
        assert store.get_messages("c") == []
        assert store.list_branches("c") == []
        assert store.list_summaries("c") == []
        assert [each.id for each in store.list_conversations(archived=None).items] == ["other"]
        assert store.stats().conversations == 1
        assert store.check() == []

    def test_deleting_a_missing_conversation_has_an_empty_receipt(self, store: Driver) -> None:
        receipt = store.delete_conversation("missing")
        assert not receipt
        assert receipt == Receipt(at=receipt.at, physically_gone=receipt.physically_gone)

    def test_the_id_of_a_deleted_conversation_may_be_used_again(self, store: Driver) -> None:
        say(store, "c", "a", "b", title="old", metadata={"k": 1})
        store.delete_conversation("c")
        say(store, "c", "new")
        found = store.get_conversation("c")
        assert found is not None
        assert (found.title, found.metadata, found.message_count, found.version) == (None, {}, 1, 1)
        assert history(store, "c") == ["new"]
        assert_exact(store, "c")

    def test_a_physically_gone_conversation_is_gone_from_the_files(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        """No file contains what a receipt reports as physically gone."""
        require(store, "durability")
        require_folder(target)
        secrets = [f"{word}-xyzzy-{'q' * 40}" for word in ("message", "title", "metadata", "summary", "record")]
        message, title, metadata, summary, record = secrets
        stored = say(store, "c", message, title=title, metadata={"k": metadata})[0]
        store.add_summary("c", summary, from_seq=stored.seq, to_seq=stored.seq)
        if store.capabilities.records:
            store.records.put(["n"], "k", record, conversation_id="c")
        say(store, "other", "stays-xyzzy")
        store.close()
        assert message.encode() in target.raw(), "the files must be readable, or the test proves nothing"
        again = target.open(mode, clock=clock)
        receipt = again.delete_conversation("c")
        again.close()
        assert b"stays-xyzzy" in target.raw()
        if receipt.physically_gone:
            assert [secret for secret in secrets if secret.encode() in target.raw()] == []
        else:
            pytest.skip("its receipts say that deleted data may still be in its files")

    def test_a_deleted_message_is_gone_from_the_files(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        require(store, "durability")
        require_folder(target)
        secret = f"secret-xyzzy-{'q' * 40}"
        stored = say(store, "c", "before-xyzzy", secret, "after-xyzzy")[1]
        receipt = store.delete_message("c", stored.id)
        store.close()
        assert b"after-xyzzy" in target.raw()
        assert not receipt.physically_gone or secret.encode() not in target.raw()

    def test_deleting_at_another_version_is_a_conflict(self, store: Driver) -> None:
        require(store, "compare_and_swap")
        say(store, "c", "a")
        version = version_of(store, "c")
        say(store, "c", "b")
        before = state(store)

        def delete(expected_version: int, id: str = "c") -> Receipt:
            return store.run(store.backend.delete_conversation(store.context(), id, expected_version))

        with pytest.raises(Conflict) as refused:
            delete(version)
        assert (refused.value.expected, refused.value.actual) == (version, version + 1)
        assert state(store) == before
        assert delete(version + 1).messages == 2
        assert not delete(version + 1)
        assert not delete(0, "missing")


class TestTombstones(Contract):
    needs = ("our ids",)

    def test_a_replay_does_not_restore_a_deleted_message(self, store: Driver) -> None:
        spool = [Message("user", text, id=text) for text in "abc"]
        store.append("c", spool)
        store.delete_message("c", "b")
        before = state(store)
        with pytest.raises(Conflict):
            store.append("c", spool)
        assert state(store) == before
        store.append("c", [spool[0], spool[2]])
        assert history(store, "c") == ["a", "c"]

    def test_revive_restores_a_deleted_message(self, store: Driver) -> None:
        store.append("c", Message("user", "x", id="m"))
        store.delete_message("c", "m")
        assert store.append("c", Message("user", "x", id="m"), revive=True).stored == 1
        assert history(store, "c") == ["x"]
        assert_exact(store, "c")

    def test_a_snapshot_does_not_restore_a_deleted_message(self, store: Driver) -> None:
        messages = [Message("user", text, id=text) for text in "abc"]
        store.append("c", messages)
        store.delete_message("c", "b")
        before = state(store)
        with pytest.raises(Conflict):
            store.replace_messages("c", messages)
        assert state(store) == before
        store.replace_messages("c", messages, revive=True)
        assert history(store, "c") == ["a", "b", "c"]
        assert_exact(store, "c")

    def test_a_snapshot_may_contain_a_revived_message(self, store: Driver) -> None:
        say(store, "c", "a")
        store.append("c", Message("user", "b", id="b"))
        store.delete_message("c", "b")
        store.append("c", Message("user", "b", id="b"), revive=True)
        stored = store.get_messages("c")
        store.replace_messages("c", [stored[1], stored[0]])
        assert history(store, "c") == ["b", "a"]

    def test_another_users_deletion_is_not_visible(self, store: Driver, clock: Clock) -> None:
        # A refused replay would show eve that another user had a conversation with that id.
        require(store, "our times")
        spool = [Message("user", "x", id="m", created_at=clock.now)]
        store.user("ada").append("c", spool)
        clock.advance(HOUR)
        store.user("ada").delete_conversation("c")
        with pytest.raises(Conflict):
            store.user("ada").append("c", spool)
        with pytest.raises(Conflict):
            store.append("c", spool)
        store.user("eve").append("c", spool)
        assert history(store.user("eve"), "c") == ["x"]

    def test_updating_a_deleted_message_is_not_found(self, store: Driver) -> None:
        store.append("c", Message("assistant", "", id="m", status="in_progress"))
        store.delete_message("c", "m")
        with pytest.raises(MessageNotFound):
            store.update_message("c", "m", content="more", status="complete")

    def test_a_replay_does_not_restore_a_deleted_conversation(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        spool = [Message("user", "x", id="m", created_at=clock.now)]
        store.append("c", spool)
        clock.advance(HOUR)
        store.delete_conversation("c")
        with pytest.raises(Conflict):
            store.append("c", spool)
        assert store.get_conversation("c") is None
        store.append("c", Message("user", "new", created_at=clock.advance(HOUR)))
        assert history(store, "c") == ["new"]

    @pytest.mark.parametrize("how", ["append", "create"])
    def test_a_replay_into_a_conversation_created_again_is_refused(self, store: Driver, clock: Clock, how: str) -> None:
        require(store, "our times")
        spool = [Message("user", "x", id="m", created_at=clock.now)]
        store.append("c", spool, user_id="u")
        clock.advance(HOUR)
        store.delete_conversation("c")
        if how == "create":
            store.create_conversation("c", user_id="u")
        store.append("c", Message("user", "new"), user_id="u")
        for each in (store, store.user("u")):
            with pytest.raises(Conflict, match="was deleted at"):
                each.append("c", spool)
            with pytest.raises(Conflict, match="was deleted at"):
                each.replace_messages("c", spool)
        assert history(store, "c") == ["new"]
        store.append("c", spool, revive=True)
        assert history(store, "c") == ["new", "x"]

    def test_revive_or_create_restores_a_deleted_conversation(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        spool = [Message("user", "x", id="m", created_at=clock.now)]
        for conversation in ("c", "d"):
            store.append(conversation, spool)
        clock.advance(HOUR)
        for conversation in ("c", "d"):
            store.delete_conversation(conversation)
        store.append("c", spool, revive=True)
        assert history(store, "c") == ["x"]
        assert store.create_conversation("d").message_count == 0

    def test_a_deletion_by_a_slower_clock_keeps_the_later_time(self, store: Driver, clock: Clock) -> None:
        require(store, "our times")
        say(store, "c", "x")
        clock.advance(2 * HOUR)
        store.delete_conversation("c")
        spool = [Message("user", "x", id="m", created_at=clock.now - HOUR)]
        clock.advance(-2 * HOUR)
        store.create_conversation("c")
        store.delete_conversation("c")
        clock.advance(3 * HOUR)
        with pytest.raises(Conflict):
            store.append("c", spool)
        assert store.get_conversation("c") is None

    def test_the_tombstone_of_a_message_expires(self, store: Driver, clock: Clock) -> None:
        store.append("c", [Message("user", "x", id="m"), Message("user", "y", id="n")])
        store.delete_message("c", "m")
        clock.advance(rules.TOMBSTONE_LIFE - DAY)
        store.purge()
        with pytest.raises(Conflict):
            store.append("c", Message("user", "x", id="m"))
        clock.advance(2 * DAY)
        store.purge()
        store.append("c", Message("user", "x", id="m"))
        assert history(store, "c") == ["y", "x"]

    def test_the_tombstone_of_a_conversation_expires(self, store: Driver, clock: Clock) -> None:
        # Catches a storage that caches its last lookup of a tombstone.
        require(store, "our times")
        spool = [Message("user", "x", id="m", created_at=clock.now)]
        store.append("c", spool)
        clock.advance(HOUR)
        store.delete_conversation("c")
        say(store, "c", "new")
        with pytest.raises(Conflict):
            store.append("c", spool)
        clock.advance(HOUR)
        store.append("c", Message("user", "later", created_at=clock.now))
        clock.advance(rules.TOMBSTONE_LIFE)
        store.purge()
        store.append("c", spool)
        assert history(store, "c") == ["new", "later", "x"]


class TestPurge(Contract):
    def fill(self, store: Driver, clock: Clock) -> None:
        for number in range(5):
            say(store, f"c{number}", "x", "y", user_id=f"u{number % 2}")
            clock.advance(DAY)

    def left(self, store: Driver) -> list[str]:
        return [each.id for each in store.list_conversations(order="asc", archived=None).items]

    def test_purge_by_updated_takes_conversations_older_than_an_age(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        store.update_conversation("c1", archived=True)
        preview = store.purge(timedelta(days=2.5), by="updated", dry_run=True)
        assert (preview.conversations, preview.messages) == (2, 4)
        assert len(self.left(store)) == 5
        receipt = store.purge(timedelta(days=2.5), by="updated")
        assert (receipt.conversations, receipt.messages) == (2, 4)
        assert self.left(store) == ["c1", "c3", "c4"], "an update counts as activity"
        assert not store.purge(timedelta(days=2.5), by="updated")
        clock.advance(10 * DAY)
        assert store.purge(DAY).conversations == 3, "archived ones included"

    def test_purge_excludes_the_given_time(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        third = store.get_conversation("c2")
        assert third is not None
        assert third.last_message_at is not None
        store.purge(third.last_message_at)
        assert self.left(store) == ["c2", "c3", "c4"], "the time itself is excluded"

    def test_purge_goes_by_the_last_message_unless_asked_otherwise(self, store: Driver, clock: Clock) -> None:
        # Catches a purge by the time of import: an imported archive would never be old enough.
        require(store, "our times")
        long_ago = clock.now - 100 * DAY
        store.append("imported", Message("user", "old", created_at=long_ago))
        store.create_conversation("empty")
        assert not store.purge(DAY, by="updated")
        assert self.left(store) == ["imported", "empty"]
        assert store.purge(DAY, dry_run=True).conversations == 1
        assert store.purge(DAY).conversations == 1
        assert self.left(store) == ["empty"], "one without messages counts from its creation"
        clock.advance(2 * DAY)
        store.update_conversation("empty", title="changed")
        assert not store.purge(DAY, by="updated")
        assert store.purge(DAY).conversations == 1

    def test_purge_takes_only_conversations_of_the_view(self, store: Driver, clock: Clock) -> None:
        self.fill(store, clock)
        say(store.tenant("acme"), "c0", "x")
        clock.advance(10 * DAY)
        assert store.user("u1").purge(DAY).conversations == 2
        assert self.left(store) == ["c0", "c2", "c4"]
        assert store.purge(DAY).conversations == 3
        assert self.left(store.tenant("acme")) == ["c0"]

    def test_purge_takes_more_than_a_page(self, store: Driver, clock: Clock) -> None:
        for number in range(130):
            store.create_conversation(f"c{number}")
        clock.advance(DAY)
        assert store.purge(HOUR).conversations == 130
        assert self.left(store) == []
