"""`POST /responses`: passed on to a model endpoint, with the history of a conversation before its input.

Input and output are recorded together when the answer is complete, all or nothing. A response that is cut off, fails or
is refused leaves no trace. `previous_response_id` does not depend on what the endpoint stores: each response has a
record that names its messages. Continuing from an older response creates a branch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct, structs

from hansard import ids
from hansard.errors import Conflict, HansardError, NotFound, ValidationError
from hansard.formats import openai_items
from hansard.formats.openai_responses import FORMAT
from hansard.model import Message, Usage
from hansard.server.endpoints import HttpResponse
from hansard.server.openai import answer_cache, conversations, response_record, retries, stored_responses
from hansard.server.openai.answer_cache import ModelRequest
from hansard.server.openai.background import LAST, WITH_ANSWER
from hansard.server.openai.history import TRIGGERS, prompt_id
from hansard.server.openai.history import items as items_before
from hansard.server.openai.upstream import UNREADABLE, event, events, whole
from hansard.server.openai.wire_errors import WireError, invalid, missing, not_found, wire_error
from hansard.server.openai.wire_request import WireRequest, WireRoutes

routes = WireRoutes()

_ATTEMPTS = 5
"""Attempts to record an answer during concurrent writes."""
_INSTEAD = ("conversation", "previous_response_id", "prompt")
"""Parameters with which `input` may be missing."""


_NOT_ASKED = ("conversation", "previous_response_id", "background")
"""Parameters that are handled here and not sent to the endpoint."""


class ResponsePlan(Struct, frozen=True):
    """The request to the endpoint, and where its answer is recorded."""

    conversation_id: str
    named: bool
    """The client named the conversation, so the response contains it."""
    given: list[Message]
    """The input, to be recorded with the answer."""
    body: dict[str, Any]
    """The body for the endpoint."""
    exists: bool
    """The conversation exists."""
    at: Message | None = None
    """The message to continue after, which need not be the newest."""
    is_own: bool = False
    """The conversation was created for responses, and not named by the client."""
    revision: int = 0
    """The revision of the background response's record; 0 if there is none yet."""
    prompt_id: str | None = None
    """What the endpoint is given, for the answer."""
    copies: frozenset[str] = frozenset()
    """Ids of `given` that came from references: they are already in the index."""


@routes.post("/responses", is_slow=True)
async def create_response(request: WireRequest) -> HttpResponse:
    """Asks the model endpoint, with the history added, and records input and output."""
    if request.body.get("background"):
        return await _in_background(request)
    model_request = ModelRequest(request, _place(request.body))
    if request.body.get("stream"):
        return await answer_cache.stream_response(_relay(request, model_request))
    async with model_request.serialized():
        if (known := await model_request.cached_answer()) is not None:
            return HttpResponse(known)
        plan = await _plan(request)
        async with request.services.upstream.ask("/responses", plan.body) as answer:
            response = object_of(await whole(answer))
        shown = _completed(request, plan, await Naming(request).named(response))
        if response.get("status") in WITH_ANSWER:
            shown = await _record(request, plan, shown, model_request, encoded)
    return HttpResponse(encoded(shown))


async def _in_background(request: WireRequest) -> HttpResponse:
    """Starts a background response, and returns it as queued or as a stream of its events."""
    plan = await _plan(request)

    async def answered(response: dict[str, Any], revision: int) -> None:
        await _record(
            request,
            structs.replace(plan, revision=revision),
            _completed(request, plan, response),
            ModelRequest(request, None),
            encoded,
        )

    here = plan.conversation_id if plan.exists else None
    id = await request.services.background.start(request, plan.body, plan.given, here, answered)
    if request.body.get("stream"):
        return await stored_responses.stream_events(request, id)
    record = (await response_record.require(request.store, id)).record
    return HttpResponse(encoded(await response_record.response_object(request.store, id, record)))


def _place(body: dict[str, Any]) -> str | None:
    """Returns the conversation or the previous response that the request names."""
    conversation, previous = _conversation(body), body.get("previous_response_id")
    return conversation if conversation is not None else f"after {previous}" if isinstance(previous, str) else None


