"""A store of one's own that fails at every call, one after another: nothing is half done, and nothing is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from tests.backends.keyvalue.failing_store import FailingStore, When
from tests.contract.keyvalue_stores import DictStore

from hansard.backends.keyvalue import KeyValueBackend
from hansard.backends.keyvalue.functions import KeyValue
from hansard.backends.keyvalue.partitions import LINGER
from hansard.backends.shared import settling
from hansard.errors import Unavailable
from hansard.model import Message, Participant, Usage
from hansard.rules import TOMBSTONE_LIFE
from hansard.store import Put
from hansard.testing import Target
from hansard.testing.clock import Clock
from hansard.testing.comparison import state
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver

Act = Callable[[Driver], Any]
ADA = Participant("user", "ada")

ACTS: dict[str, Act] = {
    "append": lambda store: store.append("c", [Message("user", "new", id="n1"), Message("user", "x", id="n2")]),
    "append that makes it": lambda store: store.append("new", Message("user", "first", id="n1"), user_id="u"),
    "append of much": lambda store: store.append("c", [Message("user", f"{n}", id=f"n{n}") for n in range(40)]),
    "append with a blob": lambda store: store.append(
        "c", Message("user", picture(2), id="n1", usage=Usage(7, model="m"), participant=ADA)
    ),
    "replace_messages": lambda store: store.replace_messages("c", [Message("user", "new", id="n1")]),
    "update_message": lambda store: store.update_message("c", "m1", content=picture(3)),
    "delete_message": lambda store: store.delete_message("c", "blob"),
    "clear_messages": lambda store: store.clear_messages("c"),
    "update_conversation": lambda store: store.update_conversation("c", title="new", user_id="v"),
    "delete_conversation": lambda store: store.delete_conversation("c"),
    "branch": lambda store: store.branch("c", at="m20", branch_id="side"),
    "add_summary": lambda store: store.add_summary("c", "short", from_seq=1, to_seq=2),
    "append with records": lambda store: store.append(
        "c", Message("user", "new", id="n1"), records=[Put(["n"], "k", 2), Put(["n"], "l", 3, conversation_id="c")]
    ),
    "append that makes it with records": lambda store: store.user("w").append(
        "new", Message("user", "new", id="n1"), records=[Put(["n"], "l", 3, conversation_id="new")]
    ),
    "records": lambda store: store.records.write([Put(["n"], "k", 2), Put(["n"], "l", 3, conversation_id="c")]),
}


def prepare(store: Driver) -> None:
    batch = [Message("user", f"text {number}", id=f"m{number}") for number in range(40)]
    store.append("c", batch, user_id="u")
    store.append("c", Message("user", picture(1), id="blob", participant=ADA, usage=Usage(1, model="m")))
    store.append("d", Message("user", "other", id="x"))
    store.records.put(["n"], "k", 1, conversation_id="c")
    store.user("u").records.put(["n"], "k", 1)


@contextmanager
def opened(store: KeyValue, clock: Clock) -> Iterator[Driver]:
    async def make(_: bool) -> KeyValueBackend:
        return KeyValueBackend(store, durability="none")

    target = Target(make)
    try:
        yield target.open("blocking", clock=clock)
    finally:
        target.close()


def whole(store: Driver) -> Any:
    return state(store), store.usage(), [each.id for each in store.list_conversations(archived=None).items]


@pytest.fixture
def before(clock: Clock) -> DictStore:
    kept = DictStore()
    with opened(kept, clock) as store:
        prepare(store)
    return kept


@pytest.fixture
def clock() -> Clock:
    stopped = Clock()
    stopped.now = datetime.now(UTC)  # marks and fences have the real time
    stopped.stop()
    return stopped


def copy_of(store: DictStore) -> DictStore:
    copied = DictStore()
    for key, (value, _) in store.values.items():
        copied.put(key, value, None)
    return copied


def assert_nothing_is_left_over(kept: DictStore, clock: Clock) -> None:
    """After everything was deleted and swept, no key is left: there are no orphans."""
    with opened(kept, clock) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
        store.purge()
        assert [key for key in kept.values if "/mark/" in key] == []
        store.admin.delete_tenant("default")
        clock.advance(TOMBSTONE_LIFE + LINGER)
        store.purge()
    assert list(kept.values) == []


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("act", ACTS)
def test_every_call_may_fail(before: DictStore, clock: Clock, act: str, when: When) -> None:
    with opened(copy_of(before), clock) as store:
        untouched = whole(store)
        ACTS[act](store)
        done = whole(store)
    start = clock.now
    for number in range(1, 1000):
        clock.now = start
        kept = copy_of(before)
        failing = FailingStore(kept, number, when)
        error: Unavailable | None = None
        with opened(failing, clock) as store:
            try:
                ACTS[act](store)
            except Unavailable as raised:
                error = raised
        with opened(kept, clock) as store:
            seen = whole(store)
            assert seen in (untouched, done), (number, failing.calls[-1])
            if error is None:
                assert seen == done, f"acknowledged after {failing.calls}"
            elif error.outcome == "not_applied":
                assert seen == untouched, f"{error} after {failing.calls}"
            assert store.check() == [], failing.calls
        assert_nothing_is_left_over(kept, clock)
        if number > len(failing.calls):
            return
    raise AssertionError("it never got through")


def test_a_retry_is_safe_wherever_it_failed(before: DictStore, clock: Clock) -> None:
    messages = [Message("user", f"{n}", id=f"n{n}", usage=Usage(1, model="m")) for n in range(3)]
    with opened(copy_of(before), clock) as store:
        store.append("c", messages)
        done = whole(store)
    for number in range(1, 100):
        kept = copy_of(before)
        failing = FailingStore(kept, number, "after")
        with opened(failing, clock) as store:
            try:
                store.append("c", messages)
            except Unavailable:
                store.append("c", messages)
        with opened(kept, clock) as store:
            assert whole(store) == done, failing.calls
        if not failing.has_failed:
            return
    raise AssertionError("it never got through")
