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
from hansard.server.openai.background import LAST, RECORDED
from hansard.server.openai.history import NOT_SAID
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
async def create_response(call: WireRequest) -> HttpResponse:
    """Asks the model endpoint, with the history added, and records what was said."""
    if call.body.get("background"):
        return await _in_background(call)
    asking = ModelRequest(call, _place(call.body))
    if call.body.get("stream"):
        return await answer_cache.streamed(_relay(call, asking))
    async with asking.alone():
        if (known := await asking.known()) is not None:
            return HttpResponse(known)
        plan = await _plan(call)
        async with call.services.upstream.ask("/responses", plan.body) as answer:
            response = object_of(await whole(answer))
        shown = _shown(call, plan, await Naming(call).named(response))
        if response.get("status") in RECORDED:
            shown = await _record(call, plan, shown, asking, encoded)
    return HttpResponse(encoded(shown))


async def _in_background(call: WireRequest) -> HttpResponse:
    """Answers with a response that is queued, or with the events of it, and leaves the rest to a task."""
    plan = await _plan(call)

    async def answered(response: dict[str, Any], revision: int) -> None:
        await _record(
            call,
            structs.replace(plan, revision=revision),
            _shown(call, plan, response),
            ModelRequest(call, None),
            encoded,
        )

    here = plan.conversation_id if plan.exists else None
    id = await call.services.background.start(call, plan.body, plan.given, here, answered)
    if call.body.get("stream"):
        return await stored_responses.streamed(call, id)
    record = (await response_record.need(call.store, id)).record
    return HttpResponse(encoded(await response_record.shown(call.store, id, record)))


def _place(body: dict[str, Any]) -> str | None:
    """Where a response goes, as far as the request says it."""
    conversation, previous = _conversation(body), body.get("previous_response_id")
    return conversation if conversation is not None else f"after {previous}" if isinstance(previous, str) else None


async def _plan(call: WireRequest) -> ResponsePlan:
    body = call.body
    if not isinstance(body.get("model", ""), str):
        raise invalid("Invalid type for 'model': expected a string.", "model", "invalid_type")
    conversation, previous = _conversation(body), body.get("previous_response_id")
    if conversation is not None and previous is not None:
        raise invalid("Give 'conversation' or 'previous_response_id', not both.", "previous_response_id")
    at, is_own = (None, conversation is None) if previous is None else await _recorded(call, previous)
    if at is not None:
        conversation = at.conversation_id
    id = conversation or conversations.fresh_id("conv_")
    history: list[Message] = []
    if conversation is not None:
        await conversations.need(call.store, conversation)
        branch = None if at is None else at.branch
        history = [message async for message in call.store.iter_messages(conversation, branch=branch)]
        if at is not None:
            history = [message for message in history if message.seq <= at.seq]
    input = await call.services.references.resolve(call.store, _input(body), history, conversation)
    given = _given(call, id, input.items)
    if conversation is not None:
        await _refuse_known(call, conversation, given)
    asked = {name: value for name, value in body.items() if name not in _NOT_ASKED}
    items = items_before(history, given, input.items, input.named)
    if items or body.get("input") is not None:
        asked["input"] = items
    named = isinstance(body.get("conversation"), str | dict)
    recorded = [message for message in given if message.content["type"] not in NOT_SAID]
    copies = frozenset(given[number].id for number in input.named)
    return ResponsePlan(id, named, recorded, asked, conversation is not None, at, is_own=is_own, copies=copies)


def _conversation(body: dict[str, Any]) -> str | None:
    given = body.get("conversation")
    id = given.get("id") if isinstance(given, dict) else given
    if id is not None and (not isinstance(id, str) or not id):
        raise invalid("Invalid type for 'conversation': expected an id.", "conversation", "invalid_type")
    return id


