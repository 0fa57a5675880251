"""`POST /chat/completions`: passed on to a model endpoint, with the history of a conversation if one is named.

This API has no conversations, so the header `Hansard-Conversation` names one. `messages` then contains only the new
messages. Instructions (`system`, `developer`) among them are sent first and not recorded, because clients repeat them
in every request.

With `store: true`, the completion is also stored, under an id of our own: see `stored_completions`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct, structs

from hansard.errors import HansardError
from hansard.formats import openai_chat, registry
from hansard.model import Message, Usage
from hansard.server import parameters
from hansard.server.endpoints import HttpResponse
from hansard.server.openai import answer_cache, history, retries, stored_completions
from hansard.server.openai.answer_cache import ModelRequest
from hansard.server.openai.chunks import Chunks
from hansard.server.openai.responses import encoded, object_of
from hansard.server.openai.upstream import StreamDisconnected, event, events, is_done, whole
from hansard.server.openai.wire_errors import WireError, invalid, missing, wire_error
from hansard.server.openai.wire_request import WireRequest, WireRoutes

routes = WireRoutes()

_INSTRUCTIONS = ("system", "developer")
_ROLES = (*_INSTRUCTIONS, "user", "assistant", "tool")


@routes.post("/chat/completions", is_slow=True)
async def create_completion(request: WireRequest) -> HttpResponse:
    """Asks the model endpoint. With a conversation, adds its history and records the new messages and the answer."""
    id = request.headers.get(b"hansard-conversation")
    conversation = None if id is None else parameters.unquote(id, "the header of the conversation")
    given = [] if conversation is None else _given(request)
    model_request = ModelRequest(request, conversation)
    own = stored_completions.id_for(request)
    if request.body.get("stream"):
        return await answer_cache.stream_response(_relay(request, conversation, given, model_request, own))
    async with model_request.serialized():
        if (known := await model_request.cached_answer()) is not None:
            return HttpResponse(known)
        plan = await _plan(request, conversation, given)
        async with request.services.upstream.ask("/chat/completions", plan.body) as answer:
            completion = object_of(await whole(answer))
        if own is not None:
            completion["id"] = own
        shown = encoded(completion)
        if conversation is not None:
            await _record(
                request, plan, _assistant_message(completion), completion, model_request=model_request, answer=shown
            )
        if own is not None and _assistant_message(completion) is not None:
            await stored_completions.store_completion(request, completion, conversation)
    return HttpResponse(shown)


def _given(request: WireRequest) -> list[dict[str, Any]]:
    given = request.body.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        raise invalid("Invalid type for 'messages': expected an array.", "messages", "invalid_type")
    for number, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            where = f"messages[{number}]"
            allowed = ", ".join(f"'{role}'" for role in _ROLES)
            raise invalid(f"Invalid value for '{where}.role': supported are {allowed}.", where)
    return given


class CompletionPlan(Struct, frozen=True):
    """The request to the endpoint, and the conversation of its answer."""

    body: dict[str, Any]
    given: list[dict[str, Any]]
    conversation: str | None
    exists: bool = False
    """The conversation exists. If it is deleted meanwhile, it is not created again."""
    stored: Sequence[Message] = ()
    """The history that the endpoint is given before the new messages."""


async def _plan(request: WireRequest, id: str | None, given: list[dict[str, Any]]) -> CompletionPlan:
    if id is None:
        return CompletionPlan(request.body, given, None)
    exists = await request.store.get_conversation(id) is not None
    stored = [message async for message in request.store.iter_messages(id)]
    new = [message for message in given if message["role"] not in _INSTRUCTIONS]
    instructions = [message for message in given if message["role"] in _INSTRUCTIONS]
    # New messages may contain results of calls in the history, so both are converted together.
    both = [*stored, *(_message(each, "") for each in new)]
    body = {**request.body, "messages": [*instructions, *registry.convert(both, openai_chat.FORMAT)]}
    return CompletionPlan(body, new, id, exists, stored)


def _message(native: dict[str, Any], id: str, usage: Usage | None = None) -> Message:
    return Message(native["role"], native, id, format=openai_chat.FORMAT, usage=usage)


def _assistant_message(completion: dict[str, Any]) -> dict[str, Any] | None:
    choices = completion.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    return message if isinstance(message, dict) and message.get("role") == "assistant" else None


async def _record(
    request: WireRequest,
    plan: CompletionPlan,
    answer_message: dict[str, Any] | None,
    completion: dict[str, Any],
    *,
    model_request: ModelRequest,
    answer: bytes,
) -> None:
    """Stores the new messages and the first choice in one batch. Without an answer, nothing is stored."""
    if answer_message is None:
        raise WireError(502, "The model endpoint sent no answer.", code="upstream", type="server_error")
    id = plan.conversation
    assert id is not None
    new_id = retries.new_ids(retries.fingerprint_of(request, id))
    batch = [_message(each, new_id("msg_", 0)) for each in plan.given]
    prompt_id = history.prompt_id([*plan.stored, *batch], openai_chat.FORMAT, request.store.limits)
    request.answer_usage = _usage(completion)
    made = _message(answer_message, new_id("msg_", 0), request.answer_usage)
    batch.append(structs.replace(made, prompt_id=prompt_id))
    await request.store.append(id, batch, create=not plan.exists)
    model_request.remember(id, batch[-1].id, answer)


def _usage(completion: dict[str, Any]) -> Usage | None:
    given, model = completion.get("usage"), completion.get("model")
    if not isinstance(given, dict):
        return None
    tokens = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    asked, answered = (each if isinstance(each, int) and 0 <= each < 10**15 else 0 for each in tokens)
    return Usage(asked, answered, model=model if isinstance(model, str) else None)


async def _relay(
    request: WireRequest,
    conversation: str | None,
    given: list[dict[str, Any]],
    model_request: ModelRequest,
    own: str | None,
) -> AsyncIterator[bytes]:
    """Yields the endpoint's chunks. The last event is delayed until the answer is recorded."""
    chunks = Chunks()
    begun = ended = False

    async def end(last: bytes) -> None:
        if plan.conversation is not None:
            await _record(request, plan, chunks.message(), chunks.completion, model_request=model_request, answer=last)
        if own is not None and chunks.is_finished:
            await stored_completions.store_completion(request, chunks.whole(own), plan.conversation)

    try:
        async with model_request.serialized():
            if (known := await model_request.cached_answer()) is not None:
                yield known
                return
            plan = await _plan(request, conversation, given)
            async with request.services.upstream.ask("/chat/completions", plan.body) as answer:
                async for raw in _collected_events(request, answer, chunks, own):
                    if not ended and is_done(raw):
                        await end(raw)
                        ended = True
                    begun = True
                    yield model_request.note_piece(raw)
            if not ended and chunks.is_finished:
                # Not every endpoint sends a last event.
                await end(b"")
                ended = True
            if not ended:
                raise WireError(502, "The model endpoint broke off.", code="upstream", type="server_error")
    except (WireError, HansardError) as error:
        if not begun:
            raise
        if ended:
            return  # everything is recorded, so an error while the endpoint closes does not matter
        yield event({"error": wire_error(error, is_trusted=False).error()})


async def _collected_events(request: WireRequest, answer: Any, chunks: Chunks, own: str | None) -> AsyncIterator[bytes]:
    """Yields the events and adds them to `chunks`. A client may leave after the whole answer, before the last event."""
    try:
        async for raw, data in events(answer, request.stream.disconnected):
            if isinstance(data, dict):
                chunks.add(data)
            yield event({**data, "id": own}) if own is not None and isinstance(data, dict) and "id" in data else raw
    except StreamDisconnected:
        if not chunks.is_finished:
            raise
