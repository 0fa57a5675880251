"""Threads and their messages (Assistants v2), for clients of that discontinued API. A thread is a conversation.

Any conversation can be read as a thread. Tool calls, their results and instructions, which threads do not have, are
left out and stay in the history.
"""

from __future__ import annotations

from typing import Any

from hansard.errors import ConversationNotFound, MessageNotFound, ValidationError
from hansard.formats import openai_threads
from hansard.model import Conversation, Message, Messages
from hansard.server.openai import conversations, item_pages, retries
from hansard.server.openai.wire_errors import invalid, not_found, unknown_url
from hansard.server.openai.wire_request import WireRequest, WireRoutes, listed, metadata_given, only
from hansard.store import Store

ONE = "/threads/{thread_id}"
ALL_MESSAGES = ONE + "/messages"
ONE_MESSAGE = ALL_MESSAGES + "/{message_id}"
routes = WireRoutes()

_RESOURCES = ("openai", "threads")
"""The namespace of threads' tool resources, whose records are deleted with the thread."""
_MOST = {"code_interpreter": ("file_ids", 20), "file_search": ("vector_store_ids", 1)}
_SHOWN = {"complete": "completed", "in_progress": "in_progress"}


# Threads


@routes.post("/threads")
async def create_thread(request: WireRequest) -> dict[str, Any]:
    """Creates a thread with its first messages, all or nothing."""
    only(request.body, "messages", "metadata", "tool_resources")
    metadata = metadata_given(request.body)
    resources = _resources_given(request.body)
    given = request.body.get("messages")
    if not isinstance(given, list | None):
        raise invalid("Invalid type for 'messages': expected an array.", "messages", "invalid_type")
    id = conversations.fresh_id("thread_")
    new_id = retries.new_ids(retries.fingerprint_of(request, id))
    messages = [_message(each, new_id("msg_", at), f"messages[{at}].") for at, each in enumerate(given or ())]
    if messages:
        await request.store.append(id, messages, metadata=metadata)
    else:
        await request.store.create_conversation(id, metadata=metadata)
    if resources is not None:
        await request.store.records.put(_RESOURCES, id, resources, conversation_id=id)
    return _thread(await _require(request.store, id), resources)


@routes.get(ONE)
async def get_thread(request: WireRequest) -> dict[str, Any]:
    """One thread."""
    found = await _require(request.store, request.path[0])
    return _thread(found, await _resources(request.store, found.id))


@routes.post(ONE)
async def update_thread(request: WireRequest) -> dict[str, Any]:
    """Replaces the metadata or the tool resources."""
    if request.path[0] == "runs" and "assistant_id" in request.body:
        raise unknown_url(404, "POST", "/v1/threads/runs")
    only(request.body, "metadata", "tool_resources")
    id = request.path[0]
    metadata, resources = metadata_given(request.body), _resources_given(request.body)
    found = await _require(request.store, id)
    if "metadata" in request.body:
        found = await conversations.set_metadata(request.store, id, metadata, "Thread")
    if "tool_resources" in request.body:
        await request.store.records.put(_RESOURCES, id, resources, conversation_id=id)
    return _thread(found, await _resources(request.store, id))


@routes.delete(ONE)
async def delete_thread(request: WireRequest) -> dict[str, Any]:
    """Deletes a thread and everything in it."""
    return await conversations.delete(request.store, request.path[0], "Thread", "thread.deleted")


async def _require(store: Store, id: str) -> Conversation:
    return await conversations.require(store, id, "Thread")


def _thread(conversation: Conversation, resources: Any) -> dict[str, Any]:
    return {
        **conversations.conversation_object(conversation),
        "object": "thread",
        "metadata": _texts(conversation.metadata),
        "tool_resources": resources,
    }


def _texts(metadata: dict[str, Any] | None) -> dict[str, str]:
    """Returns the metadata that a thread can show: text values only."""
    return {key: value for key, value in (metadata or {}).items() if isinstance(value, str)}


async def _resources(store: Store, id: str) -> Any:
    if not store.capabilities.records:
        return None
    found = await store.records.get(_RESOURCES, id)
    return None if found is None else found.value


def _resources_given(body: dict[str, Any]) -> dict[str, Any] | None:
    given = body.get("tool_resources")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise invalid("Invalid type for 'tool_resources': expected an object.", "tool_resources", "invalid_type")
    for name, (field, most) in _MOST.items():
        tool = given.get(name) or {}
        where = f"tool_resources.{name}"
        if not isinstance(tool, dict) or not isinstance(tool.get(field) or [], list):
            raise invalid(f"Invalid type for '{where}'.", where, "invalid_type")
        if len(tool.get(field) or []) > most:
            raise invalid(f"Invalid '{where}.{field}': at most {most}.", f"{where}.{field}", "array_above_max_length")
    return given


# Messages


