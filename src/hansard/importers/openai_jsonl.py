"""Training files: OpenAI's fine-tuning JSONL (`{"messages": […]}`) and ShareGPT (`{"conversations": […]}`).

A line is a conversation; its other fields become metadata. A line without an id is named by the hash of its messages:
importing the same file again finds what is stored. A line of a preference file has two answers to the same messages:
they are branches, rated 1 and -1, and lines with the same messages are one conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from msgspec import DecodeError, json, structs
from msgspec.structs import force_setattr

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.json_stream import Element
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, role_of, text
from hansard.model import Message

_SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
_ANSWERS = {"preferred_output": 1, "non_preferred_output": -1}
_TOOLS = {"function_call": "assistant", "observation": "tool", "tool": "tool"}


class OpenAiJsonl:
    name = "openai-jsonl"
    title = "OpenAI fine-tuning JSONL: {'messages': [...]} a line"

    def recognises(self, source: ImportSource) -> bool:
        return _first_has(source, "messages") or _first_has(source, "preferred_output")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for where, given in _objects(source, report):
            asked = mapping(given.get("input"))
            messages = items(given.get("messages")) or items(asked.get("messages"))
            if not messages or not all(text(mapping(each).get("role")) for each in messages):
                report.complain(where, "it has no 'messages' with roles")
            elif "messages" not in given:
                kept = _others(asked, "messages") | _others(given, "input", *_ANSWERS, "id")
                yield _preference(messages, given, kept | {"imported_from": self.name})
            else:
                kept = _others(given, "messages", "id") | {"imported_from": self.name}
                yield _chained([_spoken(each) for each in messages], messages, _id(given), kept, is_parsed=True)


def _spoken(given: dict[str, Any], **more: Any) -> Message:
    return Message(role_of(given.get("role"), "assistant"), given, "", format="openai.chat", **more)


def _preference(messages: list[Any], given: dict[str, Any], metadata: dict[str, Any]) -> ForeignConversation:
    """Messages, and two answers that follow them. An answer is named by its hash: other lines may have it too."""
    asked = _chained([_spoken(each) for each in messages], messages, _id(given), metadata, is_parsed=True)
    found: dict[str, ForeignMessage] = {}
    preferred: str | None = None
    for name, rating in _ANSWERS.items():
        parent = asked.messages[-1].message.id
        answers = [mapping(each) for each in items(given.get(name))]
        for place, each in enumerate(answers, 1):
            id = hashlib.sha256(f"{parent} ".encode() + json.encode(each, order="sorted")).hexdigest()[:24]
            rated = {"rating": rating} if place == len(answers) else None
            found.setdefault(id, ForeignMessage(structs.replace(_spoken(each, metadata=rated), id=id), parent))
            parent = id
        preferred = preferred or parent
    return structs.replace(asked, messages=[*asked.messages, *found.values()], leaf=preferred)


class ShareGpt:
    name = "sharegpt"
    title = "ShareGPT: {'conversations': [{'from', 'value'}, ...]} a line or in an array"

    def recognises(self, source: ImportSource) -> bool:
        return _first_has(source, "conversations")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for where, given in _objects(source, report):
            turns = [mapping(each) for each in items(given.get("conversations"))]
            if not turns:
                report.complain(where, "it has no 'conversations'")
                continue
            kept = _others(given, "conversations", "id", "system", "tools") | {"imported_from": self.name}
            made = [*_messages(turns)]
            if system := text(given.get("system")):
                made.insert(0, Message("system", system, ""))
            yield _chained(made, turns, _id(given), kept | _tools(given.get("tools")))


def _messages(turns: list[dict[str, Any]]) -> Iterator[Message]:
    """Calls and their results have no ids in ShareGPT: results follow their calls, in order."""
    waiting: list[str] = []
    for number, turn in enumerate(turns, 1):
        kept = _others(turn, "from", "value") or None
        calls = _calls(turn, number) if turn.get("from") == "function_call" else []
        if calls:
            waiting = [call.id for call in calls]
            yield Message("assistant", [parts.to_json(call) for call in calls], "", format=parts.FORMAT, metadata=kept)
        elif turn.get("from") == "observation" and waiting:
            result = parts.ToolResult(id=waiting.pop(0), output=turn.get("value", ""))
            yield Message("tool", [parts.to_json(result)], "", format=parts.FORMAT, metadata=kept)
        else:
            speaker = text(turn.get("from")).lower()
            role = _SPEAKERS.get(speaker) or _TOOLS.get(speaker)
            unknown = {"from": turn["from"]} if role is None and turn.get("from") else {}
            said = "" if turn.get("value") is None else turn["value"]
            yield Message(role or role_of(speaker, "assistant"), said, "", metadata=(kept or {}) | unknown or None)


def _others(given: dict[str, Any], *used: str) -> dict[str, Any]:
    """The other fields of a line or a turn, which are kept as metadata."""
    return {name: value for name, value in given.items() if name not in used and value not in (None, "", [], {})}


def _calls(turn: dict[str, Any], number: int) -> list[parts.ToolCall]:
    """The calls of a turn, which is JSON; none if it is something else."""
    try:
        given = json.decode(text(turn.get("value")))
    except DecodeError:
        return []
    found = [mapping(call) for call in (given if isinstance(given, list) else [given])]
    if not all(text(call.get("name")) for call in found):
        return []
    return [
        parts.ToolCall(id=f"call_{number}_{place}", name=call["name"], arguments=call.get("arguments") or {})
        for place, call in enumerate(found, 1)
    ]


def _tools(given: object) -> dict[str, Any]:
    """The definitions of tools, which are JSON in a text."""
    try:
        found = json.decode(given) if isinstance(given, str) else given
    except DecodeError:
        return {}
    return {"tools": found} if isinstance(found, list) and found else {}


def _id(given: dict[str, Any]) -> str:
    id = given.get("id")
    return str(id) if type(id) is int else text(id)


def _first_has(source: ImportSource, field: str) -> bool:
    names = source.named(".jsonl", ".json")
    if len(names) != len(source.names()) or not names:
        return False
    with source.open(names[0]) as file:
        first = next(_elements(names[0], file), None)
    found = mapping(first.value if first else None).get(field)
    return isinstance(found, list) and bool(found) and isinstance(found[0], dict)


def _elements(name: str, file: IO[bytes]) -> Iterator[Element]:
    return json_stream.array_elements(file) if PurePosixPath(name).suffix == ".json" else json_stream.lines(file)


def _objects(source: ImportSource, report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in source.named(".jsonl", ".json"):
        with source.open(name) as file:
            yield from json_stream.objects(_elements(name, file), f"{name}, conversation", report)


def _chained(
    messages: list[Message], given: list[Any], id: str, metadata: dict[str, Any], *, is_parsed: bool = False
) -> ForeignConversation:
    name = id or hashlib.sha256(json.encode(given, order="sorted")).hexdigest()[:24]
    found: list[ForeignMessage] = []
    before: str | None = None
    for number, message in enumerate(messages, 1):
        id = str(number)
        force_setattr(message, "id", id)  # it was made just now, for this conversation
        found.append(ForeignMessage(message, before))
        before = id
    return ForeignConversation(id=name, messages=found, metadata=metadata, is_parsed=is_parsed)
