"""The history that is sent to a model endpoint before the input of a response, as items of the Responses API.

Any history is converted to items that are valid by the endpoint's rules. Items that only this API has are sent back
unchanged: computer and shell calls, patches, approvals, images, compactions, and types that are newer than this code.
A call that the input answers is kept; a call without an answer is left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from msgspec import structs

from hansard.assembly import prompt_ids
from hansard.formats import openai_items, registry
from hansard.formats.openai_responses import FORMAT, PAIRED
from hansard.formats.parts import OtherPart, Reading, ToolCall, ToolResult
from hansard.limits import Limits
from hansard.model import Message

_CALLS = {
    "computer_call": "call_id",
    "shell_call": "call_id",
    "local_shell_call": "call_id",
    "apply_patch_call": "call_id",
    "tool_search_call": "call_id",
    "mcp_approval_request": "id",
}
"""Calls that only this API has, and the field that identifies them in their outputs."""
_ANSWERS = {
    "computer_call_output": ("computer_call", ("call_id",)),
    "shell_call_output": ("shell_call", ("call_id",)),
    # The API and its SDKs have not always agreed on which of the two it is.
    "local_shell_call_output": ("local_shell_call", ("call_id", "id")),
    "apply_patch_call_output": ("apply_patch_call", ("call_id",)),
    "tool_search_output": ("tool_search_call", ("call_id",)),
    "mcp_approval_response": ("mcp_approval_request", ("approval_request_id",)),
}
"""Outputs: the type of their call, and the fields that may contain its id."""
_ANSWER = "_output"
TRIGGERS = ("compaction_trigger",)
"""Items that ask the endpoint to do something and are not part of the conversation."""


def items(
    history: Sequence[Message], given: Sequence[Message], sent: Sequence[Any], named: Container[int] = ()
) -> list[Any]:
    """Returns the history followed by the items that were sent, in their order.

    `given` contains the sent items as messages. `named` contains the numbers of items that a reference named; these are
    converted like the history.
    """
    stored_readings = [(message, registry.read(message)) for message in history]
    new_readings = [(message, registry.read(message)) for message in given]
    native = [message.content if _is_native(message, reading) else None for message, reading in stored_readings]
    lone = _lone([*native, *(message.content for message in given)])
    readings = [
        (message, reading if native[number] is None else _native(message))
        for number, (message, reading) in enumerate(stored_readings)
        if number not in lone
    ]
    answering = _answering([reading for _, reading in stored_readings], [reading for _, reading in new_readings])
    before, answers = _with_answers(readings, {number: new_readings[number] for number in answering})
    behind: list[Any] = []
    for is_named, numbers in groupby(range(len(sent)), key=lambda number: number in named and number not in answers):
        if is_named:
            behind += _written([new_readings[number] for number in numbers])
        else:
            behind += [{**sent[number], **answers[number]} if number in answers else sent[number] for number in numbers]
    return [*before, *behind]


def prompt_id(messages: Sequence[Message], format: str, limits: Limits) -> str:
    """Returns the id of the prompt that consists of these messages, which is stored with the answer."""
    return prompt_ids.of_history(messages, format, datetime.now(UTC), limits)


def _with_answers(
    readings: Sequence[tuple[Message, Reading]], answers: dict[int, tuple[Message, Reading]]
) -> tuple[list[Any], dict[int, dict[str, Any]]]:
    """Returns the history as items, including the calls that `answers` belong to, and the call id of each answer.

    Conversion may change the ids of calls. So each answer is converted together with its call, with a random token as
    its output to find it again, and then removed: the answers stay at their own places in the input.
    """
    tokens = {f"{secrets.token_hex(16)} {number}": number for number in answers}
    marked = [
        (message, structs.replace(reading, parts=[structs.replace(reading.parts[0], output=token)]))
        for token, (message, reading) in zip(tokens, answers.values(), strict=True)
    ]
    kept, found = [], {}
    for item in registry.convert_readings([*readings, *marked], FORMAT):
        number = tokens.get(output) if isinstance(output := item.get("output"), str) else None
        if number is None:
            kept.append(item)
        else:
            found[number] = {"type": item["type"], "call_id": item["call_id"]}
    return kept, found


def _written(named: Sequence[tuple[Message, Reading]]) -> list[Any]:
    """Converts stored messages to items. Keeps their calls, whose outputs may be elsewhere in the input."""
    readings = [(message, _native(message) if _is_native(message, reading) else reading) for message, reading in named]
    return list(registry.convert_readings(readings, FORMAT, dangling="keep"))


def _answering(stored_readings: Iterable[Reading], new_readings: Sequence[Reading]) -> list[int]:
    """Returns the numbers of the new messages that answer a call of the history."""
    waiting: dict[str, int] = {}
    for reading in stored_readings:
        for part in reading.parts:
            if isinstance(part, ToolCall):
                waiting[part.id] = waiting.get(part.id, 0) + 1
            elif isinstance(part, ToolResult) and waiting.get(part.id):
                waiting[part.id] -= 1
    found = []
    for number, reading in enumerate(new_readings):
        parts = reading.parts
        if len(parts) == 1 and isinstance(part := parts[0], ToolResult) and waiting.get(part.id):
            waiting[part.id] -= 1
            found.append(number)
    return found


def _is_native(message: Message, reading: Reading) -> bool:
    """Whether only the Responses API can express the message."""
    if message.format != FORMAT or not isinstance(message.content, dict):
        return False
    kind = message.content.get("type")
    if not isinstance(kind, str):
        return False  # an endpoint would refuse it, and with it every later request of the conversation
    is_unread = len(reading.parts) == 1 and isinstance(part := reading.parts[0], OtherPart) and not part.is_hosted
    # A tool call that could not be read is separated from its output.
    return is_unread and openai_items.is_item(message.content) and kind not in (*PAIRED, *TRIGGERS)


def _native(message: Message) -> Reading:
    item = message.content
    if _needs_no_id(item):
        item = {name: value for name, value in item.items() if name != "id"}
    return Reading([OtherPart(native=item, origin=FORMAT, is_hosted=True)])


def _needs_no_id(item: dict[str, Any]) -> bool:
    """Whether to omit the id: items without one got an id here, which the endpoint may refuse."""
    kind: str = item["type"]
    if kind in _ANSWERS:
        return kind != "local_shell_call_output"
    is_known = kind in openai_items.KINDS
    return not is_known and (kind.endswith(_ANSWER) or str(item.get("id")).startswith(openai_items.UNKNOWN_PREFIX))


def _lone(items: Iterable[Any]) -> set[int]:
    """Returns the numbers of calls without a later output, and of outputs without an earlier call."""
    waiting: dict[tuple[str, str], list[int]] = {}
    lone = set()
    for number, item in enumerate(items):
        if item is None:
            continue
        kind = item["type"]
        kinds, names = _answered_by(kind)
        if not kinds and isinstance(id := item.get(_called_by(kind)), str):
            waiting.setdefault((kind, id), []).append(number)
            lone.add(number)
        elif kinds:
            named = [id for name in names if isinstance(id := item.get(name), str)]
            calls = next((found for call in kinds for id in named if (found := waiting.get((call, id)))), None)
            if calls:
                lone.discard(calls.pop(0))
            elif named:
                lone.add(number)
    return lone


def _called_by(kind: str) -> str:
    """Returns the field with the id of a call; empty for other items. Unknown types are assumed to use `call_id`."""
    is_known = kind in openai_items.KINDS
    return _CALLS.get(kind, "" if is_known else "call_id")


def _answered_by(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the types of calls that an output may belong to, and the fields that may contain their id."""
    if kind in _ANSWERS:
        call, names = _ANSWERS[kind]
        return (call,), names
    if kind in openai_items.KINDS or not kind.endswith(_ANSWER):
        return (), ()
    # The call of `x_output` may be `x` or, as for most types, `x_call`.
    call = kind.removesuffix(_ANSWER)
    return (call, f"{call}_call"), ("call_id",)
