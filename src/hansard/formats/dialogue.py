"""Turns a history of any formats into one valid dialogue, before it is written in a provider's format.

Providers agree on what a valid dialogue is, and differ in how they write it. Here it becomes valid, for all of them:

- each message is split by the side its parts belong to: calls and reasoning to the assistant, results to a tool;
- empty text is removed;
- every call has its result directly after it, and every result its call: results move up to their calls, parallel calls
  stay together, dangling calls are left out or closed;
- ids of calls are unique, and consist of characters that every provider accepts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from hansard.formats.parts import (
    AnyPart,
    OtherPart,
    Reading,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    plain_name,
)
from hansard.model import Message

Side = Literal["system", "developer", "user", "assistant", "tool"]
Dangling = Literal["drop", "close", "keep"]

CLOSED = "No result: the call was interrupted."
"""The result with which a dangling call is closed."""
JSON = "json"

_SIDES: dict[str, Side] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
    "tool_response": "tool",
    "mcp_response": "tool",
    "pcp_response": "tool",
}
_ID_LENGTH = 64


class Loss(Struct, frozen=True):
    """Content that a target format cannot represent, and that is therefore left out."""

    message_id: str
    what: str
    why: str


class DialogueEntry(Struct, frozen=True):
    """Consecutive parts of one side."""

    side: Side
    parts: list[AnyPart]
    message: Message
    name: str | None = None
    native: Any = None
    """The message's whole content, if it can be used as it is."""
    is_json: bool = False
    """Content of the format `json`, which is passed through."""


class Written(Struct, frozen=True):
    """A dialogue written in a format: its items, and the instructions that the format separates from them."""

    items: list[Any]
    system: Any = None


Losses = list[Loss]


def side_of(role: str) -> Side:
    return _SIDES.get(role, "user")


def split(message: Message, reading: Reading) -> list[DialogueEntry]:
    """Splits the message by the side its parts belong to, without empty parts."""
    side = side_of(reading.role or message.role)
    if side != "tool" and len(reading.parts) == 1 and type(part := reading.parts[0]) is Text:
        # The common case.
        return (
            [DialogueEntry(side, reading.parts, message, reading.name, reading.native)]
            if not _says_nothing(part)
            else []
        )
    entries: list[DialogueEntry] = []
    for part in reading.parts:
        if _says_nothing(part):
            continue
        speaker = _speaker(part, side)
        if entries and entries[-1].side == speaker:
            entries[-1].parts.append(part)
        else:
            entries.append(DialogueEntry(speaker, [part], message, reading.name))
    if reading.native is not None and len(entries) == 1 and len(entries[0].parts) == len(reading.parts):
        entries[0] = structs.replace(entries[0], native=reading.native)
    return entries


def passes(part: AnyPart) -> bool:
    """Whether it is content of the format `json`, which is passed through as it is."""
    return isinstance(part, OtherPart) and part.origin == JSON


def passing(message: Message, reading: Reading) -> DialogueEntry:
    """Returns such content as an entry; a user's if it is a tool's, because it names no call."""
    side = side_of(reading.role or message.role)
    return DialogueEntry("user" if side == "tool" else side, reading.parts, message, reading.name, is_json=True)


def _says_nothing(part: AnyPart) -> bool:
    return (type(part) is Text or type(part) is Refusal) and (not part.text or part.text.isspace())


def _speaker(part: AnyPart, side: Side) -> Side:
    if isinstance(part, ToolResult):
        return "tool"
    if isinstance(part, ToolCall | Reasoning | Refusal) or (isinstance(part, OtherPart) and part.is_hosted):
        return "assistant"
    if side == "tool" or (side in ("system", "developer") and not isinstance(part, Text)):
        # A result that names no call, or an image among instructions: no other side may contain it.
        return "user"
    return side


def without_others(entries: Sequence[DialogueEntry], format: str, losses: Losses) -> list[DialogueEntry]:
    """Returns the entries without parts that only another format can represent."""
    kept: list[DialogueEntry] = []
    for entry in entries:
        others = [part for part in entry.parts if isinstance(part, OtherPart) and not _is_at_home(part, format)]
        if not others or entry.is_json:
            kept.append(entry)
            continue
        for part in others:
            losses.append(Loss(entry.message.id, _kind(part.native), f"{format} cannot represent it"))
        if rest := [part for part in entry.parts if not isinstance(part, OtherPart) or _is_at_home(part, format)]:
            kept.append(structs.replace(entry, parts=rest, native=None))
    return kept


