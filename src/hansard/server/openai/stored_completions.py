"""Chat completions with `store: true`: list, get, update, delete.

A completion is stored as two records: a small one for lists, and its body. Its id is created here and sorts by time.
Both are deleted with the conversation that the request named, if any.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from hansard import cursors, ids
from hansard.contract.types import RecordQuery
from hansard.errors import Conflict, ValidationError
from hansard.model import Order, Record
from hansard.server.openai import retries
from hansard.server.openai.wire_errors import WireError, invalid, missing, not_found
from hansard.server.openai.wire_request import PAIR, WireRequest, WireRoutes, listed, metadata_given, only
from hansard.store.records import Delete, Put

ALL = "/chat/completions"
ONE = "/chat/completions/{completion_id}"
routes = WireRoutes()

_HEADS = ("openai", "completions")
_BODIES = ("openai", "completion-bodies")
_PREFIX = "chatcmpl-"
_ID = re.compile(_PREFIX + "[0-9a-f]{32}")
_SCANNED = 100
_ATTEMPTS = 20


# Storing


def id_for(request: WireRequest) -> str | None:
    """Returns the id of a completion to store; None if it is not stored. Refuses invalid metadata."""
    if request.body.get("store") is not True or not request.store.capabilities.records:
        return None
    metadata_given(request.body)
    return ids.new_id(_PREFIX)


async def store_completion(request: WireRequest, completion: dict[str, Any], conversation_id: str | None) -> None:
    """Stores a completion and its input messages."""
    metadata = metadata_given(request.body)
    await request.store.records.write(records_of(completion, request.body.get("messages"), metadata, conversation_id))


def records_of(
    completion: dict[str, Any], messages: Any, metadata: dict[str, str], conversation_id: str | None
) -> list[Put]:
    id = completion["id"]
    head = {"model": _text(completion.get("model")), "metadata": metadata}
    body = {"completion": _json(completion), "messages": _json(messages)}
    return [
        Put(_HEADS, id, head, conversation_id=conversation_id),
        Put(_BODIES, id, body, conversation_id=conversation_id),
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _json(value: Any) -> str:
    """Returns the value as text: an endpoint's JSON may be nested more deeply than a record's value may."""
    return msgspec.json.encode(value).decode()


# Reading


async def _require(request: WireRequest, id: str) -> tuple[Record, Record]:
    """Returns the two records of a completion. Raises 404 if they do not exist or are outside of the view."""
    try:
        head, body = await request.store.records.get_many([(_HEADS, id), (_BODIES, id)])
    except ValidationError:
        head = body = None
    if head is None or body is None:
        raise not_found("Chat completion", id)
    return head, body


def _completion_object(head: Record, body: Record) -> dict[str, Any]:
    completion: dict[str, Any] = msgspec.json.decode(body.value["completion"])
    return {**completion, "metadata": head.value["metadata"]}


@routes.get(ONE)
async def get_completion(request: WireRequest) -> dict[str, Any]:
    """One completion."""
    return _completion_object(*await _require(request, request.path[0]))


@routes.get(ALL, query=("limit", "order", "after", "model", "metadata"))
async def list_completions(request: WireRequest) -> dict[str, Any]:
    """A page of completions, oldest first by default."""
    limit, order, after = request.limit, request.order_or("asc"), request.parameter("after")
    if after is not None and not _ID.fullmatch(after):
        raise invalid(f"Invalid 'after': there is no chat completion with id '{after[:256]}' here.", "after")
    model, wanted = request.parameter("model"), _metadata_wanted(request)
    found: list[Record] = []
    async for head in _heads(request, order, after):
        value = head.value
        if (model is None or value["model"] == model) and wanted.items() <= value["metadata"].items():
            found.append(head)
        if len(found) > limit:
            break
    page = found[:limit]
    bodies = await request.store.records.get_many([(_BODIES, head.key) for head in page])
    # A completion may have been deleted since.
    shown = [_completion_object(head, body) for head, body in zip(page, bodies, strict=True) if body is not None]
    return listed(shown, has_more=len(found) > limit)


def _metadata_wanted(request: WireRequest) -> dict[str, str]:
    pairs = {name[len(PAIR) : -1]: values[-1] for name, values in request.query.items() if name.startswith(PAIR)}
    return metadata_given({"metadata": pairs})


async def _heads(request: WireRequest, order: Order, after: str | None) -> AsyncIterator[Record]:
    """Yields the small records. Continues correctly if the completion `after` was deleted."""
    place = RecordQuery(prefix=_HEADS, exact=True)
    cursor = None if after is None else cursors.of_record(Record(_HEADS, after, None), place)
    while True:
        page = await request.store.records.scan(_HEADS, exact=True, order=order, after=cursor, limit=_SCANNED)
        for head in page.items:
            yield head
        cursor = page.next_cursor
        if cursor is None:
            return


@routes.get(ONE + "/messages", query=("limit", "order", "after"))
async def list_completion_messages(request: WireRequest) -> dict[str, Any]:
    """A page of the input messages, in order."""
    id = request.path[0]
    _, body = await _require(request, id)
    asked = msgspec.json.decode(body.value["messages"])
    given = [_message(each, f"{id}-{number}") for number, each in enumerate(asked if isinstance(asked, list) else ())]
    given = given if request.order_or("asc") == "asc" else given[::-1]
    start, after = 0, request.parameter("after")
    if after is not None:
        start = next((number for number, each in enumerate(given, 1) if each["id"] == after), 0)
        if not start:
            raise invalid(f"Invalid 'after': there is no message with id '{after[:256]}' here.", "after")
    end = start + request.limit
    return listed(given[start:end], has_more=end < len(given))


def _message(given: Any, id: str) -> dict[str, Any]:
    """Returns a message as it was sent. Text and content parts are separate fields."""
    message = given if isinstance(given, dict) else {"role": "user", "content": given}
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    text = content if isinstance(content, str) else None
    return {"refusal": None, **message, "id": id, "content": text, "content_parts": parts}


# Updating


@routes.post(ONE)
async def update_completion(request: WireRequest) -> dict[str, Any]:
    """Replaces the metadata."""
    only(request.body, "metadata")
    if "metadata" not in request.body:
        raise missing("metadata")
    metadata = metadata_given(request.body)
    for attempt in range(1, _ATTEMPTS + 1):
        head, body = await _require(request, request.path[0])
        value = {**head.value, "metadata": metadata}
        try:
            changed = await request.store.records.put(
                _HEADS, head.key, value, expected_revision=head.revision, conversation_id=head.conversation_id
            )
        except Conflict:  # changed or deleted by another request
            await retries.back_off(attempt)
            continue
        return _completion_object(changed, body)
    raise WireError(503, "Other requests are changing the completion: try again.", code="busy", type="server_error")


@routes.delete(ONE)
async def delete_completion(request: WireRequest) -> dict[str, Any]:
    """Deletes a completion and its input messages."""
    id = request.path[0]
    await _require(request, id)
    head, _ = await request.store.records.write([Delete(_HEADS, id), Delete(_BODIES, id)])
    if head is None:
        raise not_found("Chat completion", id)
    return {"id": id, "object": "chat.completion.deleted", "deleted": True}
