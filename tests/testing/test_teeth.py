"""The suite notices: each broken backend fails the test that is there for it, and `memory` passes that very test."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import Phase, settings
from tests.testing import broken

from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend
from hansard.errors import HansardError
from hansard.testing import Clock, Mode, Target, contract
from hansard.testing.contract import walls
from hansard.testing.machine import compare_with_memory
from hansard.testing.targets import Factory

Broken = type[MemoryBackend]

ORDINARY: dict[Broken, str] = {
    broken.OrdersByTime: "TestOrder.test_backfilled_history_sorts_by_time_when_asked",
    broken.ReusesSeq: "TestOrder.test_seq_is_never_used_twice",
    broken.StoresTwice: "TestDuplicates.test_appending_a_stored_id_returns_the_stored_message",
    broken.IgnoresVersions: "TestVersions.test_only_one_concurrent_compare_and_swap_wins",
    broken.RefusesRetries: "TestDuplicates.test_a_retry_succeeds_whatever_the_expected_version",
    broken.Miscounts: "TestCounts.test_counts_are_exact_after_every_kind_of_write",
    broken.IgnoresBytes: "TestPaging.test_pages_are_bounded_in_bytes",
    broken.SharesValues: "TestReadYourWrites.test_changing_a_passed_or_returned_object_changes_nothing_stored",
    broken.CountsFlushes: "TestVersions.test_flushes_summaries_and_records_do_not_raise_the_version",
    broken.NeverExpires: "TestExpiry.test_an_expired_conversation_is_invisible_at_once",
    broken.KeepsRecords: "TestDeleteConversation.test_deleting_a_conversation_deletes_everything_derived_from_it",
    broken.ForgetsTombstones: "TestTombstones.test_a_replay_does_not_restore_a_deleted_message",
    broken.KeepsSummaries: "TestSummaries.test_deleting_a_message_deletes_the_summaries_that_cover_it",
    broken.LeaksIntoBranches: "TestBranches.test_a_branch_shares_everything_or_nothing",
    broken.WritesRecordsOneByOne: "TestRecords.test_a_batch_is_all_or_nothing",
    broken.ForgetsUsage: "TestUsage.test_usage_of_deleted_messages_still_counts",
    broken.PagesByOffset: "TestListing.test_deletions_between_pages_skip_nothing",
    broken.SearchesEveryUser: "TestSearching.test_search_shows_nothing_of_other_views",
    broken.IndexesLate: "TestSearching.test_a_new_message_is_found_at_once",
    broken.RemembersTheDeleted: "TestSearching.test_deleted_messages_are_never_found_again",
    broken.FindsParts: "TestJudged.test_each_query_finds_exactly_the_judged_messages",
    broken.RoundsTimes: "TestOrder.test_a_given_time_is_stored_to_the_microsecond",
    broken.GuessesHasMore: "TestPaging.test_pages_forwards_are_complete_and_never_empty",
    broken.ForgetsFilters: "TestFilters.test_each_filter_returns_exactly_what_matches",
    broken.IgnoresUsers: "TestWalls.test_no_method_reads_or_changes_another_view",
    broken.IgnoresTenants: "TestWalls.test_no_method_reads_or_changes_another_view",
    broken.ScansByText: "TestScans.test_a_scan_matches_whole_namespace_parts_in_order",
    broken.WorksWhenClosed: "TestClosing.test_every_call_on_a_closed_store_raises_closed",
    broken.SortsKeys: "TestVerbatim.test_every_json_value_is_returned_unchanged",
    broken.NeverWakes: "TestWatch.test_messages_are_delivered_as_they_arrive",
}

# These are tests with arguments, or hold in one mode only.
WITH_ARGUMENTS: dict[Broken, tuple[str, dict[str, Any]]] = {
    broken.TearsBatches: ("TestBatches.test_concurrent_writers_do_not_interleave", {"mode": "async"}),
    broken.TellsInErrors: (
        "TestWalls.test_errors_do_not_show_whether_a_conversation_exists",
        {"view": walls.VIEWS["another user"]},
    ),
}

CAUGHT = {**{kind: (test, {}) for kind, test in ORDINARY.items()}, **WITH_ARGUMENTS}


class FirstFailure:
    """In the place of pytest's `subtests`: the first row that fails ends the test."""

    def test(self, label: str) -> AbstractContextManager[None]:
        return nullcontext()


def factory(kind: Broken) -> Factory:
    async def make(blocking: bool) -> Backend:
        return kind()

    return make


def run(kind: Broken, test: str, arguments: dict[str, Any]) -> None:
    """Runs one test of the contract on a backend, as pytest would."""
    mode: Mode = arguments.get("mode", "blocking")
    clock, target = Clock(), Target(factory(kind))
    store = target.open(mode, clock=clock)
    name, _, method = test.partition(".")
    call: Callable[..., None] = getattr(getattr(contract, name)(), method)
    known = {
        "store": store,
        "clock": clock,
        "target": target,
        "mode": mode,
        "subtests": FirstFailure(),
        **arguments,
    }
    try:
        call(**{name: known[name] for name in inspect.signature(call).parameters})
    finally:
        target.close()


@pytest.mark.parametrize("kind", CAUGHT, ids=lambda kind: kind.__name__)
def test_a_broken_backend_is_caught(kind: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    test, arguments = CAUGHT[kind]
    run(MemoryBackend, test, arguments)
    monkeypatch.setattr("hansard.testing.contract.watch.PATIENCE", 0.2)
    noticed = (AssertionError, pytest.fail.Exception, HansardError, TimeoutError)
    with pytest.raises(noticed):
        run(kind, test, arguments)


def test_every_broken_backend_is_tried() -> None:
    kinds = {each for _, each in inspect.getmembers(broken, inspect.isclass) if issubclass(each, MemoryBackend)}
    assert kinds - {MemoryBackend, broken.MemoryIndex} == set(CAUGHT)


@pytest.mark.parametrize("kind", [broken.OrdersByTime, broken.ScansByText, broken.Miscounts, broken.StoresTwice])
def test_the_machine_finds_it_too(kind: Broken) -> None:
    case = compare_with_memory(lambda: Target(factory(kind)))
    # Finding it is enough; making the example small would take its time.
    phases = [Phase.generate]
    case.settings = settings(max_examples=60, derandomize=True, database=None, deadline=None, phases=phases)
    with pytest.raises((AssertionError, ExceptionGroup)):
        case("runTest").runTest()
