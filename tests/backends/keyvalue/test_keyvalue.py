"""What only a store over four functions has: its keys, its cost, how the functions are called."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.backends.keyvalue.failing_store import FailingStore
from tests.contract.keyvalue_stores import AsyncDictStore, DictStore

from hansard import sync
from hansard.backends.keyvalue import KeyValueBackend
from hansard.errors import ValidationError
from hansard.model import Message, Participant
from hansard.store import Store


def over(store: Any, **options: Any) -> sync.Store:
    return sync.Store.over(KeyValueBackend(store, durability="none", **options))


def test_keys_are_short_and_plain() -> None:
    kept = DictStore()
    longest = "ü😀 /\\~ÿ" * 100
    odd = longest.encode()[:256].decode(errors="ignore")
    with over(kept) as store:
        view = store.tenant(odd)
        by = Participant("user", odd)
        view.append(odd, [Message("user", "x", id=odd, participant=by)], user_id=odd, agent_id=odd)
        view.append("y" * 256, Message("user", "x"), user_id="y" * 256, expires_at=store_time(view))
        view.user(odd).records.put([odd], odd, 1, conversation_id=odd)
        view.blobs.put(b"x" * 5000)
        view.delete_conversation(odd)
    assert [key for key in kept.values if not re.fullmatch(r"[a-z0-9/.-]{1,700}", key)] == []
    assert max(len(key) for key in kept.values) > 500, "the longest ids were used"


def store_time(store: sync.Store) -> Any:
    found = store.create_conversation("time")
    return found.created_at.replace(year=found.created_at.year + 1)


def cost(failing: FailingStore, act: Any) -> tuple[int, int]:
    """Calls and bytes written."""
    calls, written = len(failing.calls), failing.written
    act()
    return len(failing.calls) - calls, failing.written - written


def test_the_cost_of_appending_and_reading_does_not_follow_the_history() -> None:
    failing = FailingStore(DictStore())
    with over(failing) as store:

        def costs() -> tuple[list[tuple[int, int]], tuple[int, int]]:
            appends = [cost(failing, lambda: store.append_message("c", "user", "x" * 100)) for _ in range(100)]
            return appends, cost(failing, lambda: store.get_messages("c", last=50))

        store.append("c", [Message("user", f"{n}", id=f"a{n:05}") for n in range(500)])
        early, early_read = costs()
        for start in range(500, 10_000, 500):
            store.append("c", [Message("user", f"{n}", id=f"a{n:05}") for n in range(start, start + 500)])
        late, late_read = costs()
    # One more level of the tree is one more object to read and write where the tail moves into it.
    assert max(calls for calls, _ in late) <= max(calls for calls, _ in early) + 8
    assert sum(written for _, written in late) < 2 * sum(written for _, written in early)
    assert late_read[0] <= early_read[0] + 4
    assert late_read[0] < 15


def test_a_lost_answer_does_not_append_twice() -> None:
    """A client that repeats a request by itself is told that it lost against its own first attempt."""
    kept = DictStore()
    with over(kept) as store:
        store.append_message("c", "user", "before")
    for number in range(1, 30):
        with over(FailingStore(kept, number, "lost")) as store:
            store.append_message("c", "user", f"{number}")
    with over(kept) as store:
        assert [each.content for each in store.iter_messages("c")] == ["before", *map(str, range(1, 30))]


def test_functions_that_are_missing_or_mixed() -> None:
    class Half:
        def get(self, key: str) -> None: ...
        def put(self, key: str, value: bytes, expected_token: None) -> None: ...

    class Mixed(DictStore):
        async def get(self, key: str) -> Any:  # type: ignore[override]
            return super().get(key)

    with pytest.raises(ValidationError, match="missing: delete, list"):
        KeyValueBackend(Half(), durability="none")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="all async or all blocking"):
        KeyValueBackend(Mixed(), durability="none")
    with pytest.raises(ValidationError, match="async already"):
        KeyValueBackend(AsyncDictStore(), durability="none", in_threads=True)


def test_blocking_functions_in_threads() -> None:
    async def use() -> list[Any]:
        backend = KeyValueBackend(DictStore(), durability="none", in_threads=True)
        assert not backend.capabilities.blocking
        async with Store(backend) as store:
            await store.append_message("c", "user", "x")
            return [each.content for each in await store.get_messages("c")]

    assert asyncio.run(use()) == ["x"]


def test_a_tree_of_many_levels() -> None:
    kept = DictStore()
    with over(kept) as store:
        expected = [f"{number}" for number in range(12_000)]
        for start in range(0, 12_000, 400):
            store.append("c", [Message("user", text) for text in expected[start : start + 400]])
        ids = [each.id for each in store.iter_messages("c")]
        assert [each.content for each in store.get_messages("c", last=100)] == expected[-100:]
        assert store.get_message("c", ids[6000]).content == "6000"
        store.delete_messages("c", ids[1000:1100])
        del expected[1000:1100]
        assert [each.content for each in store.iter_messages("c")] == expected
        assert store.check() == []
        store.branch("c", at=ids[3000], branch_id="side")
        assert store.list_branches("c")[1].message_count == 2901
        assert store.delete_conversation("c").messages == 11_900
    assert [key for key in kept.values if "/node/" in key] == []
