"""What goes to a model endpoint before the input of a response: what was said, in the endpoint's own words.

Any history becomes items, valid by the endpoint's rules. What only this API has a word for goes back to the endpoint as
it came from there: the use of a computer or a shell, patches, approvals, images, a compaction, and types that are newer
than this code. A call that the input answers belongs to it, and so stays; one that nobody answers is left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import Any

from msgspec import structs

from hansard.formats import openai_items, registry
from hansard.formats.openai_responses import FORMAT, PAIRED
from hansard.formats.parts import OtherPart, Reading, ToolCall, ToolResult
from hansard.model import Message

_CALLS = {
    "computer_call": "call_id",
    "shell_call": "call_id",
    "local_shell_call": "call_id",
    "apply_patch_call": "call_id",
    "tool_search_call": "call_id",
    "mcp_approval_request": "id",
}
"""Calls that only this API knows, and the field that their answers name them by."""
_ANSWERS = {
    "computer_call_output": ("computer_call", ("call_id",)),
    "shell_call_output": ("shell_call", ("call_id",)),
    # Which of the two it is, the API and its SDKs have not always agreed.
    "local_shell_call_output": ("local_shell_call", ("call_id", "id")),
    "apply_patch_call_output": ("apply_patch_call", ("call_id",)),
    "tool_search_output": ("tool_search_call", ("call_id",)),
    "mcp_approval_response": ("mcp_approval_request", ("approval_request_id",)),
}
"""What answers them, and where it names them."""
_ANSWER = "_output"
TRIGGERS = ("compaction_trigger",)
"""Items that ask the endpoint to do something, and are no part of what is said."""


def items(
    history: Sequence[Message], given: Sequence[Message], sent: Sequence[Any], named: Container[int] = ()
) -> list[Any]:
    """The history and, behind it, what was sent, in the order in which it was sent: `given` are the same as messages.

    `named` are the numbers of those that the caller did not send itself, but named by a reference. They are written as
    the history is.
    """
    said = [(message, registry.read(message)) for message in history]
    asked = [(message, registry.read(message)) for message in given]
    native = [message.content if _is_native(message, reading) else None for message, reading in said]
    lone = _lone([*native, *(message.content for message in given)])
    readings = [
        (message, reading if native[number] is None else _native(message))
        for number, (message, reading) in enumerate(said)
        if number not in lone
    ]
    answering = _answering([reading for _, reading in said], [reading for _, reading in asked])
    before, answers = _with_answers(readings, {number: asked[number] for number in answering})
    behind: list[Any] = []
    for is_named, numbers in groupby(range(len(sent)), key=lambda number: number in named and number not in answers):
        if is_named:
            behind += _written([asked[number] for number in numbers])
        else:
            behind += [{**sent[number], **answers[number]} if number in answers else sent[number] for number in numbers]
    return [*before, *behind]


def _with_answers(
    readings: Sequence[tuple[Message, Reading]], answers: dict[int, tuple[Message, Reading]]
) -> tuple[list[Any], dict[int, dict[str, Any]]]:
    """The history as items, with the calls that are answered behind it; and how each answer names its call.

    The ids of calls may be written anew. So the answers are converted with their calls, each as a token by which it is
    found again, and taken out: they stand where they were sent.
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
    """Stored messages as items. Calls among them stay: what answers them may stand elsewhere in the input."""
    readings = [(message, _native(message) if _is_native(message, reading) else reading) for message, reading in named]
    return list(registry.convert_readings(readings, FORMAT, dangling="keep"))


def _answering(said: Iterable[Reading], asked: Sequence[Reading]) -> list[int]:
    """Which of the readings answer a call of the history: these are written with their calls, whose ids may be new."""
    waiting: dict[str, int] = {}
    for reading in said:
        for part in reading.parts:
            if isinstance(part, ToolCall):
                waiting[part.id] = waiting.get(part.id, 0) + 1
            elif isinstance(part, ToolResult) and waiting.get(part.id):
                waiting[part.id] -= 1
    found = []
    for number, reading in enumerate(asked):
        parts = reading.parts
        if len(parts) == 1 and isinstance(part := parts[0], ToolResult) and waiting.get(part.id):
            waiting[part.id] -= 1
            found.append(number)
    return found


def _is_native(message: Message, reading: Reading) -> bool:
    """Whether only this API has a word for it."""
    if message.format != FORMAT or not isinstance(message.content, dict):
        return False
    kind = message.content.get("type")
    if not isinstance(kind, str):
        return False  # nobody's: an endpoint would refuse it, and with it all that is ever said here
    is_unread = len(reading.parts) == 1 and isinstance(part := reading.parts[0], OtherPart) and not part.is_hosted
    # A call of a tool that could not be read has lost its answer, which stands by itself.
    return is_unread and openai_items.is_item(message.content) and kind not in (*PAIRED, *TRIGGERS)


def _native(message: Message) -> Reading:
    item = message.content
    if _needs_no_id(item):
        item = {name: value for name, value in item.items() if name != "id"}
    return Reading([OtherPart(native=item, origin=FORMAT, is_hosted=True)])


def _needs_no_id(item: dict[str, Any]) -> bool:
    """What came without an id was given one here, which the endpoint may refuse. Nothing names an answer by its id."""
    kind: str = item["type"]
    if kind in _ANSWERS:
        return kind != "local_shell_call_output"
    is_known = kind in openai_items.KINDS
    return not is_known and (kind.endswith(_ANSWER) or str(item.get("id")).startswith(openai_items.UNKNOWN_PREFIX))


def _lone(items: Iterable[Any]) -> set[int]:
    """Which of the items are calls that nobody answers behind them, or answers whose call is not before them."""
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
    """The field by which a call is named, if it is one. Types that are not known do as most do."""
    is_known = kind in openai_items.KINDS
    return _CALLS.get(kind, "" if is_known else "call_id")


def _answered_by(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What such an item may answer, and where it may name it."""
    if kind in _ANSWERS:
        call, names = _ANSWERS[kind]
        return (call,), names
    if kind in openai_items.KINDS or not kind.endswith(_ANSWER):
        return (), ()
    # As `tool_search_output` does, or as all others do.
    call = kind.removesuffix(_ANSWER)
    return (call, f"{call}_call"), ("call_id",)
