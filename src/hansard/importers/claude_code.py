"""Claude Code's transcripts: one JSON Lines file a session, or a folder of them (`~/.claude/projects`).

Messages of users, Claude and its tools become messages of the format `claude.transcript`, as the adapter for the
Claude Agent SDK stores them. All lines are kept, so that the file can be written again: see `transcripts.py`. A
subagent's transcript is a conversation of its own, named after its session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import claude_transcript
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcript_file import SessionState, TranscriptFile, first_words
from hansard.importers.values import count, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_ABOUT = (("cwd", "project"), ("gitBranch", "git_branch"), ("version", "version"))
_TITLES = {"custom-title": ("customTitle", "title"), "ai-title": ("aiTitle", "title"), "summary": ("summary",)}
"""Lines that name a session, the best first."""
_REMEMBERED = 200
"""Lines without a message that a state keeps: what follows one comes soon after it."""


class ClaudeCode:
    name = "claude-code"
    title = "Claude Code transcripts: a session's .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".jsonl")
        return bool(names) and any(self.is_transcript(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in source.named(".jsonl"):
            if self.is_transcript(source.head(name)):
                session, file = self.session(name), TranscriptFile()
                for number, line, entry in file.entries(source, name, report):
                    file.keep(line, session.add(number, entry))
                yield session.conversation(file)
            else:
                report.complain(name, "it is no transcript of Claude Code")

    def is_transcript(self, head: bytes) -> bool:
        return b'"sessionId"' in head and b'"type"' in head

    def session(self, name: str, state: SessionState | None = None) -> _Session:
        return _Session(name, state)


class _Session:
    def __init__(self, name: str, state: SessionState | None) -> None:
        path = PurePosixPath(name)
        self._is_continued = state is not None
        self._before = state or SessionState()
        self._is_subagent = "subagents" in path.parts
        self._id = "/".join(path.with_suffix("").parts[-3:]) if self._is_subagent else path.stem
        self._parents: dict[str, str | None] = dict(self._before.parents)
        """What each line follows, messages and others."""
        self._messages: dict[str, Message] = {}
        self._about: dict[str, Any] = {
            **self._before.metadata,
            "imported_from": "claude-code",
            "transcript": name,
        }
        self._titles: dict[str, str] = dict(self._before.titles)

    def add(self, number: int, entry: dict[str, Any]) -> Message | None:
        kind, uuid = text(entry.get("type")), text(entry.get("uuid"))
        if uuid:
            self._parents[uuid] = text(entry.get("parentUuid")) or text(entry.get("logicalParentUuid")) or None
        for field, name in _ABOUT:
            if field in entry and text(entry[field]):
                self._about[name] = entry[field]
        for field in _TITLES.get(kind, ()):
            if text(entry.get(field)):
                self._titles[kind] = entry[field]
        if kind in ("user", "assistant") and uuid and isinstance(entry.get("message"), dict):
            return self._messages.setdefault(uuid, _message(uuid, entry))
        return None

    def conversation(self, file: TranscriptFile) -> ForeignConversation:
        found = [ForeignMessage(message, self._parent(uuid)) for uuid, message in self._messages.items()]
        return ForeignConversation(
            id=self._id,
            messages=found,
            title=next((self._titles[kind] for kind in _TITLES if kind in self._titles), None),
            first_words=first_words(_spoken(self._messages.values())),
            created_at=found[0].message.created_at if found and found[0].message.created_at is not NOT_YET else None,
            agent_id="claude-code",
            metadata=self._about | self._totals() | self._subagent(),
            transcript=file.transcript(),
        )

    def _subagent(self) -> dict[str, Any]:
        return {"is_subagent": True, "session": self._id.partition("/")[0]} if self._is_subagent else {}

    def _parent(self, uuid: str) -> str | None:
        """The nearest line above that is a message. A session that continues another one begins a branch."""
        at = self._parents.get(uuid)
        if at in self._messages and at != uuid:
            return at
        seen = {uuid}
        while at in self._parents and at not in self._messages and at not in seen:
            seen.add(at)
            at = self._parents[at]
        is_known = at in self._messages or self._is_continued
        return at if is_known and at not in seen else None

    def usages(self) -> dict[str, Usage]:
        return {}

    def state(self) -> SessionState:
        others = [uuid for uuid in self._parents if uuid not in self._messages][-_REMEMBERED:]
        totals = self._totals()
        return SessionState(
            id=self._id,
            parents={uuid: self._parent(uuid) for uuid in others},
            last=next(reversed(self._messages), self._before.last),
            metadata=self._about | {name: totals[name] for name in ("model",) if name in totals},
            titles=self._titles,
            models=tuple(totals.get("models", ())),
            cost=totals.get("cost", 0.0),
        )

    def _totals(self) -> dict[str, Any]:
        used = [message.usage for message in self._messages.values() if message.usage is not None]
        models = [usage.model for usage in used if usage.model and not usage.model.startswith("<")]
        last = models[-1] if models else self._about.get("model")
        every = sorted({*models, *self._before.models})
        cost = round(self._before.cost + sum(usage.cost for usage in used), 6)
        return ({"model": last, "models": every} if last else {}) | ({"cost": cost} if cost else {})


def _spoken(messages: Any) -> Iterator[str]:
    """What the user has typed, without what Claude Code writes in the user's name."""
    for message in messages:
        if message.role == "user" and not (message.metadata or {}).get("hidden"):
            yield message.text


def _message(uuid: str, entry: dict[str, Any]) -> Message:
    native = entry["message"]
    content = native.get("content")
    kinds = {mapping(block).get("type") for block in content} if isinstance(content, list) else ()
    role = "tool" if kinds == {"tool_result"} else text(native.get("role")) or entry["type"]
    usage = mapping(native.get("usage"))
    cost = entry.get("costUSD")
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
            cost=float(cost) if isinstance(cost, int | float) else 0.0,
        )
        if usage
        else None,
        metadata={"hidden": True} if entry.get("isMeta") else None,
    )
