"""The live tail of a conversation. The same path takes a WebSocket: see `hansard.server.sockets`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from msgspec import Struct

from hansard.errors import MessageNotFound, NotFound, Unsupported
from hansard.server import tail
from hansard.server.calls import Answer, Call, Endpoint
from hansard.server.rest.shapes import Id


class TailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a message id or a cursor. Without it, and without `Last-Event-ID`, the tail begins now."""

    after: str | None = None
    branch: Id | None = None


async def tail_conversation(call: Call[TailQuery, None]) -> Answer:
    """Each new message as an event, as it arrives; one in progress comes again each time that it has grown."""
    last = call.headers.get(b"last-event-id")
    after = call.query.after if last is None else last.decode("latin-1")
    cursor = await tail.begin(call.store, call.path[0], after, call.query.branch)
    return Answer(_events(call, cursor), media_type=tail.EVENTS, is_live=True)


async def _events(call: Call[TailQuery, None], cursor: str) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    async for message in tail.follow(
        call.store,
        call.path[0],
        cursor,
        call.query.branch,
        gone=call.stream.gone,
        holds=partial(call.parts.gate.holds, call.caller),
        stopping=call.parts.stopping,
        heartbeat=call.parts.settings.heartbeat_seconds,
    ):
        yield tail.event(message)


ROUTES = (
    Endpoint(
        method="GET",
        path="/conversations/{conversation_id}/tail",
        handler=tail_conversation,
        scope="read",
        query=TailQuery,
        gives=tail.EVENTS,
        errors=(MessageNotFound, NotFound, Unsupported),
    ),
)
