"""`POST /responses`: passed on to a model endpoint, with the history of a conversation before it.

What was asked and what was answered are recorded together when the answer is complete, all or nothing. A response that
breaks off, fails or is refused leaves no trace. `previous_response_id` works here whatever the endpoint keeps: where a
response was recorded is remembered, and to go on from an older one makes a branch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from hansard.errors import Conflict, HansardError, NotFound, ValidationError
from hansard.formats import openai_items
from hansard.model import Message, Usage
from hansard.server.calls import Answer
from hansard.server.openai import answers, conversations, retries
from hansard.server.openai.answers import Asking
from hansard.server.openai.calls import WireCall, WireEndpoint
from hansard.server.openai.failures import WireError, invalid, missing, not_found, wire_error
from hansard.server.openai.history import items as items_before
from hansard.server.openai.upstream import event, events, whole
from hansard.store.records import Delete, Put

_RESPONSES = ("openai", "responses")
_RECORDED = ("completed", "incomplete")
_LONGEST = 200
"""Characters of the id of a response that can be gone on from."""
_LAST = ("response.completed", "response.incomplete", "response.failed", "error")


class Plan(Struct, frozen=True):
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
    at: str | None = None
    """The message after which it goes on, where that is not the newest."""


async def create_response(call: WireCall) -> Answer:
    """Asks the model endpoint, with the history added, and records what was said."""
    asking = Asking(call, _place(call.body))
    if call.body.get("stream"):
        return await answers.streamed(_relay(call, asking))
    async with asking.alone():
        if (known := await asking.known()) is not None:
            return Answer(known)
        plan = await _plan(call)
        async with call.upstream.ask("/responses", plan.body) as answer:
            response = object_of(await whole(answer))
        shown = encoded(_shown(call, plan, response))
        if response.get("status") in _RECORDED:
            await _record(call, plan, response, asking, shown)
    return Answer(shown)


def _place(body: dict[str, Any]) -> str | None:
    """Where a response goes, as far as the request says it."""
    conversation, previous = _conversation(body), body.get("previous_response_id")
    return conversation if conversation is not None else f"after {previous}" if isinstance(previous, str) else None


async def _plan(call: WireCall) -> Plan:
    body = call.body
    if not isinstance(body.get("model", ""), str):
        raise invalid("Invalid type for 'model': expected a string.", "model", "invalid_type")
    if body.get("background"):
        raise invalid("A response in the background cannot be recorded here: ask without 'background'.", "background")
    conversation, previous = _conversation(body), body.get("previous_response_id")
    if conversation is not None and previous is not None:
        raise invalid("Give 'conversation' or 'previous_response_id', not both.", "previous_response_id")
    at = None
    if previous is not None:
        conversation, at = await _recorded(call, previous)
    id = conversation or conversations.fresh_id("conv_")
    history: list[Message] = []
    if conversation is not None:
        await conversations.need(call.store, conversation)
        history = [message async for message in call.store.iter_messages(conversation)]
        if at is not None:
            history = _up_to(history, at)
    given = _given(call, id)
    if conversation is not None:
        await _refuse_known(call, conversation, given)
    asked = {name: value for name, value in body.items() if name not in ("conversation", "previous_response_id")}
    asked["input"] = items_before(history, given, _input(body))
    named = isinstance(body.get("conversation"), str | dict)
    return Plan(id, named, given, asked, conversation is not None, at)


def _up_to(history: list[Message], id: str) -> list[Message]:
    place = next((number for number, message in enumerate(history) if message.id == id), None)
    if place is None:
        raise invalid("The previous response is on another branch than the one that is read.", "previous_response_id")
    return history[: place + 1]


def _conversation(body: dict[str, Any]) -> str | None:
    given = body.get("conversation")
    id = given.get("id") if isinstance(given, dict) else given
    if id is not None and (not isinstance(id, str) or not id):
        raise invalid("Invalid type for 'conversation': expected an id.", "conversation", "invalid_type")
    return id


async def _recorded(call: WireCall, previous: Any) -> tuple[str, str]:
    if not isinstance(previous, str) or not 0 < len(previous) <= _LONGEST:
        raise invalid("Invalid type for 'previous_response_id'.", "previous_response_id", "invalid_type")
    found = await call.store.records.get(_RESPONSES, previous)
    if found is None:
        raise not_found("Previous response", previous)
    return found.value["conversation"], found.value["last"]


def _input(body: dict[str, Any]) -> list[Any]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise missing("input") if given is None else invalid("Invalid type for 'input'.", "input", "invalid_type")
    # What a reference names stands in the history already.
    return [item for item in given if not isinstance(item, dict) or openai_items.kind_of(item) != "item_reference"]


def _given(call: WireCall, id: str) -> list[Message]:
    return conversations.messages_given(_input(call.body), retries.marked(retries.mark_of(call, id)), "input")


async def _refuse_known(call: WireCall, id: str, given: list[Message]) -> None:
    """Refuses what is stored already, on whichever branch: it would not be stored again on the one that is meant."""
    mark = retries.mark_of(call, id)
    for message in given:
        if not message.id.endswith(mark) and await _is_taken(call, id, message.id):
            raise conversations.duplicate(f"id {message.id!r} is in the conversation already", "input")


async def _is_taken(call: WireCall, conversation_id: str, id: str) -> bool:
    try:
        await call.store.get_message(conversation_id, id, blobs="refs")
    except NotFound:
        return False
    return True


# Recording


async def _record(call: WireCall, plan: Plan, response: dict[str, Any], asking: Asking, answer: bytes) -> None:
    """Stores question and answer in one batch, and remembers where the response is."""
    if call.body.get("store") is False and not plan.named:
        return
    said = await _answered(call, plan, response)
    batch = [*plan.given, *said]
    branch = None
    if plan.at is not None:
        newest = await call.store.get_messages(plan.conversation_id, last=1)
        if newest and newest[0].id != plan.at:
            branch = (await call.store.branch(plan.conversation_id, at=plan.at)).id
    beside = _beside(call, plan, response, batch)
    if plan.exists and beside:
        # First: what it says holds only if the batch is there, and if it is, those who go on must find it.
        await call.store.records.write(beside)
    try:
        await call.store.append(plan.conversation_id, batch, branch=branch, create=not plan.named, on_duplicate="error")
    except Conflict as error:
        raise conversations.duplicate(error, "input") from error
    if not plan.exists and beside:
        await call.store.records.write(beside)
    if batch:
        asking.recorded(plan.conversation_id, batch[-1].id, answer)


def _beside(call: WireCall, plan: Plan, response: dict[str, Any], batch: list[Message]) -> list[Put | Delete]:
    """Where the response is, for those who go on from it."""
    id = response.get("id")
    if (
        not batch
        or not call.store.capabilities.records
        or not isinstance(id, str)
        or not 0 < len(id.encode()) <= _LONGEST
    ):
        return []
    here = plan.conversation_id
    return [Put(_RESPONSES, str(id), {"conversation": here, "last": batch[-1].id}, conversation_id=here)]


async def _answered(call: WireCall, plan: Plan, response: dict[str, Any]) -> list[Message]:
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


async def _with_ids_of_their_own(call: WireCall, plan: Plan, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


async def _is_free(call: WireCall, conversation_id: str, id: str) -> bool:
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


async def _relay(call: WireCall, asking: Asking) -> AsyncIterator[bytes]:
    """The endpoint's events. The last one is held back until what it ends is recorded."""
    begun = ended = False
    count = 0
    try:
        async with asking.alone():
            if (known := await asking.known()) is not None:
                yield known
                return
            plan = await _plan(call)
            async with call.upstream.ask("/responses", plan.body) as answer:
                async for raw, data in events(answer, call.gone):
                    kind = data.get("type") if isinstance(data, dict) else None
                    response = data.get("response") if isinstance(data, dict) else None
                    shown = raw
                    if isinstance(response, dict):
                        shown = event({**data, "response": _shown(call, plan, response)}, kind)
                        if kind in _LAST and response.get("status") in _RECORDED:
                            await _record(call, plan, response, asking, shown)
                    begun, ended, count = True, ended or kind in _LAST, count + 1
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


# Answers


def _shown(call: WireCall, plan: Plan, response: dict[str, Any]) -> dict[str, Any]:
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
    except msgspec.MsgspecError:
        found = None
    if not isinstance(found, dict):
        raise WireError(502, "The model endpoint did not answer with JSON.", code="upstream", type="server_error")
    return found


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


ROUTES = (
    WireEndpoint(method="POST", path="/responses", handler=create_response, scope="write", has_body=True, is_slow=True),
)
