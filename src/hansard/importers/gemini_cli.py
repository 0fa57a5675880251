"""Gemini CLI's sessions: `session-….jsonl`, or `session-….json` of older versions, or a folder of them.

A session is a document with messages, or lines: a first one about the session, then a message each time one is added or
changed, `$set` for other fields or for all messages, and `$rewindTo` where the user goes back to a message and takes
another way. The last line of a message is the valid one. A message of Gemini holds its tool calls with their results;
the results become a message of their own. A message that repeats them for the model is passed over. Lines are kept, so
that the file can be written again.

A subagent's file is in a folder with the id of its session. A session that is resumed leaves another file behind, in
which nobody speaks: it is no session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import gemini, parts
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcript_file import TranscriptFile, first_words
from hansard.importers.transcripts import Transcript
from hansard.importers.values import content_of, count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_SPOKEN = ("user", "gemini")
_CONTEXT = "<session_context>"
"""How the message begins that Gemini CLI writes in the user's name."""


class GeminiCli:
    name = "gemini-cli"
    title = "Gemini CLI sessions: a session-….json or .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        return any(self.is_session(source.head(name)) for name in _files(source)[:20])

    def is_session(self, head: bytes) -> bool:
        return b'"sessionId"' in head and b'"projectHash"' in head

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in _files(source):
            if not self.is_session(source.head(name)):
                report.complain(name, "it is no session of Gemini CLI")
                continue
            for found in _sessions(source, name, report):
                if any(not (each.message.metadata or {}).get("hidden") for each in found.messages):
                    yield found


def _files(source: ImportSource) -> list[str]:
    return [*source.named(".jsonl"), *source.named(".json")]


def _sessions(source: ImportSource, name: str, report: ImportReport) -> Iterator[ForeignConversation]:
    if name.endswith(".jsonl"):
        yield _from_lines(source, name, report)
        return
    for _, given in json_stream.array_objects(source, name, report, "session"):
        history = _History()
        for each in items(given.get("messages")):
            history.add(mapping(each))
        yield _conversation(name, given, history, None, report)


class _History:
    """The messages of a session, each with the one that it follows."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self.parents: dict[str, str | None] = {}
        self.shown: list[str] = []
        """What Gemini CLI shows: all messages but those that the user went back from."""

    def add(self, given: dict[str, Any]) -> None:
        id = text(given.get("id")) or f"message-{len(self.messages) + 1}"
        if id not in self.messages:
            self.parents[id] = self.shown[-1] if self.shown else None
            self.shown.append(id)
        self.messages[id] = given

    def go_back(self, id: str) -> None:
        """To before a message; to the beginning if there is no such message."""
        self.shown = self.shown[: self.shown.index(id)] if id in self.shown else []


def _from_lines(source: ImportSource, name: str, report: ImportReport) -> ForeignConversation:
    session: dict[str, Any] = {}
    history, file = _History(), TranscriptFile()
    for _, line, entry in file.entries(source, name, report):
        file.keep(line)
        changed = mapping(entry.get("$set"))
        if changed:
            session |= changed
            for each in items(changed.get("messages")):
                history.add(mapping(each))
        elif "$rewindTo" in entry:
            history.go_back(text(entry["$rewindTo"]))
        elif text(entry.get("id")):
            history.add(entry)
        elif "sessionId" in entry:
            session |= entry
    return _conversation(name, session, history, file.transcript(), report)


def _conversation(
    name: str, session: dict[str, Any], history: _History, transcript: Transcript | None, report: ImportReport
) -> ForeignConversation:
    found: list[ForeignMessage] = []
    last: dict[str | None, str | None] = {None: None}
    """The last message that was made of each message of the session."""
    answered = _answered(history)
    for id, given in history.messages.items():
        last[id] = last[history.parents[id]]
        for message in _messages(id, given, answered, report):
            found.append(ForeignMessage(message, last[id]))
            last[id] = message.id
    models = [each.message.usage.model for each in found if each.message.usage and each.message.usage.model]
    about: dict[str, Any] = {"imported_from": "gemini-cli", "transcript": name} | _relation(name, session)
    if models:
        about |= {"model": models[-1], "models": sorted(set(models))}
    return ForeignConversation(
        id=text(session.get("sessionId")) or PurePosixPath(name).stem,
        messages=found,
        leaf=last[history.shown[-1]] if history.shown else None,
        title=text(session.get("summary")) or None,
        first_words=first_words(each.message.text for each in found if each.message.role == "user"),
        created_at=time(session.get("startTime")),
        agent_id="gemini-cli",
        metadata=about,
        transcript=transcript,
    )


def _relation(name: str, session: dict[str, Any]) -> dict[str, Any]:
    """The project's folder, where the session names it, and the session that a subagent works for."""
    folder = next((each for each in items(session.get("directories")) if text(each)), None)
    about = {"project": folder} if folder else {}
    if session.get("kind") != "subagent":
        return about
    parent = PurePosixPath(name).parent.name
    return about | {"is_subagent": True} | ({"session": parent} if parent not in ("", "chats") else {})


