"""Promise 12: an error says whether a write may have been applied, and never leaves half of one.

Each operation fails at every call that it makes to the backend, before and after. Where the error says that nothing was
applied, nothing has changed; and an operation that may be repeated has, after a retry, the same effect as one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from hansard.errors import NotFound
from hansard.model import Message, Participant
from hansard.search import vectors
from hansard.store import Put, vector_records
from hansard.testing.clock import Clock
from hansard.testing.comparison import state
from hansard.testing.contract.base import DAY, Contract, assert_counts, require
from hansard.testing.contract.blobs import picture
from hansard.testing.faults import Strike, strikes
from hansard.testing.targets import Driver

Act = Callable[[Driver], Any]
REPEATED = frozenset({"version", "updated_at", "revision"})
"""Fields that a repeated write may change again."""


def prepare(store: Driver) -> None:
    ada = Participant("user", "ada")
    batch = [Message("user", text, id=text, participant=ada if text == "b" else None) for text in "abc"]
    store.append("c", batch, user_id="u")
    store.append("d", [Message("user", picture(1), id="p"), Message("user", "x", id="x", participant=ada)])
    store.append("e", Message("user", "hers", id="h"), user_id="ada")
    if store.capabilities.branches:
        store.branch("c", branch_id="side", activate=False)
    if store.capabilities.records:
        store.records.put(["n"], "k", 1, conversation_id="c")


MAY_BE_REPEATED: dict[str, Act] = {
    "append": lambda store: store.append("c", [Message("user", "new", id="n1"), Message("user", picture(2), id="n2")]),
    "append that makes it": lambda store: store.append("new", Message("user", "first", id="n1"), user_id="u"),
    "append a known id with a blob": lambda store: store.append("d", Message("user", "other", id="p")),
    "replace_messages": lambda store: store.replace_messages("c", [Message("user", "new", id="n1")]),
    "update_message": lambda store: store.update_message("c", "a", content="changed"),
    "update_message with a blob": lambda store: store.update_message("d", "p", pinned=True),
    "delete_message": lambda store: store.delete_message("d", "p"),
    "clear_messages": lambda store: store.clear_messages("c"),
    "update_conversation": lambda store: store.update_conversation("c", title="new"),
    "delete_conversation": lambda store: store.delete_conversation("d"),
    "switch_branch": lambda store: store.switch_branch("c", "side"),
    "erase_user": lambda store: store.erase_user("ada"),
    "purge": lambda store: store.purge(DAY),
    "put a record": lambda store: store.records.put(["n"], "k", 2),
    "write records": lambda store: store.records.write([Put(["n"], "k", 2), Put(["n"], "l", 3, conversation_id="d")]),
}


class Lengths:
    """An embedder that needs no model."""

    name = "lengths"
    version = "1"
    dimensions = 2

    async def __call__(self, texts: Sequence[str], kind: str) -> Sequence[Sequence[float]]:
        return [[1.0, float(len(text))] for text in texts]


def prepare_embedded(store: Driver) -> None:
    prepare(store)
    if store.capabilities.branches:
        store.append("c", Message("user", "aside", id="s"), branch="side")
    store.again(tenant=store.tenant_id, embedder=Lengths()).embed()


def embedded(store: Driver) -> set[tuple[str, str]]:
    """Returns the messages with a vector, by conversation and id, as stored in the records."""
    return {
        (record.namespace[2], row.id)
        for record in store.records.iter(vector_records.VECTORS)
        if record.key != vector_records.STATE
        for row in vectors.unpack(record.value, "")
    }


REMOVED: dict[str, tuple[Act, set[tuple[str, str]]]] = {
    "erase_user": (lambda store: store.erase_user("ada"), {("c", "b"), ("d", "x"), ("e", "h")}),
    "delete_message": (lambda store: store.delete_message("c", "b"), {("c", "b")}),
    "clear_messages": (lambda store: store.clear_messages("c"), {("c", id) for id in "abcs"}),
    "replace_messages": (
        lambda store: store.replace_messages("c", [Message("user", "z", id="z")]),
        set(),
    ),
    "delete_branch": (lambda store: store.delete_branch("c", "side"), {("c", "s")}),
    "delete_conversation": (lambda store: store.delete_conversation("c"), {("c", id) for id in "abcs"}),
}

MAY_NOT_BE_REPEATED: dict[str, Act] = {
    "append without ids": lambda store: store.append("c", [Message("user", "new"), Message("user", "new")]),
    "pop_message": lambda store: store.pop_message("c"),
    "create_conversation": lambda store: store.create_conversation("new"),
    "branch": lambda store: store.branch("c", branch_id="new"),
    "delete_branch": lambda store: store.delete_branch("c", "side"),
    "add_summary": lambda store: store.add_summary("c", "short", from_seq=1, to_seq=2),
    "fork": lambda store: store.fork("c", new_id="fork"),
    "compare and swap": lambda store: store.records.put(["n"], "k", 2, expected_revision=1),
}

ACTS = {**MAY_BE_REPEATED, **MAY_NOT_BE_REPEATED}


def assert_nothing_is_half_done(strike: Strike, before: Any) -> None:
    if strike.error.outcome == "not_applied":
        assert state(strike.store) == before, strike
    else:
        for conversation in strike.store.list_conversations(archived=None).items:
            assert_counts(strike.store, conversation.id, f"{strike}")
    assert strike.store.check() == [], strike


class TestFaults(Contract):
    needs = ("our ids", "records", "branches")

    @pytest.mark.parametrize("act", [*MAY_BE_REPEATED, *MAY_NOT_BE_REPEATED])
    def test_a_fault_leaves_nothing_half_done_and_may_be_retried(self, store: Driver, clock: Clock, act: str) -> None:
        clock.stop()
        whole = store.tenant("untouched")
        prepare(whole)
        before = state(whole)
        ACTS[act](store.again(tenant="untouched"))
        after = state(whole, leave_out=REPEATED)
        number = 0
        for strike in strikes(store, prepare, ACTS[act]):
            number += 1
            assert_nothing_is_half_done(strike, before)
            if act in MAY_BE_REPEATED:
                ACTS[act](strike.store)
                assert state(strike.store, leave_out=REPEATED) == after, f"a retry after {strike}"
        assert number >= 2, "at least one call failed, before and after"

    @pytest.mark.parametrize("how", REMOVED)
    def test_a_retried_removal_leaves_no_embedding(self, store: Driver, clock: Clock, how: str) -> None:
        # Catches vectors that are found by messages which the first attempt has removed already.
        clock.stop()
        act, gone = REMOVED[how]
        prepare_embedded(store.tenant("untouched"))
        before = embedded(store.tenant("untouched"))
        assert before >= gone
        for strike in strikes(store, prepare_embedded, act):
            with suppress(NotFound):  # the branch that it had deleted
                act(strike.store)
            left = embedded(strike.store)
            assert not left & gone, strike
            there = {
                (each.id, message.id)
                for each in strike.store.list_conversations().items
                for branch in strike.store.list_branches(each.id)
                for message in strike.store.iter_messages(each.id, branch=branch.id)
            }
            assert left <= there, strike
            assert left >= before & there, f"{strike}: remaining messages keep their vector"

    def test_a_failed_fork_is_complete_or_absent(self, store: Driver) -> None:
        whole = 0
        for strike in strikes(store, prepare, MAY_NOT_BE_REPEATED["fork"]):
            found = strike.store.get_conversation("fork")
            if found is None:
                assert MAY_NOT_BE_REPEATED["fork"](strike.store).message_count == 3, f"a retry after {strike}"
            else:
                # Only reading the new conversation has failed.
                assert found.message_count == 3, strike
                whole += 1
        assert whole == 2

    def test_a_failed_auto_title_does_not_report_not_applied(self, store: Driver) -> None:
        # Catches an error of the second write that reports `not_applied`: the caller would append again.
        require(store, "our ids")

        def act(each: Driver) -> Any:
            return each.append("new", Message("user", "Where is it?", id="m"))

        for strike in strikes(store, prepare, act, auto_title=True):
            if strike.error.outcome == "not_applied":
                assert strike.store.get_conversation("new") is None, strike
            act(strike.store)
            assert len(strike.store.get_messages("new")) == 1