async def _plan(request: WireRequest) -> ResponsePlan:
    body = request.body
    if not isinstance(body.get("model", ""), str):
        raise invalid("Invalid type for 'model': expected a string.", "model", "invalid_type")
    conversation, previous = _conversation(body), body.get("previous_response_id")
    if conversation is not None and previous is not None:
        raise invalid("Send 'conversation' or 'previous_response_id', not both.", "previous_response_id")
    at, is_own = (None, conversation is None) if previous is None else await _last_message(request, previous)
    if at is not None:
        conversation = at.conversation_id
    id = conversation or conversations.fresh_id("conv_")
    history: list[Message] = []
    if conversation is not None:
        await conversations.require(request.store, conversation)
        branch = None if at is None else at.branch
        history = [message async for message in request.store.iter_messages(conversation, branch=branch)]
        if at is not None:
            history = [message for message in history if message.seq <= at.seq]
    input = await request.services.references.resolve(request.store, _input(body), history, conversation)
    given = _given(request, id, input.items)
    if conversation is not None:
        await _refuse_stored(request, conversation, given)
    asked = {name: value for name, value in body.items() if name not in _NOT_ASKED}
    items = items_before(history, given, input.items, input.named)
    if items or body.get("input") is not None:
        asked["input"] = items
    named = isinstance(body.get("conversation"), str | dict)
    recorded = [message for message in given if message.content["type"] not in TRIGGERS]
    copies = frozenset(given[number].id for number in input.named)
    return ResponsePlan(
        id,
        named,
        recorded,
        asked,
        conversation is not None,
        at,
        is_own=is_own,
        prompt_id=prompt_id([*history, *recorded], FORMAT, request.store.limits),
        copies=copies,
    )


def _conversation(body: dict[str, Any]) -> str | None:
    given = body.get("conversation")
    id = given.get("id") if isinstance(given, dict) else given
    if id is not None and (not isinstance(id, str) or not id):
        raise invalid("Invalid type for 'conversation': expected an id.", "conversation", "invalid_type")
    return id


async def _last_message(request: WireRequest, previous: Any) -> tuple[Message, bool]:
    """Returns the last message of a response, and whether its conversation was created for responses."""
    if not isinstance(previous, str) or not 0 < len(previous) <= response_record.LONGEST:
        raise invalid("Invalid type for 'previous_response_id'.", "previous_response_id", "invalid_type")
    found = await response_record.find(request.store, previous)
    if found is None:
        raise not_found("Previous response", previous)
    record = found.record
    if record.conversation is None or record.last is None:
        what = f"Previous response with id '{previous}' has no answer to continue from."
        raise invalid(what, "previous_response_id", "previous_response_not_completed")
    try:
        return await request.store.get_message(record.conversation, record.last, blobs="refs"), record.is_own
    except NotFound:
        raise not_found("Previous response", previous) from None


def _input(body: dict[str, Any]) -> list[Any]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if given is None and any(body.get(name) is not None for name in _INSTEAD):
        return []
    if not isinstance(given, list):
        raise missing("input") if given is None else invalid("Invalid type for 'input'.", "input", "invalid_type")
    return given


def _given(request: WireRequest, id: str, items: list[Any]) -> list[Message]:
    return conversations.messages_given(items, retries.new_ids(retries.fingerprint_of(request, id)), "input")


async def _refuse_stored(request: WireRequest, id: str, given: list[Message]) -> None:
    """Refuses ids that are already stored on any branch: they would not be stored again."""
    fingerprint = retries.fingerprint_of(request, id)
    for message in given:
        if not message.id.endswith(fingerprint) and await _is_taken(request, id, message.id):
            raise conversations.duplicate(f"id {message.id!r} is in the conversation already", "input")


async def _is_taken(request: WireRequest, conversation_id: str, id: str) -> bool:
    try:
        await request.store.get_message(conversation_id, id, blobs="refs")
    except NotFound:
        return False
    return True


# Recording


class Naming:
    """The id of a response: the endpoint's, unless another response already has it.

    Some endpoints send the same id for every response. Continuing from one must not lead to another conversation.
    """

    def __init__(self, request: WireRequest) -> None:
        self._request = request
        self._given: str | None = None
        self._own: str | None = None

    async def named(self, response: dict[str, Any]) -> dict[str, Any]:
        id = response.get("id")
        if not _can_be_known(id, self._request):
            return response
        if id != self._given:
            is_free = await response_record.find(self._request.store, id) is None
            self._given, self._own = id, id if is_free else ids.new_id("resp_")
        return response if self._own == id else {**response, "id": self._own}


