"""How many calls of the four functions an operation takes, and how many round trips: as the documentation says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contract.keyvalue_stores import DictStore
from tests.docs.pages import DOCS

from hansard.backends.keyvalue import KeyValueBackend
from hansard.model import Message
from hansard.store import Put, Store

PAGE = DOCS / "howto" / "writing-a-backend.md"
LAST = Message("user", "x" * 200)


class CountingStore:
    """Answers all calls that are made at once together: that is a round trip."""

    def __init__(self) -> None:
        self.inner = DictStore()
        self.calls: Counter[str] = Counter()
        self.trips = 0
        self._trip: asyncio.Future[None] | None = None

    async def _call(self, name: str, *args: Any) -> Any:
        self.calls[name] += 1
        if self._trip is None:
            loop = asyncio.get_running_loop()
            self._trip = loop.create_future()
            self.trips += 1
            loop.call_later(0.001, self._arrive)
        await self._trip
        return getattr(self.inner, name)(*args)

    def _arrive(self) -> None:
        assert self._trip is not None
        self._trip.set_result(None)
        self._trip = None

    async def get(self, key: str) -> Any:
        return await self._call("get", key)

    async def put(self, key: str, value: bytes, expected_token: int | None) -> Any:
        return await self._call("put", key, value, expected_token)

    async def delete(self, key: str, expected_token: int | None) -> Any:
        return await self._call("delete", key, expected_token)

    async def list(self, prefix: str, after: str, limit: int) -> Any:
        return await self._call("list", prefix, after, limit)


Act = Callable[[Store], Awaitable[Any]]
ACTS: dict[str, Act] = {
    "another append by the same process": lambda store: store.append("c1", LAST),
    "first append by a process": lambda store: store.append("c2", LAST),
    "append that creates the conversation": lambda store: store.append("new", LAST, user_id="u", agent_id="a"),
    "append with a record": lambda store: store.append("c1", LAST, records=[Put(["n"], "k", 1)]),
    "last 50 of 1,000 messages": lambda store: store.get_messages("c1", last=50),
    "get_conversation": lambda store: store.get_conversation("c1"),
    "list of 20 conversations": lambda store: store.list_conversations(user_id="u"),
    "record put": lambda store: store.records.put(["n"], "k", 1),
    "record get": lambda store: store.records.get(["n"], "k"),
}


async def measured(act: Act) -> list[int]:
    kept = CountingStore()
    async with Store(KeyValueBackend(kept, durability="none")) as store:
        for number in range(40):
            await store.append(f"c{number}", LAST, user_id="u", agent_id="a")
        await store.append("c1", [LAST] * 950)
        await store.append("c1", [LAST] * 48)
        await store.records.put(["n"], "other", 1)
    async with Store(KeyValueBackend(kept, durability="none")) as store:
        if act is not ACTS["first append by a process"]:
            await store.append("c1", LAST)
        before, trips = kept.calls.copy(), kept.trips
        await act(store)
        spent = kept.calls - before
        return [*(spent[name] for name in ("get", "put", "delete", "list")), kept.trips - trips]


def documented() -> dict[str, list[int]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: [int(cell) for cell in row[1:]] for row in rows if row[0] in ACTS}


@pytest.mark.parametrize("act", ACTS)
def test_the_documentation_says_what_it_costs(act: str) -> None:
    assert documented()[act] == asyncio.run(measured(ACTS[act]))
