"""Promise 3: a batch is all or nothing, and writers never interleave inside each other's batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import pytest

from hansard.errors import Conflict, QuotaExceeded, Unsupported, ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.testing import processes
from hansard.testing.contract.base import Contract, assert_exact, history, races, require, require_url, say
from hansard.testing.targets import Driver, Target

SIZE = 5


def batch(writer: str, number: int) -> list[Message]:
    return [Message("user", f"{writer}/{number}/{part}") for part in range(SIZE)]


def appending(conversation: str, messages: list[Message]) -> Callable[[Any], Any]:
    return lambda store: store.append(conversation, messages)


def assert_whole_batches(texts: Sequence[str], expected: int) -> None:
    """Asserts that each batch is contiguous, complete and in order."""
    runs = [list(run) for _, run in groupby(texts, key=lambda text: text.rpartition("/")[0])]
    assert len(runs) == expected, "batches were torn apart"
    for run in runs:
        assert [text.rpartition("/")[2] for text in run] == [str(part) for part in range(SIZE)]


class TestBatches(Contract):
    def test_a_batch_with_one_bad_message_stores_nothing(self, store: Driver) -> None:
        with pytest.raises(ValidationError):
            store.append("c", [Message("user", "good"), Message("nobody", "bad")])
        assert store.get_conversation("c") is None

    def test_a_batch_over_the_quota_stores_nothing(self, store: Driver) -> None:
        small = store.again(limits=Limits(messages=3))
        with pytest.raises(QuotaExceeded) as refused:
            say(small, "c", 1, 2, 3, 4)
        assert (refused.value.limit, refused.value.value) == (3, 4)
        assert small.get_conversation("c") is None
        say(small, "c", 1, 2)
        with pytest.raises(QuotaExceeded) as refused:
            say(small, "c", 3, 4)
        assert refused.value.value == 4
        assert history(small, "c") == [1, 2]
        say(small, "c", 3)
        assert_exact(store, "c")

    def test_a_batch_with_a_conflict_stores_nothing(self, store: Driver) -> None:
        require(store, "our ids")
        store.append("c", Message("user", "first", id="taken"))
        torn = [Message("user", "new", id="new"), Message("user", "other", id="taken")]
        with pytest.raises(Conflict):
            store.append("c", torn, on_duplicate="error")
        assert history(store, "c") == ["first"]
        assert_exact(store, "c")

    @races
    def test_concurrent_writers_do_not_interleave(self, store: Driver) -> None:
        calls = [appending("c", batch(f"w{writer}", number)) for writer in range(6) for number in range(4)]
        results = store.together(calls)
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert_whole_batches(history(store, "c"), len(calls))
        assert_exact(store, "c")

    @races
    def test_writers_of_two_handles_do_not_interleave(self, target: Target, store: Driver) -> None:
        require(store, "shared")
        others = [target.open("blocking") for _ in range(2)]
        everyone = [(name, each) for name, each in zip("xy", others, strict=True) for _ in range(6)]
        calls = [
            lambda _, each=each, name=name, number=number: each.append("c", batch(name, number))
            for number, (name, each) in enumerate(everyone)
        ]
        results = others[0].together(calls)
        assert [result for result in results if isinstance(result, BaseException)] == []
        assert_whole_batches(history(store, "c"), len(calls))
        assert_exact(store, "c")

    @races
    def test_writers_of_several_processes_do_not_interleave(self, target: Target, store: Driver) -> None:
        require(store, "shared")
        url = require_url(target)
        writers = [
            processes.Writer(url, name, conversations=["c", "d"], batches=8, batch=SIZE, tasks=tasks)
            for name, tasks in (("p", 0), ("q", 0), ("r", 3))
        ]
        try:
            for writer in writers:
                writer.wait()
        finally:
            for writer in writers:
                writer.end()
        processes.verify(store, writers)
        assert_exact(store, "c")
        assert_exact(store, "d")

    @races
    def test_a_reader_sees_only_whole_batches(self, store: Driver) -> None:
        def reading(each: Any) -> Any:
            return each.get_messages("c", last=1000)

        calls: list[Callable[[Any], Any]] = []
        for number in range(12):
            calls += [appending("c", batch("w", number)), reading]
        pages = [result for result in store.together(calls) if isinstance(result, list)]
        assert pages
        assert {len(page) % SIZE for page in pages} == {0}

    def test_a_large_batch_is_atomic_or_refused(self, store: Driver) -> None:
        largest = store.capabilities.atomic_batch
        many = [Message("user", number) for number in range(1200 if largest is None else largest + 1)]
        if largest is not None:
            with pytest.raises(Unsupported) as refused:
                store.append("c", many)
            assert refused.value.capability == "atomic_batch"
            assert store.get_conversation("c") is None
        appended = store.append("c", many, split=True)
        assert appended.stored == len(many)
        assert history(store, "c") == list(range(len(many)))
        assert_exact(store, "c")

    def test_an_empty_batch_changes_nothing(self, store: Driver) -> None:
        assert store.append("c", []).messages == []
        assert store.get_conversation("c") is None
        say(store, "c", "x")
        before = store.get_conversation("c")
        assert store.append("c", []).version == 1
        assert store.get_conversation("c") == before
