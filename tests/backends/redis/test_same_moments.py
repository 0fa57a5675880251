"""Stores whose clocks stand still give the same stamps all the time: their random writes mix and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.servers import redis as redis_servers

import hansard
from hansard.backends.redis import transaction
from hansard.errors import Conflict, NotFound
from hansard.limits import Limits
from hansard.model import Message

ROUNDS = int(os.environ.get("HANSARD_KILLS", "4"))
_STORES = 3
_CALLERS = 3
"""Of each store, at once."""
_CALLS = 25
_IDS = ("a", "b")
_PICTURES = [{"image": letter * 200} for letter in "ABC"]


class _StoppedClock:
    @staticmethod
    def time_ns() -> int:
        return 0


@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("make", [redis_servers.fresh_database, redis_servers.fresh_cluster], ids=["one", "many"])
def test_random_writes(make: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    url = make()
    for seed in range(ROUNDS):
        with monkeypatch.context() as patch:
            asyncio.run(asyncio.wait_for(_play(url, f"t{seed}", random.Random(seed), patch), 60))


async def _play(url: str, tenant: str, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    stores = [await hansard.connect(url, limits=Limits(blob_bytes=64)) for _ in range(_STORES)]
    views = [store.tenant(tenant) for store in stores]
    for id in _IDS:
        await views[0].append_message(id, "user", "the stamps are ahead of the clock from here on")
    patch.setattr(transaction, "time", _StoppedClock)
    kept: dict[str, str] = {}
    callers = [
        _Caller(view, f"{number}.{caller}", chance, kept)
        for number, view in enumerate(views)
        for caller in range(_CALLERS)
    ]
    try:
        await asyncio.gather(*(caller.run() for caller in callers))
        for view in views:
            for id in _IDS:
                messages = [message async for message in view.iter_messages(id)]
                seqs = [message.seq for message in messages]
                assert seqs == sorted(set(seqs))
                assert {each for each, where in kept.items() if where == id} <= {message.id for message in messages}
        assert await stores[0].check() == []
    finally:
        for store in stores:
            await store.close()


class _Caller:
    """Calls a store. `kept` has the messages that every caller leaves where they are, by id."""

    def __init__(self, view: hansard.Store, name: str, chance: random.Random, kept: dict[str, str]) -> None:
        self._view = view
        self._name = name
        self._chance = chance
        self._kept = kept
        self._said: list[tuple[str, str]] = []
        self._count = 0

    async def run(self) -> None:
        calls: list[Callable[[str], Any]] = [self._append, self._append, self._append, self._keep, self._keep]
        calls += [self._update, self._delete, self._rename, self._summarize, self._put, self._give_up]
        for _ in range(_CALLS):
            id = self._chance.choice(_IDS)
            with suppress(Conflict, NotFound):
                await self._chance.choice(calls)(id)
            if self._chance.random() < 0.3:
                await asyncio.sleep(0)

    def _messages(self, *, most: int = 4) -> list[Message]:
        self._count += 1
        content = self._chance.choice(["words", *_PICTURES])
        count = self._chance.randint(1, most)
        return [Message("user", content, id=f"{self._name}.{self._count}.{part}") for part in range(count)]

    async def _append(self, id: str) -> None:
        said = self._messages()
        await self._view.append(id, said)
        self._said += [(id, message.id) for message in said]

    async def _keep(self, id: str) -> None:
        said = self._messages()
        await self._view.append(id, said)
        self._kept |= {message.id: id for message in said}

    async def _update(self, _id: str) -> None:
        if self._said:
            await self._view.update_message(*self._chance.choice(self._said), content=self._chance.choice(_PICTURES))

    async def _delete(self, _id: str) -> None:
        if self._said:
            await self._view.delete_message(*self._said.pop(self._chance.randrange(len(self._said))))

    async def _rename(self, id: str) -> None:
        await self._view.update_conversation(id, title=f"{self._name}.{self._count}")

    async def _summarize(self, id: str) -> None:
        await self._view.add_summary(id, "short", from_seq=1, to_seq=1)

    async def _put(self, id: str) -> None:
        await self._view.records.put(["n"], self._name, 1, conversation_id=id)

    async def _give_up(self, id: str) -> None:
        call = asyncio.ensure_future(self._view.append(id, self._messages(most=1)))
        for _ in range(self._chance.randrange(5)):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("make", [redis_servers.fresh_database, redis_servers.fresh_cluster], ids=["one", "many"])
def test_conversations_that_come_and_go(make: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    url = make()

    async def play(chance: random.Random) -> None:
        stores = [await hansard.connect(url, limits=Limits(blob_bytes=64)) for _ in range(_STORES)]
        await stores[0].append_message("a", "user", "x")
        monkeypatch.setattr(transaction, "time", _StoppedClock)

        async def call(store: hansard.Store, number: int) -> None:
            for count in range(_CALLS):
                with suppress(Conflict, NotFound):
                    match chance.randrange(5):
                        case 0:
                            await store.delete_conversation("a")
                        case 1:
                            await store.records.put(["n"], f"{number}.{count}", 1, conversation_id="a")
                        case 2:
                            await store.get_conversation("a")
                        case _:
                            contents = [chance.choice(["x", *_PICTURES]) for _ in range(chance.randint(1, 3))]
                            await store.append("a", [Message("user", content) for content in contents])

        try:
            await asyncio.gather(
                *(call(store, 3 * at + more) for at, store in enumerate(stores) for more in range(_CALLERS))
            )
            assert await stores[0].check() == []
            await stores[0].delete_conversation("a")
            await stores[0].purge()
            stats = await stores[0].stats()
            assert (stats.messages, stats.records) == (0, 0)
        finally:
            for store in stores:
                await store.close()

    for seed in range(ROUNDS):
        asyncio.run(asyncio.wait_for(play(random.Random(seed)), 60))
        monkeypatch.undo()
