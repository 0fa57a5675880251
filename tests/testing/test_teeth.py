"""The suite notices: each broken backend fails the test that is there for it, and `memory` passes that very test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from tests.testing import broken

from hansard.backend import Backend
from hansard.backends.memory import MemoryBackend
from hansard.testing import Clock, Colour, Driver, Target, contract
from hansard.testing.contract.calls import CALLS
from hansard.testing.contract.conversations import TestListing as Listing
from hansard.testing.machine import compare_with_memory
from hansard.testing.targets import Factory

Broken = type[MemoryBackend]

CAUGHT: list[tuple[Broken, str, dict[str, Any]]] = [
    (broken.OrdersByTime, "TestOrder.test_backfilled_history_sorts_by_time_when_asked", {}),
    (broken.ReusesSeq, "TestOrder.test_seq_is_never_used_twice", {}),
    (
        broken.RoundsTimes,
        "TestOrder.test_the_writers_time_is_kept_to_the_microsecond",
        {"written": Clock().now.replace(microsecond=7)},
    ),
    (broken.TearsBatches, "TestBatches.test_writers_at_once_do_not_interleave", {"colour": "async"}),
    (broken.TearsBatches, "TestBatches.test_a_conflict_stores_nothing", {"colour": "async"}),
    (broken.StoresTwice, "TestDuplicates.test_the_same_message_again_is_the_stored_one", {}),
    (broken.IgnoresVersions, "TestVersions.test_another_version_changes_nothing", {"write": "append"}),
    (broken.IgnoresVersions, "TestVersions.test_only_one_of_many_wins", {}),
    (broken.RefusesRetries, "TestDuplicates.test_a_retry_succeeds_whatever_the_expected_version", {}),
    (broken.Miscounts, "TestCounts.test_after_every_kind_of_write", {}),
    (broken.GuessesHasMore, "TestPaging.test_forwards", {"order": "asc", "place": lambda m: m.id, "limit": 5}),
    (broken.IgnoresBytes, "TestPaging.test_pages_are_bounded_in_bytes", {}),
    (broken.ForgetsFilters, "TestFilters.test_each_filter", {"given": "between"}),
    (broken.SharesValues, "TestReadYourWrites.test_nothing_is_shared_with_callers", {}),
    (broken.CountsFlushes, "TestVersions.test_what_does_not_count", {}),
    (broken.IgnoresUsers, "TestWalls.test_no_method_crosses", {"call": "Store.get_message"}),
    (broken.IgnoresTenants, "TestWalls.test_no_method_crosses", {"call": "Records.scan"}),
    (broken.TellsInErrors, "TestWalls.test_what_is_behind_looks_as_if_it_were_not_there", {"view": "user"}),
    (broken.NeverExpires, "TestExpiry.test_invisible_at_once", {}),
    (broken.KeepsRecords, "TestDeleteConversation.test_takes_everything", {}),
    (broken.ForgetsTombstones, "TestTombstones.test_a_deleted_message_does_not_come_back_by_a_replay", {}),
    (broken.KeepsSummaries, "TestSummaries.test_a_deleted_message_takes_those_that_cover_it", {}),
    (broken.LeaksIntoBranches, "TestBranches.test_at_the_end_and_from_nothing", {}),
    (broken.ScansByText, "TestScans.test_in_order", {"prefix": ("a",), "key_prefix": "", "expected": "a"}),
    (broken.WritesRecordsOneByOne, "TestRecords.test_a_batch_is_all_or_nothing", {}),
    (broken.ForgetsUsage, "TestUsage.test_what_was_deleted_still_counts", {}),
    (broken.PagesByOffset, "TestListing.test_deletes_between_pages", {}),
    (broken.WorksWhenClosed, "TestClosing.test_nothing_works_afterwards", {"call": "Store.get_messages"}),
    (broken.SortsKeys, "TestVerbatim.test_content", {"content": {"z": 1, "a": 2}}),
]

# What cannot be written in the table, because it is made by the suite.
MADE: dict[tuple[str, Any], Any] = {
    ("given", "between"): {
        "since": contract.filters.FILTERS["between"][0]["since"],
        "until": contract.filters.FILTERS["between"][0]["until"],
    },
    ("expected", "a"): ["a/1", "a/2", "a/b/1", "a/b/c/1"],
    ("view", "user"): contract.walls.VIEWS["another user"],
}


def factory(kind: Broken) -> Factory:
    async def make(blocking: bool) -> Backend:
        return kind()

    return make


def run(kind: Broken, test: str, arguments: dict[str, Any]) -> None:
    """Runs one test of the contract on a backend, as pytest would."""
    arguments = {
        name: MADE.get((name, value), value) if isinstance(value, str) else value for name, value in arguments.items()
    }
    colour: Colour = arguments.pop("colour", "blocking")
    clock, target = Clock(), Target(factory(kind))
    store = target.open(colour, clock=clock)
    name, _, method = test.partition(".")
    suite: Any = getattr(contract, name)()
    call: Callable[..., None] = getattr(suite, method)
    known = {"store": store, "clock": clock, "target": target, "colour": colour, **arguments}
    if test == "TestFilters.test_each_filter":
        known["picks"] = contract.filters.FILTERS["between"][1]
    try:
        call(**{name: known[name] for name in inspect.signature(call).parameters})
    finally:
        target.close()


@pytest.mark.parametrize(("kind", "test", "arguments"), CAUGHT, ids=lambda each: getattr(each, "__name__", None))
def test_a_broken_backend_is_caught(kind: Broken, test: str, arguments: dict[str, Any]) -> None:
    run(MemoryBackend, test, dict(arguments))
    with pytest.raises((AssertionError, pytest.fail.Exception, Exception)) as caught:
        run(kind, test, dict(arguments))
    assert not isinstance(caught.value, TypeError | AttributeError | KeyError), "the test itself is broken"


def test_every_broken_backend_is_tried() -> None:
    kinds = {each for _, each in inspect.getmembers(broken, inspect.isclass) if issubclass(each, MemoryBackend)}
    assert kinds - {MemoryBackend} - {broken.NeverWakes} == {kind for kind, _, _ in CAUGHT}


def test_a_tail_that_never_wakes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.testing.contract.watching.PATIENCE", 0.1)
    run(MemoryBackend, "TestWatch.test_as_it_arrives", {})
    with pytest.raises(TimeoutError):
        run(broken.NeverWakes, "TestWatch.test_as_it_arrives", {})


@pytest.mark.parametrize("kind", [broken.LeaksIntoBranches, broken.OrdersByTime, broken.ScansByText])
def test_the_machine_finds_it_too(kind: Broken) -> None:
    case = compare_with_memory(lambda: Target(factory(kind)))
    case.settings = settings(max_examples=60, stateful_step_count=30, derandomize=True, database=None, deadline=None)
    with pytest.raises(Exception, match="(?s)memory: .*backend: |AssertionError|counts"):
        case("runTest").runTest()


def test_the_table_of_calls_names_real_methods() -> None:
    assert Listing is contract.TestListing
    for name in CALLS:
        part, _, method = name.partition(".")
        owner = {"Store": Driver}.get(part) or getattr(__import__("hansard.sync", fromlist=[part]), part)
        assert callable(getattr(owner, method))
