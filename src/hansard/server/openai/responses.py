"""`POST /responses`: passed on to a model endpoint, with the history of a conversation before it.

What was asked and what was answered are recorded together when the answer is complete, all or nothing. A response that
breaks off, fails or is refused leaves no trace. `previous_response_id` works here whatever the endpoint keeps: a
response has a record, which says where its messages are, and to go on from an older one makes a branch.
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
from hansard.model import Message, Usage
from hansard.server.endpoints import HttpResponse
from hansard.server.openai import answer_cache, conversations, response_record, retries, stored_responses
from hansard.server.openai.answer_cache import ModelRequest
from hansard.server.openai.background import LAST, WITH_ANSWER
from hansard.server.openai.history import TRIGGERS
from hansard.server.openai.history import items as items_before
from hansard.server.openai.upstream import UNREADABLE, event, events, whole
from hansard.server.openai.wire_errors import WireError, invalid, missing, not_found, wire_error
from hansard.server.openai.wire_request import WireRequest, WireRoutes

routes = WireRoutes()

_ATTEMPTS = 5
"""To record an answer where others record theirs."""
_INSTEAD = ("conversation", "previous_response_id", "prompt")
"""What a response may answer where nothing new is said."""


_NOT_ASKED = ("conversation", "previous_response_id", "background")
"""What the endpoint is not asked: it is done here."""


class ResponsePlan(Struct, frozen=True):
    """Where a response goes, and what goes before it."""

    conversation_id: str
    named: bool
    """The caller named the conversation, so the answer names it too."""
    given: list[Message]
    """What the caller sent, to be recorded with the answer."""
    body: dict[str, Any]
    """What the endpoint is asked."""
    exists: bool
    """The conversation does already."""
    at: Message | None = None
    """The message after which it goes on, which need not be the newest."""
    is_own: bool = False
    """The conversation is there for responses alone: nobody has named it."""
    revision: int = 0
    """Of the record that waits for the answer; 0 where there is none yet."""
    copies: frozenset[str] = frozenset()
    """Those of `given` that a reference named: they are known where they were first."""


@routes.post("/responses", is_slow=True)
async def create_response(request: WireRequest) -> HttpResponse:
    """Asks the model endpoint, with the history added, and records what was said."""
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
    """Answers with a response that is queued, or with the events of it, and leaves the rest to a task."""
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
    """Where a response goes, as far as the request says it."""
    conversation, previous = _conversation(body), body.get("previous_response_id")
    return conversation if conversation is not None else f"after {previous}" if isinstance(previous, str) else None


async def _plan(request: WireRequest) -> ResponsePlan:
    body = request.body
    if not isinstance(body.get("model", ""), str):
        raise invalid("Invalid type for 'model': expected a string.", "model", "invalid_type")
    conversation, previous = _conversation(body), body.get("previous_response_id")
    if conversation is not None and previous is not None:
        raise invalid("Give 'conversation' or 'previous_response_id', not both.", "previous_response_id")
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
    return ResponsePlan(id, named, recorded, asked, conversation is not None, at, is_own=is_own, copies=copies)


def _conversation(body: dict[str, Any]) -> str | None:
    given = body.get("conversation")
    id = given.get("id") if isinstance(given, dict) else given
    if id is not None and (not isinstance(id, str) or not id):
        raise invalid("Invalid type for 'conversation': expected an id.", "conversation", "invalid_type")
    return id


async def _last_message(request: WireRequest, previous: Any) -> tuple[Message, bool]:
    """The last message of a response, and whether its conversation is there for responses alone."""
    if not isinstance(previous, str) or not 0 < len(previous) <= response_record.LONGEST:
        raise invalid("Invalid type for 'previous_response_id'.", "previous_response_id", "invalid_type")
    found = await response_record.find(request.store, previous)
    if found is None:
        raise not_found("Previous response", previous)
    record = found.record
    if record.conversation is None or record.last is None:
        what = f"Previous response with id '{previous}' has no answer that could be gone on from."
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
    return conversations.messages_given(items, retries.new_ids(retries.mark_of(request, id)), "input")


async def _refuse_stored(request: WireRequest, id: str, given: list[Message]) -> None:
    """Refuses what is stored already, on whichever branch: it would not be stored again on the one that is meant."""
    mark = retries.mark_of(request, id)
    for message in given:
        if not message.id.endswith(mark) and await _is_taken(request, id, message.id):
            raise conversations.duplicate(f"id {message.id!r} is in the conversation already", "input")


async def _is_taken(request: WireRequest, conversation_id: str, id: str) -> bool:
    try:
        await request.store.get_message(conversation_id, id, blobs="refs")
    except NotFound:
        return False
    return True


# Recording


class Naming:
    """The id by which a response is known here: the endpoint's, unless another response is known by it already.

    Some endpoints give every response the same id: whoever goes on from one must not find another conversation.
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
    """Stores question and answer in one batch, and remembers where the response is. Gives it as it is known now.

    Others may answer in the same conversation at the same moment, in this process and in others: who is overtaken looks
    again which ids are free and where it goes on.
    """
    if request.body.get("store") is False and not plan.named:
        return response
    store, id = request.store, plan.conversation_id
    async with request.services.retries.exclusive_write(store, id):
        attempt = 0
        while True:
            attempt += 1
            said = await _answer_messages(request, plan, response)
            batch = [*plan.given, *said]
            if not batch:
                return response
            if plan.exists:
                # First: what it says holds only if the batch is there, and if it is, those who go on must find it.
                response = await _write_record(request, plan, response, said, is_known=attempt > 1)
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
            response = await _write_record(request, plan, response, said)
        await request.services.references.add(
            store, id, [message.id for message in batch if message.id not in plan.copies]
        )
        if branch is not None and (await conversations.require(store, id)).branch != branch:
            # Last: where nothing was said, nobody is to be taken.
            await store.switch_branch(id, branch)
    model_request.remember(id, batch[-1].id, shape(response))
    return response


