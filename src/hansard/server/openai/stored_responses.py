"""Stored responses: get, stream, list their input, cancel, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from hansard.errors import Conflict, HansardError, NotFound
from hansard.formats import openai_items
from hansard.server.endpoints import HttpResponse
from hansard.server.openai import answer_cache, items, response_events, response_record, retries
from hansard.server.openai.response_record import FoundRecord, ResponseRecord
from hansard.server.openai.upstream import event
from hansard.server.openai.wire_errors import WireError, invalid, not_found, wire_error
from hansard.server.openai.wire_request import WireRequest, WireRoutes, listed

ONE = "/responses/{response_id}"
routes = WireRoutes()

_POLL_SECONDS = 0.25
"""Seconds between two reads of a response in progress."""
_CLAIM_POLL_SECONDS = 0.05
"""The same while its answer is being stored."""
_ATTEMPTS = 20
"""Attempts to change a record during concurrent writes."""
_FLAGS = {None: False, "true": True, "false": False, "True": True, "False": False}


@routes.get(ONE, query=("include", "include_obfuscation", "starting_after", "stream"))
async def get_response(request: WireRequest) -> dict[str, Any] | HttpResponse:
    """The response as it is now, or its events as a stream."""
    items.check_include(request)
    starting_after = _starting_after(request)
    id = request.path[0]
    if _is_streamed(request):
        return await stream_events(request, id, starting_after)
    return await response_record.response_object(
        request.store, id, (await response_record.require(request.store, id)).record
    )


def _is_streamed(request: WireRequest) -> bool:
    flag = _FLAGS.get(request.parameter("stream"))
    if flag is None:
        raise invalid("Invalid type for 'stream': expected a boolean.", "stream", "invalid_type")
    return flag


def _starting_after(request: WireRequest) -> int:
    text = request.parameter("starting_after")
    if text is None:
        return -1
    if not text.isascii() or not text.isdigit():
        what = "Invalid type for 'starting_after': expected the number of an event."
        raise invalid(what, "starting_after", "invalid_type")
    return int(text[:18])


# Streaming


async def stream_events(request: WireRequest, id: str, starting_after: int = -1) -> HttpResponse:
    """Streams the events of a response, including future ones."""
    return await answer_cache.stream_response(_follow(request, id, starting_after))


async def _follow(request: WireRequest, id: str, seen: int) -> AsyncIterator[bytes]:
    """Yields the events after number `seen`. The final event is always sent: it contains the result."""
    stop = request.services.background.shutdown.watch()
    ends = {asyncio.ensure_future(request.stream.disconnected()), asyncio.ensure_future(stop.wait())}
    begun = False
    try:
        while True:
            record = (await response_record.require(request.store, id)).record
            response = await response_record.response_object(request.store, id, record)
            is_under_way = response_record.is_under_way(response)
            for each_event in _behind(seen, response, is_under_way=is_under_way):
                begun, seen = True, each_event["sequence_number"]
                yield event(each_event, each_event["type"])
            if not is_under_way:
                return
            if not begun:
                begun = True
                yield b": under way\n\n"
            done, _ = await asyncio.wait(ends, timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
    except (WireError, HansardError) as error:
        if not begun:
            raise
        reported = wire_error(error, is_trusted=False)
        named = {"code": reported.code, "message": str(reported), "param": reported.param, "sequence_number": seen + 1}
        yield event({"type": "error", **named}, "error")
    finally:
        request.services.background.shutdown.discard(stop)
        for each in ends:
            each.cancel()


def _behind(seen: int, response: dict[str, Any], *, is_under_way: bool) -> Iterator[dict[str, Any]]:
    if is_under_way:
        yield from (each for each in response_events.opening(response) if each["sequence_number"] > seen)
        return
    last = None
    for each in response_events.of(response):
        if last is not None and last["sequence_number"] > seen:
            yield last
        last = each
    assert last is not None
    yield last


# Input


@routes.get(ONE + "/input_items", query=("limit", "order", "after", "include"))
async def list_input_items(request: WireRequest) -> dict[str, Any]:
    """A page of the response's own input, without the history, newest first by default."""
    items.check_include(request)
    record = (await response_record.require(request.store, request.path[0])).record
    await response_record.response_object(request.store, request.path[0], record)
    given: list[Any] = [*record.items] if record.last is None else [*record.input]
    given = given if request.order == "asc" else given[::-1]
    limit, found = request.limit, []
    for each in given[_place(request, given) :]:
        found += await _items_of(request, record, each)
        if len(found) > limit:
            break
    return listed(found[:limit], has_more=len(found) > limit)