async def _recorded(call: WireRequest, previous: Any) -> tuple[Message, bool]:
    """The last message of a response, and whether its conversation is there for responses alone."""
    if not isinstance(previous, str) or not 0 < len(previous) <= response_record.LONGEST:
        raise invalid("Invalid type for 'previous_response_id'.", "previous_response_id", "invalid_type")
    found = await response_record.find(call.store, previous)
    if found is None:
        raise not_found("Previous response", previous)
    record = found.record
    if record.conversation is None or record.last is None:
        what = f"Previous response with id '{previous}' has no answer that could be gone on from."
        raise invalid(what, "previous_response_id", "previous_response_not_completed")
    try:
        return await call.store.get_message(record.conversation, record.last, blobs="refs"), record.is_own
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


def _given(call: WireRequest, id: str, items: list[Any]) -> list[Message]:
    return conversations.messages_given(items, retries.marked(retries.mark_of(call, id)), "input")


async def _refuse_known(call: WireRequest, id: str, given: list[Message]) -> None:
    """Refuses what is stored already, on whichever branch: it would not be stored again on the one that is meant."""
    mark = retries.mark_of(call, id)
    for message in given:
        if not message.id.endswith(mark) and await _is_taken(call, id, message.id):
            raise conversations.duplicate(f"id {message.id!r} is in the conversation already", "input")


async def _is_taken(call: WireRequest, conversation_id: str, id: str) -> bool:
    try:
        await call.store.get_message(conversation_id, id, blobs="refs")
    except NotFound:
        return False
    return True


# Recording


class Naming:
    """The id by which a response is known here: the endpoint's, unless another response is known by it already.

    Some endpoints give every response the same id: whoever goes on from one must not find another conversation.
    """

    def __init__(self, call: WireRequest) -> None:
        self._call = call
        self._given: str | None = None
        self._own: str | None = None

    async def named(self, response: dict[str, Any]) -> dict[str, Any]:
        id = response.get("id")
        if not _can_be_known(id, self._call):
            return response
        if id != self._given:
            is_free = await response_record.find(self._call.store, id) is None
            self._given, self._own = id, id if is_free else ids.new_id("resp_")
        return response if self._own == id else {**response, "id": self._own}


def _can_be_known(id: Any, call: WireRequest) -> TypeGuard[str]:
    return call.store.capabilities.records and isinstance(id, str) and 0 < len(id.encode()) <= response_record.LONGEST


async def _record(
    call: WireRequest,
    plan: ResponsePlan,
    response: dict[str, Any],
    asking: ModelRequest,
    shape: Callable[[dict[str, Any]], bytes],
) -> dict[str, Any]:
    """Stores question and answer in one batch, and remembers where the response is. Gives it as it is known now.

    Others may answer in the same conversation at the same moment, in this process and in others: who is overtaken looks
    again which ids are free and where it goes on.
    """
    if call.body.get("store") is False and not plan.named:
        return response
    store, id = call.store, plan.conversation_id
    async with call.services.retries.writing(store, id):
        attempt = 0
        while True:
            attempt += 1
            said = await _answered(call, plan, response)
            batch = [*plan.given, *said]
            if not batch:
                return response
            if plan.exists:
                # First: what it says holds only if the batch is there, and if it is, those who go on must find it.
                response = await _remember(call, plan, response, said, is_known=attempt > 1)
            branch, version = await _branch(call, plan, is_last=attempt == _ATTEMPTS)
            try:
                await store.append(
                    id, batch, branch=branch, create=not plan.exists, on_duplicate="error", expected_version=version
                )
                break
            except Conflict:
                await _refuse_known(call, id, plan.given)
                if attempt == _ATTEMPTS:
                    raise
                await retries.give_way(attempt)
        if not plan.exists:
            response = await _remember(call, plan, response, said)
        await call.services.references.add(
            store, id, [message.id for message in batch if message.id not in plan.copies]
        )
        if branch is not None and (await conversations.need(store, id)).branch != branch:
            # Last: where nothing was said, nobody is to be taken.
            await store.switch_branch(id, branch)
    asking.recorded(id, batch[-1].id, shape(response))
    return response