def _can_be_known(id: Any, request: WireRequest) -> TypeGuard[str]:
    return (
        request.store.capabilities.records and isinstance(id, str) and 0 < len(id.encode()) <= response_record.LONGEST
    )


async def _record(
    request: WireRequest,
    plan: ResponsePlan,
    response: dict[str, Any],
    model_request: ModelRequest,
    shape: Callable[[dict[str, Any]], bytes],
) -> dict[str, Any]:
    """Stores input and output in one batch, writes the record, and returns the response with its final id.

    Other requests may write to the conversation at the same time, in this process or another. After a conflict, free
    ids and the branch are determined again.
    """
    if request.body.get("store") is False and not plan.named:
        return response
    store, id = request.store, plan.conversation_id
    async with request.services.retries.exclusive_write(store, id):
        attempt = 0
        while True:
            attempt += 1
            output_messages = await _answer_messages(request, plan, response)
            batch = [*plan.given, *output_messages]
            if not batch:
                return response
            if plan.exists:
                # Before the batch: the record is only valid if the batch is stored, and must exist once it is.
                response = await _write_record(request, plan, response, output_messages, is_known=attempt > 1)
            branch, version = await _branch(request, plan, is_last=attempt == _ATTEMPTS)
            try:
                await store.append(
                    id, batch, branch=branch, create=not plan.exists, on_duplicate="error", expected_version=version
                )
                break
            except Conflict:
                await _refuse_stored(request, id, plan.given)
                if attempt == _ATTEMPTS:
                    raise
                await retries.back_off(attempt)
        if not plan.exists:
            response = await _write_record(request, plan, response, output_messages)
        await request.services.references.add(
            store, id, [message.id for message in batch if message.id not in plan.copies]
        )
        if branch is not None and (await conversations.require(store, id)).branch != branch:
            # Last, so that the active branch is never one without the answer.
            await store.switch_branch(id, branch)
    model_request.remember(id, batch[-1].id, shape(response))
    return response


async def _branch(request: WireRequest, plan: ResponsePlan, *, is_last: bool) -> tuple[str | None, int | None]:
    """Returns the branch for the answer, and the expected version of the conversation.

    It is the branch of the previous message, or a new one if that message has been continued. The last attempt always
    uses a new branch, so that the answer is not lost.
    """
    if plan.at is None:
        return None, None
    id, at = plan.conversation_id, plan.at
    swaps = request.store.capabilities.compare_and_swap
    version = (await conversations.require(request.store, id)).version if swaps else None
    newest = await request.store.get_messages(id, last=1, branch=at.branch, blobs="refs")
    if newest and newest[0].id == at.id and not (is_last and swaps):
        return at.branch, version
    return (await request.store.branch(id, at=at.id, source=at.branch, activate=False)).id, None


async def _write_record(
    request: WireRequest,
    plan: ResponsePlan,
    response: dict[str, Any],
    output_messages: list[Message],
    *,
    is_known: bool = False,
) -> dict[str, Any]:
    """Writes the record of the response. If `is_known`, it replaces the record of an earlier attempt."""
    id = response.get("id")
    if not _can_be_known(id, request):
        return response
    store, here = request.store, plan.conversation_id
    answered = partial(
        response_record.answered_record,
        conversation=here,
        input_messages=plan.given,
        output_messages=output_messages,
        is_kept=request.body.get("store") is not False,
        is_own=plan.is_own,
        is_claimed=plan.revision > 0,
    )
    revision = None if is_known else plan.revision
    try:
        await response_record.put(store, id, answered(response), revision=revision, conversation_id=here)
    except Conflict:
        if plan.revision:
            raise
        # Another response has used the id meanwhile.
        response = {**response, "id": ids.new_id("resp_")}
        await response_record.put(store, response["id"], answered(response), revision=None, conversation_id=here)
    return response


