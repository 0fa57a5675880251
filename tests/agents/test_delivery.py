"""Delivery to a store that may be away: pauses, refusals, and completing a message."""

from __future__ import annotations

import asyncio
import time

import pytest

import hansard
from hansard.agents import delivery
from hansard.agents.delivery import Retry
from hansard.errors import Closed, Conflict, TimedOut, Unavailable, ValidationError
from hansard.model import Message, Source, Usage


class TestRetry:
    def test_the_first_attempt_is_due_at_once(self) -> None:
        retry = Retry(1.0, 30.0, is_behind=True)
        assert retry.is_behind
        assert retry.is_due
        assert retry.seconds_left == 0.0

    def test_pauses_double_up_to_the_longest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)
        retry = Retry(1.0, 5.0)
        pauses = []
        for _ in range(5):
            retry.failed()
            pauses.append(retry.seconds_left)
        assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
        assert retry.is_behind
        assert not retry.is_due

    def test_a_pause_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)
        retry = Retry(1.0)
        retry.failed()
        retry.failed()
        monkeypatch.setattr(time, "monotonic", lambda: 101.0)
        assert retry.is_due, "without a longest pause, all are alike"

    def test_success_begins_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)
        retry = Retry(1.0, 30.0)
        retry.failed()
        retry.failed()
        retry.succeeded()
        assert not retry.is_behind
        assert retry.is_due
        retry.failed()
        assert retry.seconds_left == 1.0


def test_what_another_attempt_would_not_change() -> None:
    assert [delivery.is_refusal(error) for error in (Conflict("c"), ValidationError("v"))] == [True, True]
    assert not any(map(delivery.is_refusal, (Unavailable("u"), TimedOut("t"), Closed("c"), OSError(), TimeoutError())))


def test_a_time_out_has_a_reason() -> None:
    assert delivery.reason(TimeoutError()) == "it took too long"
    assert delivery.reason(Conflict("taken")) == "taken"


def test_a_message_is_completed() -> None:
    async def run() -> None:
        async with hansard.connect("memory://") as store:
            growing = Message("assistant", "It", id="m1", status="in_progress", sources=(Source("d1", "Guide"),))
            await store.append("c", growing)
            ended = Message("assistant", "It is.", id="m1", usage=Usage(1, 2), metadata={"a": 1})
            stored = await delivery.complete(store, "c", ended)
            assert (stored.content, stored.status, stored.usage) == ("It is.", "complete", Usage(1, 2))
            assert stored.metadata == {"a": 1}
            assert stored.sources == (Source("d1", "Guide"),), "what the ended message does not say stays"

    asyncio.run(run())
