"""What goes to a model endpoint before the input of a response: what was said, in the endpoint's own words.

Any history becomes items, valid by the endpoint's rules. What only this API has a word for goes back to the endpoint as
it came from there: the use of a computer or a shell, patches, approvals, images, a compaction. A call that the input
answers belongs to it, and so stays; one that nobody answers is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hansard.formats import openai_items, registry
from hansard.formats.openai_responses import FORMAT, PAIRED
from hansard.formats.parts import Other, Reading, ToolCall, ToolResult
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


def items(history: Sequence[Message], given: Sequence[Message], sent: Sequence[Any]) -> list[Any]:
    """The history and, behind it, what was sent: `given` are the same items as messages."""
    said = [(message, registry.read(message)) for message in history]
    asked = [(message, registry.read(message)) for message in given]
    answering = _answering([reading for _, reading in said], [reading for _, reading in asked])
    native = [message.content if _is_native(message, reading) else None for message, reading in said]
    lone = _lone([*native, *(message.content for message in given)])
    readings = [
        (message, reading if native[number] is None else _native(message))
        for number, (message, reading) in enumerate(said)
        if number not in lone
    ]
    answers = [asked[number] for number in answering]
    rest = [item for number, item in enumerate(sent) if number not in answering]
    return [*registry.convert_readings([*readings, *answers], FORMAT), *rest]


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
    is_unread = len(reading.parts) == 1 and isinstance(part := reading.parts[0], Other) and not part.is_hosted
    kind = message.content.get("type")
    # A call of a tool that could not be read has lost its answer, which stands by itself.
    return is_unread and kind in openai_items.KINDS and kind not in PAIRED


def _native(message: Message) -> Reading:
    return Reading([Other(native=message.content, origin=FORMAT, is_hosted=True)])


def _lone(items: Iterable[Any]) -> set[int]:
    """Which of the items are calls that nobody answers behind them, or answers whose call is not before them."""
    waiting: dict[tuple[str, str], list[int]] = {}
    lone = set()
    for number, item in enumerate(items):
        kind = None if item is None else item["type"]
        if kind in _CALLS and isinstance(id := item.get(_CALLS[kind]), str):
            waiting.setdefault((kind, id), []).append(number)
            lone.add(number)
        elif kind in _ANSWERS:
            call, names = _ANSWERS[kind]
            named = [id for name in names if isinstance(id := item.get(name), str)]
            calls = next((found for id in named if (found := waiting.get((call, id)))), None)
            if calls:
                lone.discard(calls.pop(0))
            elif named:
                lone.add(number)
    return lone
