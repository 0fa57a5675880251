"""Gemini CLI's sessions: `session-….jsonl`, or `session-….json` of older versions, or a folder of them.

A session is a document with messages, or lines: a first one about the session, then a message each time one is added or
changed, and `$set` for other fields. The last line of a message is the valid one. A message of Gemini holds its tool
calls with their results; the results become a message of their own. Lines are kept, so that the file can be written
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcript_file import TranscriptFile, first_words
from hansard.importers.transcripts import Transcript
from hansard.importers.values import content_of, count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_FILE = re.compile(r"session-.*\.jsonl?$")
_SPOKEN = ("user", "gemini")


class GeminiCli:
    name = "gemini-cli"
    title = "Gemini CLI sessions: a session-….json or .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        return any(self.is_session(source.head(name)) for name in _files(source)[:20])

    def is_session(self, head: bytes) -> bool:
        return b'"sessionId"' in head and b'"projectHash"' in head

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in _files(source):
            if name.endswith(".json"):
                for _, given in json_stream.array_objects(source, name, report, "session"):
                    yield _conversation(name, given, items(given.get("messages")), None, report)
            else:
                yield _from_lines(source, name, report)


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.names() if _FILE.search(PurePosixPath(name).name)]


def _from_lines(source: ImportSource, name: str, report: ImportReport) -> ForeignConversation:
    session: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    file = TranscriptFile()
    for _, line, entry in file.entries(source, name, report):
        file.keep(line)
        changed = mapping(entry.get("$set"))
        if changed:
            session |= changed
            messages |= {text(each.get("id")): each for each in map(mapping, items(changed.get("messages")))}
        elif text(entry.get("id")):
            messages[text(entry["id"])] = entry
        elif "sessionId" in entry:
            session |= entry
    return _conversation(name, session, [*messages.values()], file.transcript(), report)


def _conversation(
    name: str, session: dict[str, Any], given: list[Any], transcript: Transcript | None, report: ImportReport
) -> ForeignConversation:
    found: list[ForeignMessage] = []
    before: str | None = None
    for each in map(mapping, given):
        for message in _messages(each, report):
            found.append(ForeignMessage(message, before))
            before = message.id
    models = [each.message.usage.model for each in found if each.message.usage and each.message.usage.model]
    about: dict[str, Any] = {"imported_from": "gemini-cli", "transcript": name}
    if models:
        about |= {"model": models[-1], "models": sorted(set(models))}
    return ForeignConversation(
        id=text(session.get("sessionId")) or PurePosixPath(name).stem,
        messages=found,
        title=text(session.get("summary")) or None,
        first_words=first_words(each.message.text for each in found if each.message.role == "user"),
        created_at=time(session.get("startTime")),
        agent_id="gemini-cli",
        metadata=about | ({"is_subagent": True} if session.get("kind") == "subagent" else {}),
        transcript=transcript,
    )


def _messages(given: dict[str, Any], report: ImportReport) -> Iterator[Message]:
    """A message, and another one with the results of its tools."""
    id, kind = text(given.get("id")), text(given.get("type"))
    calls = [mapping(call) for call in items(given.get("toolCalls"))]
    if kind not in _SPOKEN:
        report.lose(f"note of the kind {kind!r}", str(given)[:120])
        return
    pieces = [*_thoughts(given), *_texts(given, report), *map(_call, calls)]
    content, format = content_of(pieces or [parts.Text(text="")])
    at = time(given.get("timestamp")) or NOT_YET
    role = "user" if kind == "user" else "assistant"
    yield Message(role, content, id, format=format, created_at=at, usage=_usage(given) if role == "assistant" else None)
    results = [_result(call) for call in calls if call.get("result") is not None]
    if results:
        yield Message("tool", [parts.to_json(each) for each in results], f"{id}.1", format=parts.FORMAT, created_at=at)


def _thoughts(given: dict[str, Any]) -> list[parts.AnyPart]:
    found = [
        f"{text(each.get('subject'))}\n{text(each.get('description'))}".strip()
        for each in map(mapping, items(given.get("thoughts")))
    ]
    return [parts.Reasoning(text="\n\n".join(found))] if found else []


def _texts(given: dict[str, Any], report: ImportReport) -> Iterator[parts.AnyPart]:
    content = given.get("content")
    for piece in [content] if isinstance(content, str) else items(content):
        words = piece if isinstance(piece, str) else text(mapping(piece).get("text"))
        if words:
            yield parts.Text(text=words)
        elif piece:
            report.lose("part of a message", str(piece)[:120])


def _call(call: dict[str, Any]) -> parts.AnyPart:
    return parts.ToolCall(id=text(call.get("id")), name=text(call.get("name")), arguments=call.get("args") or {})


def _result(call: dict[str, Any]) -> parts.ToolResult:
    found = []
    for each in items(call["result"]) or [call["result"]]:
        response = mapping(mapping(each).get("functionResponse")).get("response")
        output = mapping(response).get("output", response)
        found.append(parts.as_text(each if output is None else output))
    is_error = call.get("status") in ("error", "cancelled")
    return parts.ToolResult(
        id=text(call.get("id")), output="\n".join(found), is_error=is_error, name=text(call.get("name")) or None
    )


def _usage(given: dict[str, Any]) -> Usage:
    tokens = mapping(given.get("tokens"))
    return Usage(
        model=text(given.get("model")) or None,
        input_tokens=count(tokens.get("input")),
        output_tokens=count(tokens.get("output")),
        reasoning_tokens=count(tokens.get("thoughts")),
        cached_tokens=count(tokens.get("cached")),
    )
