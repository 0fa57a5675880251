"""Claude Code's transcripts: one JSON Lines file a session, or a folder of them (`~/.claude/projects`).

Messages of users, Claude and its tools become messages of the format `claude.transcript`, as the adapter for the
Claude Agent SDK stores them. Lines that are no messages (titles, snapshots of files, queue operations) are counted by
type. A subagent's transcript is a conversation of its own, named after its session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import claude_transcript
from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_TITLE_WORDS = 12


class ClaudeCode:
    name = "claude-code"
    title = "Claude Code transcripts: a session's .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".jsonl")
        return bool(names) and any(_is_transcript(source, name) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in source.named(".jsonl"):
            if _is_transcript(source, name):
                yield _conversation(source, name, report)
            else:
                report.complain(name, "it is no transcript of Claude Code")


def _is_transcript(source: ImportSource, name: str) -> bool:
    head = source.head(name)
    return b'"sessionId"' in head and b'"type"' in head


def _conversation(source: ImportSource, name: str, report: ImportReport) -> ForeignConversation:
    reader = _Transcript(name, report)
    with source.open(name) as file:
        for element in json_stream.lines(file):
            if element.problem or not isinstance(element.value, dict):
                report.complain(f"{name}, line {element.number}", element.problem or "it is not an object")
            else:
                reader.add(element.value)
    return reader.conversation()


class _Transcript:
    def __init__(self, name: str, report: ImportReport) -> None:
        self._report = report
        path = PurePosixPath(name)
        self._is_subagent = "subagents" in path.parts
        self._id = "/".join(path.with_suffix("").parts[-3:]) if self._is_subagent else path.stem
        self._parents: dict[str, str | None] = {}
        """What each line follows, messages and others."""
        self._messages: dict[str, Message] = {}
        self._about: dict[str, Any] = {}
        self._title: str | None = None

    def add(self, entry: dict[str, Any]) -> None:
        kind = text(entry.get("type"))
        if uuid := text(entry.get("uuid")):
            self._parents[uuid] = text(entry.get("parentUuid")) or text(entry.get("logicalParentUuid")) or None
        for field, name in (("cwd", "project"), ("gitBranch", "git_branch"), ("version", "version")):
            if text(entry.get(field)):
                self._about[name] = entry[field]
        if kind in ("summary", "ai-title", "custom-title"):
            self._title = text(entry.get("summary")) or text(entry.get("title")) or self._title
        if kind in ("user", "assistant") and uuid and isinstance(entry.get("message"), dict):
            self._messages[uuid] = _message(uuid, entry)
        elif kind not in ("summary", "ai-title", "custom-title"):
            self._report.lose(f"line of the type {kind!r}", f"{self._id}: {str(entry)[:100]}")

    def conversation(self) -> ForeignConversation:
        found = [ForeignMessage(message, self._parent(uuid)) for uuid, message in self._messages.items()]
        models = sorted({each.usage.model for each in self._messages.values() if each.usage and each.usage.model})
        about = self._about | ({"models": models} if models else {}) | {"imported_from": "claude-code"}
        return ForeignConversation(
            id=self._id,
            messages=found,
            title=self._title or _first_words(self._messages.values()),
            created_at=found[0].message.created_at if found and found[0].message.created_at is not NOT_YET else None,
            agent_id="claude-code",
            metadata=about | ({"is_subagent": True} if self._is_subagent else {}),
        )

    def _parent(self, uuid: str) -> str | None:
        """The nearest line above that is a message. A session that continues another one begins a branch."""
        at, seen = self._parents.get(uuid), {uuid}
        while at is not None and at not in self._messages and at not in seen:
            seen.add(at)
            at = self._parents.get(at)
        return at if at in self._messages and at not in seen else None


def _message(uuid: str, entry: dict[str, Any]) -> Message:
    native = entry["message"]
    content = native.get("content")
    blocks = [mapping(block).get("type") for block in items(content)]
    role = "tool" if blocks and set(blocks) == {"tool_result"} else text(native.get("role")) or entry["type"]
    usage = mapping(native.get("usage"))
    return Message(
        role,
        entry,
        uuid,
        format=claude_transcript.FORMAT,
        created_at=time(entry.get("timestamp")) or NOT_YET,
        usage=Usage(
            model=text(native.get("model")) or None,
            input_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
            cached_tokens=count(usage.get("cache_read_input_tokens")),
        )
        if usage
        else None,
        metadata={"hidden": True} if entry.get("isMeta") else None,
    )


def _first_words(messages: Any) -> str | None:
    for message in messages:
        if message.role == "user" and not (message.metadata or {}).get("hidden"):
            return " ".join(message.text.split()[:_TITLE_WORDS]) or None
    return None
