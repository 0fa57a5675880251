"""The live tail, by server-sent events and by WebSocket, which goes on where it broke.

Every event carries a cursor. Who comes back with it, as `Last-Event-ID` or `after`, misses nothing. Without one the
tail begins now: at the place that the first event names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from hansard.errors import Unsupported
from hansard.model import EPOCH, Message
from hansard.store import Store

EVENTS = "text/event-stream"
_encode = msgspec.json.Encoder().encode


class Shutdown:
    """That the server is about to end: a tail would otherwise keep it from ending."""

    def __init__(self) -> None:
        self._tails: set[asyncio.Event] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """What has to be brought to its end first, though no client waits for it."""
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        for each in self._tails:
            each.set()

    def watch(self) -> asyncio.Event:
        event = asyncio.Event()
        if self.is_set:
            event.set()
        self._tails.add(event)
        return event

    def discard(self, event: asyncio.Event) -> None:
        self._tails.discard(event)


async def start_cursor(store: Store, conversation_id: str, after: str | None, branch: str | None) -> str:
    """The cursor from which a tail goes on. What is wrong with the request is said here, before the stream begins."""
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
    """Messages as they arrive; None when nothing has for a while.

    Ends when the client has gone, when its key no longer holds, or when the server ends.
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
    """A message as an event; a comment when there is none."""
    if message is None:
        return b": still here\n\n"
    return b"id: %s\nevent: message\ndata: %s\n\n" % (message.cursor.encode(), _encode(message))


def frame(message: Message | None) -> str:
    """A message as the text of a WebSocket."""
    if message is None:
        return '{"type":"alive"}'
    return _encode({"type": "message", "cursor": message.cursor, "message": message}).decode()
