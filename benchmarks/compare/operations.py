"""The operations to compare. Each prepares what its calls need, which is not measured, and then makes the calls.

They use only the public API, so that they run on any two versions that have it.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders.product import as_messages
from benchmarks.samples import sample, samples, transcript_batch
from hansard import connect

Calls = Callable[[], Awaitable[object]]
_USERS = 20
_EACH = 60
_LONG = 2_000


@dataclass
class Place:
    """A store under comparison, and what was prepared in it."""

    store: Any
    prepared: set[str] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"c{next(self.numbers)}"

    async def filled(self, count: int, messages: int = 4) -> list[tuple[str, list[Any]]]:
        """So many new conversations, each with messages."""
        names = [self.name() for _ in range(count)]
        appends = (self.store.append(name, as_messages(samples(messages))) for name in names)
        return [(name, made.messages) for name, made in zip(names, await asyncio.gather(*appends), strict=True)]

    def is_first(self, what: str) -> bool:
        is_first = what not in self.prepared
        self.prepared.add(what)
        return is_first


async def one_by_one(calls: list[Calls]) -> None:
    for call in calls:
        await call()


async def _each(place: Place, count: int, call: Callable[[str, list[Any]], Awaitable[object]]) -> Calls:
    """One call for each of as many new conversations."""
    filled = await place.filled(count)
    return lambda: one_by_one([lambda name=name, made=made: call(name, made) for name, made in filled])  # type: ignore[misc]


# Single operations


async def append(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: _say(place, name, 7))


async def batch(place: Place, count: int) -> Calls:
    messages = as_messages(samples(20))
    return await _each(place, count, lambda name, made: place.store.append(name, messages))


async def create(place: Place, count: int) -> Calls:
    create = place.store.create_conversation
    return lambda: one_by_one([lambda: create(place.name(), user_id="u", title="one") for _ in range(count)])


async def get_conversation(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.get_conversation(name))


async def get_message(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.get_message(name, made[1].id))


async def get_messages(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.get_messages(name))


async def list_conversations(place: Place, count: int) -> Calls:
    if place.is_first("list"):
        for number in range(_EACH):
            starts = (
                place.store.append_message(f"l{user}-{number}", role="user", content="x", user_id=f"u_{user}")
                for user in range(_USERS)
            )
            await asyncio.gather(*starts)
    page = place.store.list_conversations
    return lambda: one_by_one([lambda: page(user_id="u_7", limit=50)] * count)


async def update_message(place: Place, count: int) -> Calls:
    update = place.store.update_message
    return await _each(place, count, lambda name, made: update(name, made[1].id, content="changed", metadata={"a": 1}))


async def update_conversation(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.update_conversation(name, title="another"))


async def branch(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.branch(name, at=made[1].id))


async def summary(place: Place, count: int) -> Calls:
    add = place.store.add_summary
    return await _each(place, count, lambda name, made: add(name, "short", from_seq=made[0].seq, to_seq=made[2].seq))


async def delete(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.delete_conversation(name))


async def delete_message(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.delete_message(name, made[1].id))


async def clear(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.clear_messages(name))


async def pop(place: Place, count: int) -> Calls:
    return await _each(place, count, lambda name, made: place.store.pop_message(name))


async def replace(place: Place, count: int) -> Calls:
    messages = as_messages(samples(3, 100))
    return await _each(place, count, lambda name, made: place.store.replace_messages(name, messages))


# The workloads of `scenarios`


def _say(place: Place, name: str, number: int) -> Awaitable[object]:
    said = sample(number)
    answer: Awaitable[object] = place.store.append_message(
        name, role=said.role, content=said.text, metadata=said.metadata
    )
    return answer


async def w1(place: Place, count: int) -> Calls:
    return lambda: one_by_one([lambda: _say(place, "w1", 3)] * count)


async def w2(place: Place, count: int) -> Calls:
    names = [f"w2-{task}" for task in range(64)]
    if place.is_first("w2"):
        await asyncio.gather(*(_say(place, name, 0) for name in names))

    async def task(name: str) -> None:
        for number in range(max(1, count // 64)):
            await _say(place, name, number)

    return lambda: asyncio.gather(*(task(name) for name in names))


async def w3(place: Place, count: int) -> Calls:
    if place.is_first("w3"):
        await place.store.append("w3", as_messages(samples(_LONG)))
    return lambda: one_by_one([lambda: place.store.get_messages("w3", last=50)] * count)


async def w4(place: Place, count: int) -> Calls:
    if place.is_first("w4"):
        await place.store.append("w4", as_messages(samples(_LONG)))

    async def turn() -> None:
        await place.store.get_messages("w4", last=50)
        await _say(place, "w4", 0)
        await _say(place, "w4", 1)

    return lambda: one_by_one([turn] * count)


async def w7(place: Place, count: int) -> Calls:
    messages = [as_messages(samples(1000, start)) for start in range(0, max(1, count // 10) * 1000, 1000)]
    name = place.name()
    return lambda: one_by_one([lambda part=part: place.store.append(name, part) for part in messages])  # type: ignore[misc]


async def _source(messages: int) -> tempfile.TemporaryDirectory[str]:
    """A folder with a store of so many messages, and with a file of what it exports."""
    folder = tempfile.TemporaryDirectory()
    async with connect(f"sqlite:///{folder.name}/source.db") as store:
        for start in range(0, messages, 1000):
            await store.append(f"c{start}", as_messages(samples(1000, start)))
        with (Path(folder.name) / "export.jsonl").open("wb") as out:
            async for line in store.export():
                out.write(line)
    return folder


async def w7_import(place: Place, count: int) -> Calls:
    folder = await _source(max(1, count // 10) * 1000)

    async def run() -> None:
        async with connect(f"sqlite:///{folder.name}/target.db") as store:
            await store.import_(Path(folder.name) / "export.jsonl")

    return run


async def w7_copy(place: Place, count: int) -> Calls:
    folder = await _source(max(1, count // 10) * 1000)

    async def run() -> None:
        async with (
            connect(f"sqlite:///{folder.name}/source.db") as source,
            connect(f"sqlite:///{folder.name}/target.db") as target,
        ):
            await source.copy_to(target)

    return run


async def claude(place: Place, count: int) -> Calls:
    sessions = place.store.claude_session_store()
    key = {"project_key": "compare", "session_id": str(uuid.uuid4())}
    batches = [transcript_batch(number) for number in range(count)]
    return lambda: one_by_one([lambda part=part: sessions.append(key, part) for part in batches])  # type: ignore[misc]


SINGLE: dict[str, Callable[[Place, int], Awaitable[Calls]]] = {
    "append": append,
    "batch": batch,
    "create": create,
    "get_conversation": get_conversation,
    "get_message": get_message,
    "get_messages": get_messages,
    "list": list_conversations,
    "update_message": update_message,
    "update_conversation": update_conversation,
    "branch": branch,
    "summary": summary,
    "delete": delete,
    "delete_message": delete_message,
    "clear": clear,
    "pop": pop,
    "replace": replace,
}
WORKLOADS: dict[str, Callable[[Place, int], Awaitable[Calls]]] = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w4": w4,
    "w5": list_conversations,
    "w7": w7,
    "w7-import": w7_import,
    "w7-copy": w7_copy,
    "claude": claude,
}
OPERATIONS = SINGLE | WORKLOADS
OF_BACKEND = {
    "sqlite": [*SINGLE, *WORKLOADS],
    "files": [*SINGLE, "w1", "w2", "w3", "w4", "w5", "w7"],
    "postgres": [*SINGLE, "w1", "w2", "w3", "w4"],
    "redis": [*SINGLE, "w1", "w2", "w3", "w4"],
    "memory": [*SINGLE, "w1", "w3", "w4"],
}