def _place(request: WireRequest, given: list[Any]) -> int:
    """Returns where the page begins. Deleted items still have a position."""
    after = request.parameter("after")
    if after is None:
        return 0
    for number, each in enumerate(given):
        if after == (each if isinstance(each, str) else each.get("id")):
            return number + 1
    raise invalid(f"Invalid 'after': there is no item with id '{after[:256]}' here.", "after")


async def _items_of(request: WireRequest, record: ResponseRecord, given: Any) -> list[dict[str, Any]]:
    """Returns the items of a message; empty if it was deleted."""
    if isinstance(given, dict):
        return [given]
    message = await response_record.message_of(request.store, record, given)
    return [] if message is None else openai_items.items_of(message)


# Updating


@routes.post(ONE + "/cancel", body=None)
async def cancel_response(request: WireRequest) -> dict[str, Any]:
    """Cancels a background response. A finished response is returned unchanged."""
    store, id = request.store, request.path[0]
    for attempt in range(1, _ATTEMPTS + 1):
        found = await _unclaimed(request, id)
        response = await response_record.response_object(store, id, found.record)
        if not response.get("background"):
            raise invalid("Only a response that was made with 'background' can be cancelled.", "response_id")
        if not response_record.is_under_way(response):
            return response
        try:
            record = found.record.ended("cancelled")
            await response_record.put(store, id, record, revision=found.revision, conversation_id=found.conversation_id)
        except (Conflict, NotFound):  # changed by another request, or deleted with its conversation
            await retries.back_off(attempt)
            continue
        request.services.background.stop(store, id)
        return await response_record.response_object(store, id, record)
    raise _busy()


@routes.delete(ONE)
async def delete_response(request: WireRequest) -> dict[str, Any]:
    """Deletes a response. Its messages are deleted too, unless the client named their conversation."""
    store, id = request.store, request.path[0]
    for attempt in range(1, _ATTEMPTS + 1):
        found = await _unclaimed(request, id)
        if found.record.is_own:
            await _delete_messages(request, found.record)
        try:
            is_gone = await store.records.delete(response_record.NAMESPACE, id, expected_revision=found.revision)
        except Conflict:
            await retries.back_off(attempt)
            continue
        if not is_gone:
            raise not_found("Response", id)
        request.services.background.stop(store, id)
        if found.record.is_own:
            await _delete_empty(request, found.record)
        return {"id": id, "object": "response", "deleted": True}
    raise _busy()


async def _delete_messages(request: WireRequest, record: ResponseRecord) -> None:
    assert record.conversation is not None
    try:
        await request.store.delete_messages(record.conversation, [*record.input, *record.output])
    except NotFound:
        return  # the conversation was deleted, and the record with it


async def _delete_empty(request: WireRequest, record: ResponseRecord) -> None:
    """Deletes the conversation that was created for a response, if it is empty."""
    assert record.conversation is not None
    async with request.services.retries.exclusive_write(request.store, record.conversation):
        found = await request.store.get_conversation(record.conversation)
        if found is not None and not found.message_count:
            await request.store.delete_conversation(record.conversation)


async def _unclaimed(request: WireRequest, id: str) -> FoundRecord:
    """Waits until no answer is being stored, and returns the record."""
    while True:
        found = await response_record.require(request.store, id)
        if not await response_record.is_being_stored(request.store, found.record):
            return found
        await asyncio.sleep(_CLAIM_POLL_SECONDS)


def _busy() -> WireError:
    return WireError(503, "Other requests are changing the response: try again.", code="busy", type="server_error")