def _is_at_home(part: OtherPart, format: str) -> bool:
    return part.is_hosted and part.origin == format


def _kind(native: Any) -> str:
    kind = native.get("type") if isinstance(native, dict) else None
    return kind if isinstance(kind, str) else "other"


# Calls and results


class _Answer(Struct, frozen=True):
    result: ToolResult
    message: Message


def paired(entries: Sequence[DialogueEntry], dangling: Dangling, losses: Losses) -> list[DialogueEntry]:
    """Returns the dialogue with every result directly after its call; unpaired calls and results are removed."""
    if dangling == "keep" or not any(
        isinstance(part, ToolCall | ToolResult) for each in entries for part in each.parts
    ):
        return list(entries)
    return _Pairing(_answers(entries, losses), dangling, losses).pair(entries)


def _answers(entries: Sequence[DialogueEntry], losses: Losses) -> dict[tuple[int, int], _Answer]:
    """Maps the position of each call to its result. A result answers one call, the oldest open one of its id."""
    open_calls: dict[str, deque[tuple[int, int]]] = {}
    answers: dict[tuple[int, int], _Answer] = {}
    for at, entry in enumerate(entries):
        for index, part in enumerate(entry.parts):
            if isinstance(part, ToolCall):
                open_calls.setdefault(part.id, deque()).append((at, index))
            elif isinstance(part, ToolResult):
                if waiting := open_calls.get(part.id):
                    answers[waiting.popleft()] = _Answer(part, entry.message)
                else:
                    losses.append(Loss(entry.message.id, "tool_result", f"no call {part.id!r} comes before it"))
    return answers


class _Pairing:
    """Rewrites a dialogue with results directly after their calls."""

    def __init__(self, answers: dict[tuple[int, int], _Answer], dangling: Dangling, losses: Losses) -> None:
        self._answers = answers
        self._dangling = dangling
        self._losses = losses
        self._ids: dict[str, int] = {}
        self._done: list[DialogueEntry] = []
        self._calling: DialogueEntry | None = None
        self._results: list[DialogueEntry] = []
        self._called_at = -1

    def pair(self, entries: Sequence[DialogueEntry]) -> list[DialogueEntry]:
        for at, entry in enumerate(entries):
            if entry.side == "tool":
                continue
            if not any(isinstance(part, ToolCall) for part in entry.parts):
                self._flush()
                self._done.append(entry)
                continue
            self._call(at, entry)
        self._flush()
        return self._done

    def _call(self, at: int, entry: DialogueEntry) -> None:
        parts: list[AnyPart] = []
        results: list[DialogueEntry] = []
        for index, part in enumerate(entry.parts):
            if not isinstance(part, ToolCall):
                parts.append(part)
            elif (answer := self._answer(at, index, part, entry)) is not None:
                id = self._fresh(part.id)
                parts.append(part if part.id == id else structs.replace(part, id=id))
                result = structs.replace(answer.result, id=id, name=part.name)
                results.append(DialogueEntry("tool", [result], answer.message))
        if not all(map(_is_same, parts, entry.parts)) or len(parts) != len(entry.parts):
            entry = structs.replace(entry, parts=parts, native=None)
        # Consecutive calls were made in parallel.
        if self._calling is not None and self._results and results and self._called_at == at - 1:
            self._calling = structs.replace(self._calling, parts=[*self._calling.parts, *parts], native=None)
        else:
            self._flush()
            self._calling = entry if parts else None
        self._results += results
        self._called_at = at

    def _answer(self, at: int, index: int, call: ToolCall, entry: DialogueEntry) -> _Answer | None:
        answer = self._answers.get((at, index))
        if answer is None and self._dangling == "close":
            return _Answer(ToolResult(call.id, CLOSED, is_error=True), entry.message)
        if answer is None:
            self._losses.append(Loss(entry.message.id, "tool_call", f"the call {call.id!r} has no result"))
        return answer

    def _flush(self) -> None:
        if self._calling is not None:
            self._done.append(self._calling)
            self._done += self._results
        self._calling, self._results = None, []

    def _fresh(self, id: str) -> str:
        """Returns the id, or a new one if it is used or contains characters that a provider refuses."""
        plain = fresh = plain_name(id) or "call"
        number = self._ids.get(plain, 0)
        while fresh in self._ids:
            number += 1
            fresh = f"{plain[: _ID_LENGTH - 8]}_{number}"
        self._ids[plain] = number
        self._ids[fresh] = 0 if fresh != plain else number
        return fresh


def _is_same(one: AnyPart, other: AnyPart) -> bool:
    return one is other
