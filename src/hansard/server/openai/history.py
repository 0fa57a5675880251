"""What goes to a model endpoint before the input of a response: what was said, in the endpoint's own words.

Any history becomes items, valid by the endpoint's rules. What only this API has a word for goes back to the endpoint as
it came from there: the use of a computer or a shell, patches, approvals, images, a compaction. A call that the input
answers belongs to it, and so stays; one that nobody answers is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hansard.formats import openai_items, registry
from hansard.formats.openai_responses import FORMAT
from hansard.formats.parts import Other, Reading, ToolCall, ToolResult
from hansard.model import Message

_ANSWERS = {
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}
"""Calls that only this API knows, and what answers them."""


def items(history: Sequence[Message], given: Sequence[Message], sent: Sequence[Any]) -> list[Any]:
    """The history and, behind it, what was sent: `given` are the same items as messages."""
    said = [(message, registry.read(message)) for message in history]
    asked = [(message, registry.read(message)) for message in given]
    answering = _answering([reading for _, reading in said], [reading for _, reading in asked])
    open_now = _open([each.content for each in history], [each.content for each in given])
    readings = [
        (message, _native(message) if _is_native(message, reading) else reading)
        for message, reading in said
        if not (_is_native(message, reading) and _place(message.content) in open_now)
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
    return is_unread and message.content.get("type") in openai_items.KINDS


def _native(message: Message) -> Reading:
    return Reading([Other(native=message.content, origin=FORMAT, is_hosted=True)])


def _place(item: dict[str, Any]) -> tuple[Any, Any]:
    return item.get("type"), item.get("call_id")


def _open(said: Sequence[Any], asked: Sequence[Any]) -> set[tuple[Any, Any]]:
    """The calls that nobody answers, and the answers whose call is gone."""
    places = {_place(item) for item in said if isinstance(item, dict)}
    later = places | {_place(item) for item in asked if isinstance(item, dict)}
    called = {each for each in places if each[0] in _ANSWERS and each[1] is not None}
    answered = {each for each in places if each[0] in _ANSWERS.values() and each[1] is not None}
    calls = {output: call for call, output in _ANSWERS.items()}
    return {each for each in called if (_ANSWERS[each[0]], each[1]) not in later} | {
        each for each in answered if (calls[each[0]], each[1]) not in places
    }
