"""Two processes over one store of one's own: what the second does between two calls of the first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.backends.keyvalue.meddling_store import MeddlingStore
from tests.contract.keyvalue_stores import DictStore

from hansard import sync
from hansard.backends.keyvalue import KeyValue, KeyValueBackend
from hansard.backends.keyvalue.keys import hashed
from hansard.backends.keyvalue.partitions import LINGER
from hansard.backends.shared import settling
from hansard.errors import Unavailable
from hansard.model import Message
from hansard.store import Put
from hansard.testing.clock import Clock

YEAR = timedelta(days=365)


@pytest.fixture
def kept() -> DictStore:
    return DictStore()


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime.now(UTC))


@pytest.fixture
def other(kept: DictStore, clock: Clock) -> Iterator[sync.Store]:
    """The other process, which is never disturbed."""
    with over(kept, clock) as store:
        yield store


def over(store: KeyValue, clock: Clock) -> sync.Store:
    return sync.Store.over(KeyValueBackend(store, durability="none"), clock=clock)


def contents(store: sync.Store, id: str) -> list[Any]:
    return [message.content for message in store.iter_messages(id)]


def test_owners_are_counted_while_their_records_are_stored_anew(
    kept: DictStore, other: sync.Store, clock: Clock
) -> None:
    batch = [Put(["n"], f"k{number}", number) for number in range(200)]
    other.records.write(batch)
    meddling = MeddlingStore(kept, "get", "/space/", lambda: other.records.write(batch))
    with over(meddling, clock) as store:
        assert store.stats().records == 200
    assert meddling.has_meddled


@pytest.mark.parametrize("how", ["erase_user", "delete_tenant"])
def test_a_conversation_that_moves_in_the_listing_is_deleted(
    kept: DictStore, other: sync.Store, clock: Clock, how: str
) -> None:
    for number in range(3):
        other.append_message(f"c{number}", "user", "x", user_id="ann")
    meddling = MeddlingStore(kept, "list", "/list/", lambda: other.append_message("c1", "user", "y"))
    with over(meddling, clock) as store:
        receipt = store.erase_user("ann") if how == "erase_user" else store.admin.delete_tenant("default")
        assert (receipt.conversations, receipt.messages) == (3, 4)
    assert meddling.has_meddled
    assert other.list_conversations().items == []


def test_a_write_is_not_given_up_by_a_clock_that_is_ahead(kept: DictStore, other: sync.Store, clock: Clock) -> None:
    other.append("c", [Message("user", f"{number}") for number in range(100)])

    def purge() -> None:
        with over(kept, Clock(clock.now + YEAR)) as ahead:
            ahead.purge()

    meddling = MeddlingStore(kept, "put", "/mark/", purge)
    with over(meddling, clock) as store:
        store.append_message("c", "user", "last")
    assert meddling.has_meddled
    assert contents(other, "c")[-1] == "last"
    assert other.check() == []


def test_an_overdue_write_is_given_up_and_made_again(
    kept: DictStore, other: sync.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.append("c", [Message("user", f"{number}") for number in range(100)])

    def purge() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
            other.purge()

    meddling = MeddlingStore(kept, "put", "/list/", purge)
    with over(meddling, clock) as store:
        store.append("c", [Message("user", f"{number}") for number in range(100, 200)])
    assert meddling.has_meddled
    assert contents(other, "c") == [f"{number}" for number in range(200)]
    assert other.check() == []
    assert [key for key in kept.values if "/mark/" in key] == []


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_repeated_put_that_others_overtook_is_stored_once(
    kept: DictStore, other: sync.Store, clock: Clock, is_plain: bool
) -> None:
    """A client repeats a put whose answer got lost, and is told that the head has another token by now."""
    if is_plain:
        clock.stop()  # no place in a listing changes, so there is nothing to settle
    other.append_message("c", "user", "before")

    def overtake() -> None:
        for number in range(3):
            other.append_message("c", "user", f"theirs {number}")

    meddling = MeddlingStore(kept, "put", "/head/", overtake, loses_answer=True)
    with over(meddling, clock) as store:
        store.append_message("c", "user", "mine")
    assert meddling.has_meddled
    assert contents(other, "c") == ["before", "mine", "theirs 0", "theirs 1", "theirs 2"]


@pytest.mark.parametrize("part", ["/mark/", "/bound/", "/space/"])
def test_a_record_goes_with_a_conversation_that_is_deleted_while_it_is_put(
    kept: DictStore, other: sync.Store, clock: Clock, part: str
) -> None:
    other.append_message("c", "user", "x")
    meddling = MeddlingStore(kept, "put", part, lambda: other.delete_conversation("c"))
    with over(meddling, clock) as store:
        store.records.put(["n"], "k", "secret", conversation_id="c")
        assert meddling.has_meddled
        assert store.stats().records == 0
        store.records.put(["n"], "k", "kept")
    assert [key for key in kept.values if "/bound" in key or "/mark/" in key] == []
    assert b"secret" not in b"".join(value for value, _ in kept.values.values())


def test_a_record_that_lost_its_conversation_goes_with_a_sweep_if_its_writer_dies(
    kept: DictStore, other: sync.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.append_message("c", "user", "x")
    meddling = MeddlingStore(kept, "put", "/mark/", lambda: other.delete_conversation("c"))

    async def die(*_: Any) -> int:
        raise Unavailable("the process has come to its end")

    with over(meddling, clock) as store:
        backend = store.backend
        assert isinstance(backend, KeyValueBackend)
        monkeypatch.setattr(backend.storage.partitions, "drop_bound", die)
        with pytest.raises(Unavailable):
            store.records.put(["n"], "k", "secret", conversation_id="c")
    assert other.stats().records == 1
    other.purge()
    assert other.stats().records == 0
    assert b"secret" not in b"".join(value for value, _ in kept.values.values())


def test_nothing_keeps_the_name_of_an_erased_user(kept: DictStore, other: sync.Store, clock: Clock) -> None:
    other.append_message("c", "user", "x", user_id="ann")
    ann = other.user("ann")
    ann.records.put(["n"], "ann's", 1, conversation_id="c", expires_at=YEAR)
    ann.append("c", Message("user", "y"), records=[Put(["n"], "ann's too", 2, conversation_id="c", expires_at=YEAR)])
    other.update_conversation("c", user_id="ben")
    other.erase_user("ann")
    assert [key for key in kept.values if "/bound/" in key or "/record/" in key] == []
    clock.advance(LINGER)
    other.purge()
    assert [key for key, (value, _) in kept.values.items() if hashed("ann") in key or b"ann" in value] == []
    assert contents(other, "c") == ["x", "y"]


def test_records_are_found_by_their_conversation_until_they_go(kept: DictStore, other: sync.Store) -> None:
    other.append("c", Message("user", "x"), records=[Put(["n"], f"k{n}", n, conversation_id="c") for n in range(3)])
    other.records.put(["n"], "k0", "anew", conversation_id="c")
    other.records.delete(["n"], "k1")
    assert len([key for key in kept.values if "/bound/" in key]) == 2, "one for each write of which records are left"
    assert other.delete_conversation("c").records == 2
    assert [key for key in kept.values if "/bound/" in key] == []


# Records that are written with messages


def test_a_reader_sees_both_or_neither(kept: DictStore, other: sync.Store, clock: Clock) -> None:
    """Looked at before and after each call of the write."""
    other.append("c", Message("user", "0"), records=[Put(["n"], "k", 0)])

    def look() -> tuple[int, Any]:
        record = other.records.get(["n"], "k")
        return len(contents(other, "c")), record.value if record else None

    class Watched(DictStore):
        def __init__(self) -> None:
            super().__init__()
            self.values = kept.values
            self.seen: list[tuple[int, Any]] = []

        def put(self, key: str, value: bytes, expected_token: int | None) -> int | None:
            self.seen.append(look())
            token = kept.put(key, value, expected_token)
            self.seen.append(look())
            return token

    watched = Watched()
    with over(watched, clock) as store:
        store.append("c", Message("user", "1"), records=[Put(["n"], "k", 1)])
    assert sorted(set(watched.seen)) == [(1, 0), (2, 1)]
    assert watched.seen == sorted(watched.seen), "nobody sees the old after the new"


@pytest.mark.parametrize("part", ["/space/", "/head/"])
def test_a_writer_of_records_passes_one_that_has_died(
    kept: DictStore, other: sync.Store, clock: Clock, part: str
) -> None:
    """It died with its root pending, or right after its head was swapped."""
    other.append("c", Message("user", "0"), records=[Put(["n"], "k", 0)])

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    with over(MeddlingStore(kept, "put", part, die), clock) as store, pytest.raises(Died):
        store.append("c", Message("user", "1"), records=[Put(["n"], "k", 1)])
    happened = part == "/head/"
    record = other.records.get(["n"], "k")
    assert record is not None
    assert (record.value, len(contents(other, "c"))) == ((1, 2) if happened else (0, 1))
    assert other.records.put(["n"], "k", 2).revision == (3 if happened else 2)
    assert other.check() == []


def test_a_slow_writer_of_both_begins_again_when_others_wrote_the_records(
    kept: DictStore, other: sync.Store, clock: Clock
) -> None:
    other.records.put(["n"], "k", 0)
    meddling = MeddlingStore(kept, "put", "/space/", lambda: other.records.put(["n"], "k", "theirs"))
    with over(meddling, clock) as store:
        store.append("c", Message("user", "1"), records=[Put(["n"], "k", "mine")])
    record = other.records.get(["n"], "k")
    assert record is not None
    assert (record.value, record.revision) == ("mine", 3)
    assert contents(other, "c") == ["1"]
    assert [key for key in kept.values if "/mark/" in key] == []
