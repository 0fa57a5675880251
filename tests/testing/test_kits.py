"""The kits that the suite is built of: strategies, faults, writers in processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli import shell

from hansard.errors import Unavailable
from hansard.model import Message
from hansard.store import Put
from hansard.testing import Driver, Target, facts, processes, strategies
from hansard.testing.faults import Fault, faulty, strikes
from hansard.testing.writer import Job

GIVEN_BY_THE_STORE = frozenset({"id", "conversation_id", "seq", "branch", "created_at", "format", "blobs"})


@pytest.fixture
def store() -> Iterator[Driver]:
    target = Target("memory://")
    yield target.open()
    target.close()


# Strategies


@given(st.lists(strategies.messages(ids=strategies.ids()), min_size=1, max_size=3, unique_by=lambda each: each.id))
@settings(deadline=None)
def test_the_store_takes_every_message(messages: list[Message]) -> None:
    target = Target("memory://")
    stored = target.open().append("c", messages).messages
    assert facts(stored, leave_out=GIVEN_BY_THE_STORE) == facts(messages, leave_out=GIVEN_BY_THE_STORE)
    target.close()


@given(strategies.records())
@settings(deadline=None)
def test_the_store_takes_every_record(record: Put) -> None:
    target = Target("memory://")
    written = target.open().records.put(record.namespace, record.key, record.value)
    assert facts(written.value) == facts(record.value)
    target.close()


# Faults


def test_a_fault_strikes_once_and_says_what_is_known(store: Driver) -> None:
    for when, outcome, stored in (("before", "not_applied", 0), ("after", "unknown", 1)):
        fault = Fault(at=2, when=when)  # type: ignore[arg-type]
        struck = store.over_backend(faulty(store.backend, fault))
        struck.get_messages(when)
        with pytest.raises(Unavailable) as refused:
            struck.append_message(when, "user", "x")
        assert refused.value.outcome == outcome
        assert (fault.calls, fault.struck) == (2, "append")
        assert len(struck.get_messages(when)) == stored
        assert fault.calls == 3


def test_a_fault_that_is_not_due_changes_nothing(store: Driver) -> None:
    struck = store.over_backend(faulty(store.backend, Fault()))
    struck.append_message("c", "user", "x")
    assert struck.capabilities == store.capabilities
    assert struck.check() == []


def test_every_call_is_struck_before_and_after(store: Driver) -> None:
    def act(each: Driver) -> None:
        each.append_message("c", "user", "x", id="m")
        each.get_messages("c")

    found = [(strike.fault.when, strike.fault.struck) for strike in strikes(store, lambda each: None, act)]
    assert found == [("before", "append"), ("after", "append"), ("before", "get_messages"), ("after", "get_messages")]


def test_an_error_that_is_swallowed_is_noticed(store: Driver) -> None:
    def careless(each: Driver) -> None:
        try:
            each.append_message("c", "user", "x")
        except Unavailable:
            return

    with pytest.raises(AssertionError, match="append failed without an error"):
        list(strikes(store, lambda each: None, careless))


# Processes


def job(name: str = "w", **options: Any) -> Job:
    given = {"conversations": ["c", "d"], "batch": 2, "batches": None, "tasks": 0, "starts": {}}
    return Job("memory://", name, **{**given, **options})


def writer(acknowledged: int) -> processes.Writer:
    """What a writer says after it has ended: nothing was started."""
    return cast(processes.Writer, SimpleNamespace(job=job(), acknowledged={"w": acknowledged}))


def written(store: Driver, *numbers: int) -> None:
    for number in numbers:
        store.append(job().home(number), job().messages("w", number))


def test_what_was_acknowledged_must_be_there(store: Driver) -> None:
    written(store, 0, 1, 2)
    processes.verify(store, [writer(3)])
    with pytest.raises(AssertionError, match=r"lost batches \[3\]"):
        processes.verify(store, [writer(4)])
    with pytest.raises(AssertionError, match="has more than it wrote"):
        processes.verify(store, [writer(2)])
    processes.verify(store, [writer(2)], at_rest=False)
    with pytest.raises(AssertionError, match="has more than it wrote"):
        processes.verify(store, [writer(1)], at_rest=False)


def test_a_torn_batch_is_noticed(store: Driver) -> None:
    written(store, 0, 2)
    store.delete_message("c", "w.0.1")
    with pytest.raises(AssertionError, match="torn"):
        processes.verify(store, [writer(3)])
    store.append("c", Message("user", "x", id="stray"))
    with pytest.raises(AssertionError, match="torn"):
        processes.verify(store, [writer(3)])


def test_a_batch_out_of_order_is_noticed(store: Driver) -> None:
    written(store, 2, 0, 1)
    with pytest.raises(AssertionError, match="out of order"):
        processes.verify(store, [writer(3)])


def test_a_batch_in_the_wrong_place_is_noticed(store: Driver) -> None:
    store.append("d", job().messages("w", 0))
    with pytest.raises(AssertionError, match="is stored in d"):
        processes.verify(store, [writer(1)])


def test_the_streams_of_a_job() -> None:
    assert job().streams() == ["w"]
    assert job(tasks=2).streams() == ["w0", "w1"]
    assert list(job(batches=3, starts={"w": 4}).numbers("w")) == [4, 5, 6]
    assert [message.id for message in job(batch=2).messages("w", 3)] == ["w.3.0", "w.3.1"]


def test_a_writer_that_fails_is_shown() -> None:
    broken = processes.Writer("nonsense://", "w", batches=1)
    with pytest.raises(AssertionError, match="unknown scheme"):
        broken.wait()


def test_a_temporary_target_goes_with_its_folder(temporary: Path) -> None:
    target = Target.temporary("sqlite:///{folder}/a.db")
    (folder,) = temporary.glob("hansard-*")
    for text in ("a", "b"):
        target.open().append_message("c", "user", text)
        target.close()
    assert len(target.open().get_messages("c")) == 2
    target.discard()
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes are not forked")
def test_writers_and_commands_are_forked_with_their_modules_imported() -> None:
    """Python has one fork server for a process: neither of the two may replace the modules of the other."""
    assert vars(shell)["CONTEXT"] is processes.CONTEXT
    wanted = ["hansard.testing.writer", "hansard.backends.postgres", "hansard.cli.app"]
    code = f"import sys; sys.exit([name for name in {wanted} if name not in sys.modules] or None)"
    child = processes.CONTEXT.Process(target=exec, args=(code, {}))
    child.start()
    child.join(processes.PATIENCE)
    assert child.exitcode == 0