def _answered(history: _History) -> set[str]:
    """The calls whose results are with them."""
    calls = (mapping(call) for given in history.messages.values() for call in items(given.get("toolCalls")))
    return {text(call.get("id")) for call in calls if call.get("result") is not None}


def _messages(id: str, given: dict[str, Any], answered: set[str], report: ImportReport) -> Iterator[Message]:
    """A message, and another one with the results of its tools. None if it repeats results."""
    kind = text(given.get("type"))
    calls = [mapping(call) for call in items(given.get("toolCalls"))]
    if kind not in _SPOKEN:
        report.lose(f"note of the kind {kind!r}", (text(given.get("content")) or str(given))[:120])
        return
    said = _pieces(given, answered)
    late = [piece for piece in said if isinstance(piece, parts.ToolResult)]
    pieces = [piece for piece in said if not isinstance(piece, parts.ToolResult)]
    report.attachments += sum(isinstance(piece, parts.Media) and piece.data is not None for piece in pieces)
    results = [*(_result(call) for call in calls if call.get("result") is not None), *late]
    at = time(given.get("timestamp")) or NOT_YET
    if pieces or not _is_answer_of_tools(given):
        content, format = content_of(pieces or [parts.Text(text="")])
        role = "user" if kind == "user" else "assistant"
        yield Message(
            role,
            content,
            id,
            format=format,
            created_at=at,
            usage=_usage(given) if role == "assistant" else None,
            metadata={"hidden": True} if isinstance(content, str) and content.startswith(_CONTEXT) else None,
        )
    if results:
        content = [parts.to_json(each) for each in results]
        yield Message("tool", content, f"{id}.1", format=parts.FORMAT, created_at=at)


def _is_answer_of_tools(given: dict[str, Any]) -> bool:
    content = items(given.get("content"))
    return bool(content) and all("functionResponse" in mapping(piece) for piece in content)


def _thoughts(given: dict[str, Any]) -> list[parts.AnyPart]:
    found = [
        f"{text(each.get('subject'))}\n{text(each.get('description'))}".strip()
        for each in map(mapping, items(given.get("thoughts")))
    ]
    return [parts.Reasoning(text="\n\n".join(found))] if found else []


def _pieces(given: dict[str, Any], answered: set[str]) -> list[parts.AnyPart]:
    """Reasoning, content and calls, each once: a session that is resumed has its messages written again, with all in
    the content."""
    thoughts = _thoughts(given)
    calls = [_call(mapping(call)) for call in items(given.get("toolCalls"))]
    known = {call.id for call in calls}
    content = given.get("content")
    said: list[parts.AnyPart] = []
    for piece in gemini.read([content] if isinstance(content, str) else items(content), "user").parts:
        is_repeated = (
            (isinstance(piece, parts.Text) and not piece.text)
            or (isinstance(piece, parts.Reasoning) and bool(thoughts))
            or (isinstance(piece, parts.ToolCall) and piece.id in known)
            or (isinstance(piece, parts.ToolResult) and piece.id in answered)
        )
        if not is_repeated:
            said.append(piece)
    return [*thoughts, *said, *calls]


def _call(call: dict[str, Any]) -> parts.ToolCall:
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