@routes.post(ALL_MESSAGES)
async def create_message(request: WireRequest) -> dict[str, Any]:
    """Adds a message. An SDK's retry gets the same answer as the first request."""
    only(request.body, "role", "content", "attachments", "metadata")
    id = request.path[0]
    fingerprint = retries.fingerprint_of(request, id)
    async with request.services.retries.one_at_a_time(fingerprint):
        message = _message(request.body, retries.new_ids(fingerprint)("msg_", 0), "")
        if request.is_retry and (found := await retries.find_stored(request, id, fingerprint, 1)):
            return _message_object(found[0])
        try:
            appended = await request.store.append(id, [message], create=False)
        except ConversationNotFound:
            raise not_found("Thread", id) from None
    return _message_object(appended.messages[0])


def _message(given: Any, id: str, where: str) -> Message:
    if not isinstance(given, dict):
        raise invalid(f"Invalid type for '{where[:-1]}': expected an object.", where[:-1], "invalid_type")
    metadata = metadata_given(given, f"{where}metadata")
    return openai_threads.message_of(given, id, metadata, where)


@routes.get(ALL_MESSAGES, query=("limit", "order", "after", "before", "run_id"))
async def list_messages(request: WireRequest) -> dict[str, Any]:
    """A page of the messages of users and assistants, newest first by default."""
    after, before = request.parameter("after"), request.parameter("before")
    if after is not None and before is not None:
        raise invalid("Send 'after' or 'before', not both.", "before")
    limit, order = request.limit, request.order
    data: list[dict[str, Any]] = []
    more = request.parameter("run_id") is None
    if not more:
        # There are no runs, so no message belongs to one.
        await _require(request.store, request.path[0])
    while more and len(data) <= limit:
        place = {"after": after} if before is None else {"before": before}
        page = await _page(request, limit=min(limit + 1, request.store.limits.page), order=order, **place)
        shown = [each for each in map(_message_object_or_none, page) if each is not None]
        data = data + shown if before is None else shown + data
        more = page.has_more
        if page and before is None:
            after = page[-1].cursor
        elif page:
            before = page[0].cursor
    if not data:
        await _require(request.store, request.path[0])
    kept = data[:limit] if before is None else data[-limit:]
    return listed(kept, has_more=len(data) > limit)


async def _page(request: WireRequest, **options: Any) -> Messages:
    roles = openai_threads.SHOWN_ROLES
    try:
        return await request.store.get_messages(request.path[0], roles=roles, **options)
    except (MessageNotFound, ValidationError):
        param = "after" if options.get("after") is not None else "before"
        raise await item_pages.no_such_place(
            request.store, request.path[0], options.get(param) or "", param, "Thread"
        ) from None


@routes.get(ONE_MESSAGE)
async def get_message(request: WireRequest) -> dict[str, Any]:
    """One message."""
    return _message_object(await _find(request))


@routes.post(ONE_MESSAGE)
async def update_message(request: WireRequest) -> dict[str, Any]:
    """Replaces the metadata of a message."""
    only(request.body, "metadata")
    metadata = metadata_given(request.body)
    message = await _find(request)
    if "metadata" not in request.body:
        return _message_object(message)
    # Keep metadata that a thread cannot show.
    hidden = {key: value for key, value in (message.metadata or {}).items() if not isinstance(value, str)}
    return _message_object(await request.store.update_message(*request.path, metadata={**metadata, **hidden}))


@routes.delete(ONE_MESSAGE)
async def delete_message(request: WireRequest) -> dict[str, Any]:
    """Deletes a message."""
    await _find(request)
    if not await request.store.delete_message(*request.path):
        raise not_found("Message", request.path[1])
    return {"id": request.path[1], "object": "thread.message.deleted", "deleted": True}


async def _find(request: WireRequest) -> Message:
    try:
        message = await request.store.get_message(*request.path)
    except (MessageNotFound, ValidationError):
        message = None
    if message is None or openai_threads.content_of(message) is None:
        await _require(request.store, request.path[0])
        raise not_found("Message", request.path[1])
    return message


def _message_object_or_none(message: Message) -> dict[str, Any] | None:
    content = openai_threads.content_of(message)
    return None if content is None else _with_content(message, content)


def _message_object(message: Message) -> dict[str, Any]:
    return _with_content(message, openai_threads.content_of(message) or [])


def _with_content(message: Message, content: list[dict[str, Any]]) -> dict[str, Any]:
    created = int(message.created_at.timestamp())
    status = _SHOWN.get(message.status, "incomplete")
    who = message.participant
    return {
        "id": message.id,
        "object": "thread.message",
        "created_at": created,
        "thread_id": message.conversation_id,
        "status": status,
        "incomplete_details": {"reason": "run_cancelled"} if status == "incomplete" else None,
        "completed_at": created if status == "completed" else None,
        "incomplete_at": created if status == "incomplete" else None,
        "role": "user" if message.role == "user" else "assistant",
        "content": content,
        "assistant_id": who.id if who is not None and who.kind == "agent" else None,
        "run_id": None,
        "attachments": (message.metadata or {}).get(openai_threads.ATTACHMENTS, []),
        "metadata": _texts(message.metadata),
    }