async def _answer_messages(request: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> list[Message]:
    output = response.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    items = await _with_free_ids(request, plan, items)
    new_id = retries.new_ids(retries.fingerprint_of(request, plan.conversation_id))
    try:
        output_messages = conversations.messages_given(items, new_id, "output")
    except (openai_items.BadItem, WireError) as error:
        raise WireError(502, f"The model endpoint sent an invalid item: {error}", code="upstream") from error
    output_messages = [structs.replace(each, prompt_id=plan.prompt_id) for each in output_messages]
    request.answer_usage = usage = _usage(response)
    if output_messages and usage is not None:
        output_messages[-1] = structs.replace(output_messages[-1], usage=usage)
    return output_messages


async def _with_free_ids(request: WireRequest, plan: ResponsePlan, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Removes the ids of items that the conversation already contains.

    Some endpoints number their items from one in each response. An item with a stored id would be treated as a
    duplicate and lost.
    """
    taken = {message.id for message in plan.given}
    kept = []
    for item in items:
        id = item.get("id")
        keeps = isinstance(id, str) and id not in taken and await _is_free(request, plan.conversation_id, id)
        kept.append(item if keeps else {name: value for name, value in item.items() if name != "id"})
        if isinstance(id, str):
            taken.add(id)
    return kept


async def _is_free(request: WireRequest, conversation_id: str, id: str) -> bool:
    try:
        return not await _is_taken(request, conversation_id, id)
    except ValidationError:
        return False  # not a valid id: empty or too long


def _usage(response: dict[str, Any]) -> Usage | None:
    given = response.get("usage")
    if not isinstance(given, dict):
        return None
    inside, outside = given.get("input_tokens_details") or {}, given.get("output_tokens_details") or {}
    model = response.get("model")
    return Usage(
        _count(given.get("input_tokens")),
        _count(given.get("output_tokens")),
        _count(inside.get("cached_tokens") if isinstance(inside, dict) else 0),
        _count(outside.get("reasoning_tokens") if isinstance(outside, dict) else 0),
        model=model if isinstance(model, str) else None,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**15 else 0


# Streaming


async def _relay(request: WireRequest, model_request: ModelRequest) -> AsyncIterator[bytes]:
    """Yields the endpoint's events. The last one is delayed until the answer is recorded."""
    begun = ended = False
    count = 0
    naming = Naming(request)
    try:
        async with model_request.serialized():
            if (known := await model_request.cached_answer()) is not None:
                yield known
                return
            plan = await _plan(request)
            async with request.services.upstream.ask("/responses", plan.body) as answer:
                async for raw, data in events(answer, request.stream.disconnected):
                    kind = data.get("type") if isinstance(data, dict) else None
                    response = data.get("response") if isinstance(data, dict) else None
                    shown = raw
                    if isinstance(response, dict):
                        shape = partial(_event, data)
                        response = _completed(request, plan, await naming.named(response))
                        if kind in LAST and response.get("status") in WITH_ANSWER:
                            response = await _record(request, plan, response, model_request, shape)
                        shown = shape(response)
                    begun, ended, count = True, ended or kind in LAST, count + 1
                    yield model_request.note_piece(shown)
            if not ended:
                raise WireError(502, "The model endpoint broke off.", code="upstream", type="server_error")
    except (WireError, HansardError) as error:
        if not begun:
            raise
        if ended:
            return  # everything is recorded, so an error while the endpoint closes does not matter
        reported = wire_error(error, is_trusted=False)
        named = {"code": reported.code, "message": str(reported), "param": reported.param, "sequence_number": count}
        yield event({"type": "error", **named}, "error")


def _event(data: dict[str, Any], response: dict[str, Any]) -> bytes:
    return event({**data, "response": response}, data.get("type"))


# Answers


def _completed(request: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> dict[str, Any]:
    """Adds the conversation and the previous response to the endpoint's response."""
    shown = dict(response)
    if plan.named:
        shown["conversation"] = {"id": plan.conversation_id}
    if request.body.get("previous_response_id") is not None:
        shown["previous_response_id"] = request.body["previous_response_id"]
    return shown


def object_of(raw: bytes) -> dict[str, Any]:
    """Decodes the endpoint's answer."""
    try:
        found = msgspec.json.decode(raw)
    except UNREADABLE:
        found = None
    if not isinstance(found, dict):
        raise WireError(502, "The model endpoint did not answer with JSON.", code="upstream", type="server_error")
    return found


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
