"""Operations: how they use their transaction, and that they may be run again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from tests.operations import CountingStorage, OptimisticStorage, OptimisticTransaction, RepeatingStorage, said, session

from hansard import rules, sync
from hansard.backends.memory import MemoryBackend, MemoryStorage
from hansard.backends.memory.tenant import MemoryTenant
from hansard.backends.shared import optimistic
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.stored import StoredBackend
from hansard.blocking import run_to_end
from hansard.contract.types import Append, Context, Draft, NewConversation, RecordWrite, Restore, RestoredRow
from hansard.errors import Conflict, Corrupt, MessageNotFound, TimedOut, Unsupported, ValidationError
from hansard.model import Appended, Conversation, Receipt
from hansard.rules import operations
from hansard.testing import Clock

CONTEXT = Context("default", Clock().now)

GETS = {
    "append": 1,
    "create_branch": 2,
    "create_conversation": 0,
    "delete_branch": 1,
    "delete_conversation": 0,
    "drop_conversation": 0,
    "put_summary": 0,
    "remove_messages": 2,
    "replace_messages": 2,
    "restore": 1,
    "update_conversation": 0,
    "update_message": 1,
}
"""How often each operation asks, at most: on a server each time is a round trip. Two is the limit of the contract."""


def test_how_often_operations_ask_and_apply() -> None:
    storage = CountingStorage()
    copy = copy_of_a_conversation()
    for rows in (copy.rows[:1], copy.rows):
        run_to_end(StoredBackend(storage).restore(CONTEXT, structs.replace(copy, rows=rows, done=False)))
    run_to_end(
        storage.write(CONTEXT, copy.image.conversation.id, partial(operations.drop_conversation, if_expired=False))
    )
    session(storage)
    assert {name: max(gets for gets, _ in counts) for name, counts in storage.counts.items()} == GETS
    assert set(GETS) == set(operations.__all__)
    assert max(GETS.values()) <= 2
    assert all(applies <= 1 for counts in storage.counts.values() for _, applies in counts)


def test_what_has_expired_is_dropped_without_a_tombstone() -> None:
    backend = StoredBackend(MemoryStorage())
    expiring = Conversation("c", user_id="u", expires_at=CONTEXT.now + timedelta(hours=1))
    run_to_end(backend.create_conversation(CONTEXT, expiring))

    def drop(now: datetime, *, if_expired: bool = True) -> Receipt:
        operation = partial(operations.drop_conversation, if_expired=if_expired)
        return run_to_end(backend.storage.write(Context("default", now), "c", operation))

    assert not drop(CONTEXT.now)
    assert drop(CONTEXT.now + timedelta(hours=1)).conversations == 1
    assert not drop(CONTEXT.now + timedelta(hours=1))
    assert run_to_end(backend.sweep(Context("default", CONTEXT.now + 2 * rules.TOMBSTONE_LIFE), 10)).tombstones == 0
    run_to_end(backend.create_conversation(CONTEXT, expiring))
    assert drop(CONTEXT.now, if_expired=False).branches == 1


def test_a_plain_append_asks_nothing() -> None:
    storage = CountingStorage()
    with sync.Store.over(StoredBackend(storage)) as store:
        for _ in range(2):
            store.append_message("c", "user", "hello")
    assert storage.counts["append"] == {(0, 1)}


def test_an_operation_that_is_run_twice_does_the_same_once() -> None:
    assert session(RepeatingStorage()) == session(MemoryStorage())


def test_a_remembered_state_changes_no_answer() -> None:
    assert session(OptimisticStorage()) == session(MemoryStorage())


# Deciding again


@pytest.fixture
def storage() -> OptimisticStorage:
    return OptimisticStorage()


@pytest.fixture
def store(storage: OptimisticStorage) -> Iterator[sync.Store]:
    with sync.Store.over(StoredBackend(storage), clock=Clock()) as store:
        store.append("c", [said("1"), said("2")])
        store.update_conversation("c", title="remembered")
        yield store


@pytest.fixture
def other(storage: OptimisticStorage, store: sync.Store) -> Iterator[sync.Store]:
    """Writes to the same storage, which does not notice."""
    behind = MemoryStorage()
    behind.tenants = storage.tenants
    with sync.Store.over(StoredBackend(behind), clock=Clock()) as other:
        yield other
        behind.tenants = {}


def test_a_refusal_is_decided_on_fresh_state(storage: OptimisticStorage, store: sync.Store, other: sync.Store) -> None:
    version = other.append("c", said("3")).version
    storage.runs = 0
    assert store.append("c", said("4"), expected_version=version).stored == 1, "the remembered version is lower"
    assert storage.runs == 2


def test_a_refusal_on_fresh_state_stands(storage: OptimisticStorage, store: sync.Store, other: sync.Store) -> None:
    version = other.append("c", said("3")).version
    with pytest.raises(Conflict) as raised:
        store.append("c", said("4"), expected_version=version + 1)
    assert raised.value.actual == version, "the true version, not the remembered one"


def test_what_is_missing_is_looked_for_again(store: sync.Store, other: sync.Store) -> None:
    other.create_conversation("n")
    assert store.update_conversation("n", title="found").title == "found"
    with pytest.raises(MessageNotFound):
        store.update_message("c", "9", content="x")


def test_nothing_to_do_is_decided_on_fresh_state(store: sync.Store, other: sync.Store) -> None:
    other.delete_messages("c", ["2"])
    again = store.append("c", said("2"), revive=True)
    assert again.stored == 1, "on the remembered state it is stored already"


def test_an_overtaken_write_is_decided_again(store: sync.Store, other: sync.Store) -> None:
    other.append("c", said("3"))
    assert store.append("c", said("4")).messages[0].seq == 4
    assert store.check() == []


def test_an_assumed_answer_is_checked(storage: OptimisticStorage, store: sync.Store) -> None:
    storage.runs = 0
    assert store.append("c", said("2")).stored == 0
    assert storage.runs == 2, "once in the hope that it is new"


def test_patience_ends() -> None:
    async def overtaken(_: Any) -> None:
        raise Overtaken

    async def begin(_: bool) -> OptimisticTransaction:
        return OptimisticTransaction(MemoryTenant(), CONTEXT, "c", None, is_certain=True)

    with pytest.raises(TimedOut, match="other writers kept changing conversation 'c'") as raised:
        run_to_end(optimistic.write(overtaken, begin, patience=-1))
    assert raised.value.outcome == "not_applied"


# Records with an append


def appended(storage: MemoryStorage, id: str, *records: RecordWrite) -> Appended:
    message = said(id)
    append = Append((Draft(message, "hello", 5, True),), NewConversation(), records=records)
    return run_to_end(storage.write(CONTEXT, "c", partial(operations.append, append=append)))


def test_records_commit_with_an_append() -> None:
    storage = MemoryStorage()
    write = RecordWrite(("n",), "k", {"at": 1}, conversation_id="c", expected_revision=0)
    appended(storage, "1", write)
    assert [each.value if each else None for each in run_to_end(storage.get_records(CONTEXT, [(("n",), "k")]))] == [
        {"at": 1}
    ]
    with pytest.raises(Conflict):
        appended(storage, "2", write)
    backend = StoredBackend(storage)
    assert run_to_end(backend.find_messages(CONTEXT, "c", ["2"])) == [], "neither is stored"
    appended(storage, "1", structs.replace(write, value=2, expected_revision=1))
    assert [each.revision if each else 0 for each in run_to_end(storage.get_records(CONTEXT, [(("n",), "k")]))] == [2]


def test_a_record_of_another_conversation_is_refused() -> None:
    storage = MemoryStorage()
    with pytest.raises(ValidationError, match="names conversation 'd'"):
        appended(storage, "1", RecordWrite(("n",), "k", 1, conversation_id="d"))
    assert run_to_end(storage.stats(None)).conversations == 0


# Restoring


def copy_of_a_conversation() -> Restore:
    source = MemoryBackend()
    with sync.Store.over(source) as store:
        store.append("copied", [said("1"), said("2")])
        store.branch("copied", at="1", branch_id="side")
        image = run_to_end(source.read_image(CONTEXT, "copied"))
        rows = run_to_end(source.read_rows(CONTEXT, "copied", 0, 100, 10**6))
    assert image is not None
    drafts = tuple(RestoredRow(row.segment, Draft(row.message, "hello", 5, True)) for row in rows)
    return Restore(image, drafts, done=True)


@pytest.fixture
def copied() -> tuple[Restore, MemoryBackend]:
    """A copy, and a store that has its first piece."""
    restore, target = copy_of_a_conversation(), MemoryBackend()
    run_to_end(target.restore(CONTEXT, structs.replace(restore, rows=restore.rows[:1], done=False)))
    return restore, target


def test_a_copy_goes_on(copied: tuple[Restore, MemoryBackend]) -> None:
    restore, target = copied
    assert run_to_end(target.restore(CONTEXT, restore)) == 2
    assert [each.message.id for each in run_to_end(target.read_rows(CONTEXT, "copied", 0, 100, 10**6))] == ["1", "2"]


def test_a_copy_whose_target_was_changed(copied: tuple[Restore, MemoryBackend]) -> None:
    restore, target = copied
    with sync.Store.over(target) as store:
        store.switch_branch("copied", "main")
        store.delete_branch("copied", "side")
        with pytest.raises(Conflict, match=r"branch 'side' .* was changed during the copy"):
            run_to_end(target.restore(CONTEXT, restore))


def test_a_copy_with_a_message_that_no_branch_reads(copied: tuple[Restore, MemoryBackend]) -> None:
    restore, target = copied
    stray = structs.replace(restore.rows[1], segment=99)
    with pytest.raises(Corrupt, match="segment 99 of the copy"):
        run_to_end(target.restore(CONTEXT, structs.replace(restore, rows=(stray,))))


# What a storage does not claim


def test_what_a_storage_cannot_do_is_unsupported() -> None:
    backend = MemoryBackend()
    with pytest.raises(Unsupported, match="memory has no search index"):
        backend.reindex()
    with pytest.raises(Unsupported, match="does not group commits"):
        _ = backend.commits
    with pytest.raises(Unsupported, match="nothing to vacuum"):
        run_to_end(backend.vacuum())


def test_a_storage_may_commit_appends_its_own_way() -> None:
    storage, seen = MemoryStorage(), []

    async def append(context: Context, id: str, append: Append) -> Appended:
        seen.append(id)
        return await storage.write(context, id, partial(operations.append, append=append))

    with sync.Store.over(StoredBackend(storage, append=append)) as store:
        assert store.append("c", said("1")).stored == 1
    assert seen == ["c"]
