"""What adapters share: reading messages of any size and format, records, and writes that are not interrupted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

import msgspec

from hansard import codec, formats
from hansard.errors import Corrupt
from hansard.formats import ToolLinks, dialogue, registry
from hansard.formats.parts import Reading, Text, as_text
from hansard.model import Message, Record
from hansard.store import Store

T = TypeVar("T")

EVERYTHING = 1_000_000_000
"""More messages than any conversation has."""


async def newest(store: Store, conversation_id: str, count: int, branch: str | None = None) -> list[Message]:
    """Returns the newest messages, oldest first. Reads page by page if they exceed one page of bytes."""
    found = await store.get_messages(conversation_id, last=count, branch=branch)
    newest_first, more = found[::-1], found.has_more
    while more and len(newest_first) < count:
        size = min(count - len(newest_first), store.limits.page)
        page = await store.get_messages(
            conversation_id, order="desc", after=newest_first[-1].cursor, limit=size, branch=branch
        )
        newest_first += page
        more = page.has_more
    return newest_first[::-1]


def value_of(record: Record, kind: type[T]) -> T:
    """Returns the value of a record. Refuses one that this version did not write."""
    codec.prepare(kind)
    try:
        return msgspec.convert(record.value, kind)
    except msgspec.ValidationError as error:
        where = f"record {record.key!r} of {record.namespace!r}"
        of = f" of conversation {record.conversation_id!r}" if record.conversation_id else ""
        raise Corrupt(f"{where}{of} is not what this version of Hansard writes: {error}", where=where) from error


def reading_of(message: Message) -> Reading:
    """Reads a message of another format as parts. JSON of no known format is read as its text."""
    reading = registry.read(message)
    if reading.parts and dialogue.passes(reading.parts[0]):
        return Reading([Text(as_text(message.content))], reading.role)
    return reading


def answered(messages: Sequence[Message], own: str) -> list[Message]:
    """Returns the messages with each result directly after its call, where neither is in the adapter's own format.

    In some formats each call is a message, and parallel calls come before all their results. In others a call without
    an immediate result is an error, and one message cannot hold two messages of the history. So such calls are returned
    one after the other.
    """
    if all(message.format == own for message in messages):
        return list(messages)
    linked = [formats.tool_links(each) if each.format != own else ToolLinks() for each in messages]
    behind: dict[int, list[int]] = {}
    for result, found in _calls(messages, linked).items():
        if len(found) == 1 and not linked[result].calls:
            behind.setdefault(found.pop(), []).append(result)
    moved = {result for results in behind.values() for result in results}
    order = [at for place in range(len(messages)) if place not in moved for at in (place, *behind.get(place, ()))]
    return [messages[at] for at in order]


def _calls(messages: Sequence[Message], linked: Sequence[ToolLinks]) -> dict[int, set[int]]:
    """Returns the positions of results, with those of the calls that they answer.

    Some formats identify a call only by its name: if an id is open several times, the newest turn is meant, and in it
    the first call is answered first. Calls left open in earlier turns stay open.
    """
    found: dict[int, set[int]] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    turn = 0
    for place, (message, link) in enumerate(zip(messages, linked, strict=True)):
        turn += message.role == "user" and not link.results
        for id in link.calls:
            waiting.setdefault(id, []).append((turn, place))
        for id in link.results:
            calls = waiting.get(id, [])
            first = len(calls) - 1
            while first > 0 and calls[first - 1][0] == calls[-1][0]:
                first -= 1
            if calls:
                found.setdefault(place, set()).add(calls.pop(first)[1])
    return found


async def uninterrupted(write: Coroutine[Any, Any, T]) -> T:
    """Waits for the end of a write even if the caller is cancelled, and raises the cancellation only then.

    So callers that catch the cancellation can read the outcome of the write.
    """
    # A future of our own wakes the caller sooner than `asyncio.shield`, which needs one more iteration of the event
    # loop.
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(_write_and_signal(write, ended))
    task.add_done_callback(lambda _: _signal_after(write, ended))
    try:
        await ended
    except asyncio.CancelledError as cancelled:
        if task.cancelled():
            raise
        await _ended(task)
        raise cancelled from task.exception()
    return task.result()


async def _write_and_signal(write: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> T:
    try:
        return await write
    finally:
        _signal(ended)


def _signal(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _signal_after(write: Coroutine[Any, Any, T], ended: asyncio.Future[None]) -> None:
    """Resolves the future for a task that is cancelled before its first step, as at the end of an event loop."""
    write.close()
    _signal(ended)


async def _ended(task: asyncio.Future[Any]) -> None:
    with _left_alone():
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])


def _left_alone() -> AbstractContextManager[Any]:
    """Shields from anyio, with which the Claude Agent SDK cancels: it repeats that in every loop iteration."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)