async def _branch(call: WireRequest, plan: ResponsePlan, *, is_last: bool) -> tuple[str | None, int | None]:
    """Where it goes on: on the branch of the message before it, or on a new one where others went on from there.

    And the version at which that was so, where others might still come between. Where they always did, a branch of its
    own keeps the answer that a model has given.
    """
    if plan.at is None:
        return None, None
    id, at = plan.conversation_id, plan.at
    swaps = call.store.capabilities.compare_and_swap
    version = (await conversations.need(call.store, id)).version if swaps else None
    newest = await call.store.get_messages(id, last=1, branch=at.branch, blobs="refs")
    if newest and newest[0].id == at.id and not (is_last and swaps):
        return at.branch, version
    return (await call.store.branch(id, at=at.id, source=at.branch, activate=False)).id, None


async def _remember(
    call: WireRequest, plan: ResponsePlan, response: dict[str, Any], said: list[Message], *, is_known: bool = False
) -> dict[str, Any]:
    """Writes the record of the response. One that is known goes by the id that it has already."""
    id = response.get("id")
    if not _can_be_known(id, call):
        return response
    store, here = call.store, plan.conversation_id
    answered = partial(
        response_record.answered,
        conversation=here,
        asked=plan.given,
        said=said,
        is_kept=call.body.get("store") is not False,
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


async def _answered(call: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> list[Message]:
    output = response.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    items = await _with_ids_of_their_own(call, plan, items)
    new_id = retries.marked(retries.mark_of(call, plan.conversation_id))
    try:
        said = conversations.messages_given(items, new_id, "output")
    except (openai_items.BadItem, WireError) as error:
        raise WireError(502, f"The model endpoint sent what is no item: {error}", code="upstream") from error
    if said and (usage := _usage(response)) is not None:
        said[-1] = structs.replace(said[-1], usage=usage)
    return said


async def _with_ids_of_their_own(
    call: WireRequest, plan: ResponsePlan, items: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The items, those without their ids that cannot keep them.

    Some endpoints count from one in each response: what is said under an id that the conversation has already would
    be taken for what is stored there, and be lost.
    """
    taken = {message.id for message in plan.given}
    kept = []
    for item in items:
        id = item.get("id")
        keeps = isinstance(id, str) and id not in taken and await _is_free(call, plan.conversation_id, id)
        kept.append(item if keeps else {name: value for name, value in item.items() if name != "id"})
        if isinstance(id, str):
            taken.add(id)
    return kept


async def _is_free(call: WireRequest, conversation_id: str, id: str) -> bool:
    try:
        return not await _is_taken(call, conversation_id, id)
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


async def _relay(call: WireRequest, asking: ModelRequest) -> AsyncIterator[bytes]:
    """The endpoint's events. The last one is held back until what it ends is recorded."""
    begun = ended = False
    count = 0
    naming = Naming(call)
    try:
        async with asking.alone():
            if (known := await asking.known()) is not None:
                yield known
                return
            plan = await _plan(call)
            async with call.services.upstream.ask("/responses", plan.body) as answer:
                async for raw, data in events(answer, call.stream.gone):
                    kind = data.get("type") if isinstance(data, dict) else None
                    response = data.get("response") if isinstance(data, dict) else None
                    shown = raw
                    if isinstance(response, dict):
                        shape = partial(_event, data)
                        response = _shown(call, plan, await naming.named(response))
                        if kind in LAST and response.get("status") in RECORDED:
                            response = await _record(call, plan, response, asking, shape)
                        shown = shape(response)
                    begun, ended, count = True, ended or kind in LAST, count + 1
                    yield asking.passed(shown)
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


def _shown(call: WireRequest, plan: ResponsePlan, response: dict[str, Any]) -> dict[str, Any]:
    """The response as if the endpoint had known the conversation."""
    shown = dict(response)
    if plan.named:
        shown["conversation"] = {"id": plan.conversation_id}
    if call.body.get("previous_response_id") is not None:
        shown["previous_response_id"] = call.body["previous_response_id"]
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
