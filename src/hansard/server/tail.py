"""The live tail of a conversation, as server-sent events or over a WebSocket, which can be resumed.

Every event has a cursor. A client that sends it back as `Last-Event-ID` or `after` misses no message. Without a cursor,
the tail starts at the end of the conversation; the first event contains the cursor of that position.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from hansard.errors import Unsupported
from hansard.model import EPOCH, Message
from hansard.store import Store

EVENTS = "text/event-stream"
_encode = msgspec.json.Encoder().encode


class Shutdown:
    """Signals that the server is shutting down, so that live tails end and do not delay it."""

    def __init__(self) -> None:
        self._tails: dict[asyncio.Event, float] = {}
        """What ends each open tail, and since when it is open."""
        self.tasks: set[asyncio.Task[None]] = set()
        """Background tasks that the server waits for before it exits."""
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        for each in self._tails:
            each.set()

    def watch(self) -> asyncio.Event:
        event = asyncio.Event()
        if self.is_set:
            event.set()
        self._tails[event] = time.monotonic()
        return event

    def discard(self, event: asyncio.Event) -> None:
        self._tails.pop(event, None)

    @property
    def stream_count(self) -> int:
        return len(self._tails)

    @property
    def oldest_stream_seconds(self) -> float:
        return time.monotonic() - min(self._tails.values()) if self._tails else 0.0


async def start_cursor(store: Store, conversation_id: str, after: str | None, branch: str | None) -> str:
    """Returns the cursor where a tail starts. Raises all errors of the request, before the stream begins."""
    if store.capabilities.watch == "none":
        raise Unsupported(f"the {store.capabilities.name} backend cannot be watched", capability="watch")
    if after is not None:
        await store.get_messages(conversation_id, after=after, branch=branch, limit=1)
        return after
    newest = await store.get_messages(conversation_id, last=1, branch=branch)
    nothing = Message("user", "", conversation_id=conversation_id, created_at=EPOCH)
    return (newest[0] if newest else nothing).cursor


async def follow(
    store: Store,
    conversation_id: str,
    after: str,
    branch: str | None,
    *,
    disconnected: Callable[[], Awaitable[None]],
    is_still_valid: Callable[[], bool],
    shutdown: Shutdown,
    heartbeat: float,
) -> AsyncIterator[Message | None]:
    """Yields messages as they arrive, and None as a heartbeat.

    Ends when the client disconnects, its key is no longer valid, or the server shuts down.
    """
    tail = store.watch(conversation_id, after=after, branch=branch)
    stop = shutdown.watch()
    ends = {asyncio.ensure_future(disconnected()), asyncio.ensure_future(stop.wait())}
    coming: asyncio.Task[Message] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(tail))
            done, _ = await asyncio.wait({coming, *ends}, timeout=heartbeat, return_when=asyncio.FIRST_COMPLETED)
            if done & ends or not is_still_valid():
                return
            if coming in done:
                message, coming = coming.result(), None
                yield message
            else:
                yield None
    finally:
        shutdown.discard(stop)
        left = [*ends, *([coming] if coming is not None else [])]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await tail.aclose()  # type: ignore[attr-defined]


async def _next(tail: AsyncIterator[Message]) -> Message:
    return await anext(tail)


def opened(cursor: str) -> bytes:
    return f"id: {cursor}\nevent: open\ndata: {{}}\n\n".encode()


def event(message: Message | None) -> bytes:
    """Encodes a message as an event, or None as a comment."""
    if message is None:
        return b": still here\n\n"
    return b"id: %s\nevent: message\ndata: %s\n\n" % (message.cursor.encode(), _encode(message))


def frame(message: Message | None) -> str:
    """Encodes a message as a text frame of a WebSocket."""
    if message is None:
        return '{"type":"alive"}'
    return _encode({"type": "message", "cursor": message.cursor, "message": message}).decode()