async def _branch(request: WireRequest, plan: ResponsePlan, *, is_last: bool) -> tuple[str | None, int | None]:
    """Where it goes on: on the branch of the message before it, or on a new one where others went on from there.

    And the version at which that was so, where others might still come between. Where they always did, a branch of its
    own keeps the answer that a model has given.
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
    request: WireRequest, plan: ResponsePlan, response: dict[str, Any], said: list[Message], *, is_known: bool = False
) -> dict[str, Any]:
    """Writes the record of the response. One that is known goes by the id that it has already."""
    id = response.get("id")
    if not _can_be_known(id, request):
        return response
    store, here = request.store, plan.conversation_id
    answered = partial(
        response_record.answered_record,
        conversation=here,
        asked=plan.given,
        said=said,
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
        # Another response took the id meanwhile.
        response = {**response, "id": ids.new_id("resp_")}
        await response_record.put(store, response["id"], answered(response), revision=None, conversation_id=here)
    return response


async def _answer_messages(request: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> list[Message]:
    output = response.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    items = await _with_free_ids(request, plan, items)
    new_id = retries.new_ids(retries.mark_of(request, plan.conversation_id))
    try:
        said = conversations.messages_given(items, new_id, "output")
    except (openai_items.BadItem, WireError) as error:
        raise WireError(502, f"The model endpoint sent what is no item: {error}", code="upstream") from error
    if said and (usage := _usage(response)) is not None:
        said[-1] = structs.replace(said[-1], usage=usage)
    return said


async def _with_free_ids(request: WireRequest, plan: ResponsePlan, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items, those without their ids that cannot keep them.

    Some endpoints count from one in each response: what is said under an id that the conversation has already would
    be taken for what is stored there, and be lost.
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
        return False  # no id of ours: empty, or too long


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
    """The endpoint's events. The last one is held back until what it ends is recorded."""
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
            return  # all was said and recorded: how the endpoint hangs up is nobody's affair
        told = wire_error(error, is_trusted=False)
        named = {"code": told.code, "message": str(told), "param": told.param, "sequence_number": count}
        yield event({"type": "error", **named}, "error")


def _event(data: dict[str, Any], response: dict[str, Any]) -> bytes:
    return event({**data, "response": response}, data.get("type"))


# Answers


def _completed(request: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> dict[str, Any]:
    """The response as if the endpoint had known the conversation."""
    shown = dict(response)
    if plan.named:
        shown["conversation"] = {"id": plan.conversation_id}
    if request.body.get("previous_response_id") is not None:
        shown["previous_response_id"] = request.body["previous_response_id"]
    return shown


def object_of(raw: bytes) -> dict[str, Any]:
    """The endpoint's answer."""
    try:
        found = msgspec.json.decode(raw)
    except UNREADABLE:
        found = None
    if not isinstance(found, dict):
        raise WireError(502, "The model endpoint did not answer with JSON.", code="upstream", type="server_error")
    return found


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
