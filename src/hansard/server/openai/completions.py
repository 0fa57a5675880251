"""`POST /chat/completions`: passed on to a model endpoint; with a conversation, its history goes before it.

This API knows no conversations: the header `Hansard-Conversation` names one. Then `messages` are only what is new.
Instructions (`system`, `developer`) among them go first and are not recorded, since clients send them every time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hansard.errors import HansardError
from hansard.formats import openai_chat, registry
from hansard.model import Message, Usage
from hansard.server import parameters
from hansard.server.calls import Answer
from hansard.server.openai import answers, retries
from hansard.server.openai.answers import Asking
from hansard.server.openai.calls import WireCall, WireEndpoint
from hansard.server.openai.failures import WireError, invalid, missing, wire_error
from hansard.server.openai.responses import encoded, object_of
from hansard.server.openai.upstream import event, events, is_done

_INSTRUCTIONS = ("system", "developer")
_ROLES = (*_INSTRUCTIONS, "user", "assistant", "tool")


async def create_completion(call: WireCall) -> Answer:
    """Asks the model endpoint; with a conversation, adds its history and records what was said."""
    id = call.headers.get(b"hansard-conversation")
    conversation = None if id is None else parameters.unquote(id, "the header of the conversation")
    given = _given(call)
    asking = Asking(call, conversation)
    if call.body.get("stream"):
        return await answers.streamed(_relay(call, conversation, given, asking))
    async with asking.alone():
        if (known := await asking.known()) is not None:
            return Answer(known)
        body = call.body if conversation is None else await _with_history(call, conversation, given)
        async with call.upstream.ask("/chat/completions", body) as answer:
            completion = object_of(await answer.aread())
        shown = encoded(completion)
        if conversation is not None:
            await _record(call, conversation, given, _said(completion), completion, asking=asking, answer=shown)
    return Answer(shown)


def _given(call: WireCall) -> list[dict[str, Any]]:
    given = call.body.get("messages")
    if given is None:
        raise missing("messages")
    if not isinstance(given, list):
        raise invalid("Invalid type for 'messages': expected an array.", "messages", "invalid_type")
    for number, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            where = f"messages[{number}]"
            raise invalid(f"Invalid value for '{where}.role'.", where, "invalid_value")
    return given


async def _with_history(call: WireCall, id: str, given: list[dict[str, Any]]) -> dict[str, Any]:
    history = [message async for message in call.store.iter_messages(id)]
    new = [message for message in given if message["role"] not in _INSTRUCTIONS]
    instructions = [message for message in given if message["role"] in _INSTRUCTIONS]
    # The calls of the history may be answered by what is new: both are read as one.
    whole = [*history, *(_message(each, "") for each in new)]
    return {**call.body, "messages": [*instructions, *registry.convert(whole, openai_chat.FORMAT)]}


def _message(native: dict[str, Any], id: str, usage: Usage | None = None) -> Message:
    return Message(native["role"], native, id, format=openai_chat.FORMAT, usage=usage)


def _said(completion: dict[str, Any]) -> dict[str, Any] | None:
    choices = completion.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    return message if isinstance(message, dict) and message.get("role") == "assistant" else None


async def _record(
    call: WireCall,
    id: str,
    given: list[dict[str, Any]],
    said: dict[str, Any] | None,
    completion: dict[str, Any],
    *,
    asking: Asking,
    answer: bytes,
) -> None:
    """Stores what was asked and the first answer in one batch. Without an answer nothing is stored."""
    if said is None:
        raise WireError(502, "The model endpoint gave no answer.", code="upstream", type="server_error")
    new_id = retries.marked(retries.mark_of(call, id))
    batch = [_message(each, new_id("msg_", 0)) for each in given if each["role"] not in _INSTRUCTIONS]
    batch.append(_message(said, new_id("msg_", 0), _usage(completion)))
    await call.store.append(id, batch)
    asking.recorded(id, batch[-1].id, answer)


def _usage(completion: dict[str, Any]) -> Usage | None:
    given, model = completion.get("usage"), completion.get("model")
    if not isinstance(given, dict):
        return None
    tokens = [given.get(name) for name in ("prompt_tokens", "completion_tokens")]
    asked, answered = (each if isinstance(each, int) and 0 <= each < 10**15 else 0 for each in tokens)
    return Usage(asked, answered, model=model if isinstance(model, str) else None)


async def _relay(
    call: WireCall, conversation: str | None, given: list[dict[str, Any]], asking: Asking
) -> AsyncIterator[bytes]:
    """The endpoint's chunks. Its last word is held back until the answer is recorded."""
    parts = Parts()
    begun = ended = False
    try:
        async with asking.alone():
            if (known := await asking.known()) is not None:
                yield known
                return
            body = call.body if conversation is None else await _with_history(call, conversation, given)
            async with call.upstream.ask("/chat/completions", body) as answer:
                async for raw, data in events(answer):
                    if is_done(raw):
                        ended = True
                        if conversation is not None:
                            said, whole = parts.message(), parts.completion
                            await _record(call, conversation, given, said, whole, asking=asking, answer=raw)
                    elif isinstance(data, dict):
                        parts.add(data)
                    begun = True
                    yield asking.passed(raw)
            if not ended:
                raise WireError(502, "The model endpoint broke off.", code="upstream", type="server_error")
    except (WireError, HansardError) as error:
        if not begun:
            raise
        yield event({"error": wire_error(error, is_trusted=False).error()})


class Parts:
    """An answer that comes in pieces: the first choice, put together."""

    def __init__(self) -> None:
        self.completion: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finished = False

    def add(self, chunk: dict[str, Any]) -> None:
        for name in ("model", "usage"):
            if chunk.get(name):
                self.completion[name] = chunk[name]
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._finished = self._finished or bool(choice.get("finish_reason"))
                self._add(choice.get("delta") or {})

    def _add(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value or ():
                    self._add_call(call)
            elif isinstance(value, str) and name != "role":
                self._message[name] = (self._message.get(name) or "") + value
            elif value is not None or name == "content":
                self._message.setdefault(name, value)

    def _add_call(self, piece: dict[str, Any]) -> None:
        known = self._calls.setdefault(piece.get("index", 0), {"type": "function"})
        for name in ("id", "type"):
            if piece.get(name):
                known[name] = piece[name]
        for kind in ("function", "custom"):
            for name, value in (piece.get(kind) or {}).items():
                inside = known.setdefault(kind, {})
                inside[name] = inside.get(name, "") + (value or "")

    def message(self) -> dict[str, Any] | None:
        """The whole message; None when the answer never came to its end."""
        if not self._finished:
            return None
        calls = {"tool_calls": [self._calls[at] for at in sorted(self._calls)]} if self._calls else {}
        return {"role": "assistant", "content": None, **self._message, **calls}


ROUTES = (
    WireEndpoint(
        method="POST", path="/chat/completions", handler=create_completion, scope="write", has_body=True, is_slow=True
    ),
)
