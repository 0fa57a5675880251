"""Codex's sessions: `rollout-….jsonl`, or a folder of them (`~/.codex/sessions`).

A `response_item` is an item of OpenAI's Responses, and becomes a message of that format. Events (`event_msg`) repeat
items for display; only their token counts are read. All lines are kept, so that the file can be written again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from msgspec import structs

from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcript_file import SessionState, TranscriptFile, first_words
from hansard.importers.values import mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_ROLES = {
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "local_shell_call": "assistant",
    "web_search_call": "assistant",
    "reasoning": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
}
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Codex:
    name = "codex"
    title = "Codex sessions: a rollout .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".jsonl")
        return bool(names) and any(self.is_transcript(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in source.named(".jsonl"):
            session, file = self.session(name), TranscriptFile()
            for number, line, entry in file.entries(source, name, report):
                file.keep(line, session.add(number, entry))
            yield session.conversation(file)

    def is_transcript(self, head: bytes) -> bool:
        return b'"session_meta"' in head

    def session(self, name: str, state: SessionState | None = None) -> _Session:
        return _Session(name, state or SessionState())


class _Session:
    def __init__(self, name: str, before: SessionState) -> None:
        self._before = before
        stem = PurePosixPath(name).stem
        found = _ID.search(stem)
        self._id = before.id or (found.group() if found else stem)
        self._messages: list[Message] = []
        self._about: dict[str, Any] = {**before.metadata, "imported_from": "codex", "transcript": name}
        self._model: str | None = before.metadata.get("model")
        self._late_usage: Usage | None = None
        """Of the last answer in lines before."""

    def add(self, number: int, line: dict[str, Any]) -> Message | None:
        kind, payload = text(line.get("type")), mapping(line.get("payload"))
        if kind == "session_meta":
            self._id = text(payload.get("id")) or self._id
            git = mapping(payload.get("git"))
            about = {
                "project": text(payload.get("cwd")),
                "git_branch": text(git.get("branch")),
                "version": text(payload.get("cli_version")),
            }
            self._about |= {name: value for name, value in about.items() if value}
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
        elif kind == "response_item":
            self._messages.append(self._message(number, line, payload))
            return self._messages[-1]
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._count(mapping(mapping(payload.get("info")).get("last_token_usage")))
        return None

    def _message(self, number: int, line: dict[str, Any], item: dict[str, Any]) -> Message:
        kind = text(item.get("type"))
        role = text(item.get("role")) if kind == "message" else _ROLES.get(kind, "assistant")
        return Message(
            "system" if role == "developer" else role or "assistant",
            [item],
            text(item.get("id")) or f"line-{number}",
            format="openai.responses",
            created_at=time(line.get("timestamp")) or NOT_YET,
            usage=Usage(model=self._model) if self._model and role == "assistant" else None,
        )

    def _count(self, given: dict[str, Any]) -> None:
        """Tokens of the last answer."""
        if not given:
            return
        names = ("input_tokens", "output_tokens", "reasoning_output_tokens", "cached_input_tokens")
        counts = [value if isinstance(value := given.get(name), int) else 0 for name in names]
        usage = Usage(
            model=self._model,
            input_tokens=counts[0],
            output_tokens=counts[1],
            reasoning_tokens=counts[2],
            cached_tokens=counts[3],
        )
        at = next((at for at in reversed(range(len(self._messages))) if self._messages[at].usage), None)
        if at is None:
            self._late_usage = usage
        else:
            self._messages[at] = structs.replace(self._messages[at], usage=usage)

    def usages(self) -> dict[str, Usage]:
        answered = self._before.answered
        return {answered: self._late_usage} if answered is not None and self._late_usage is not None else {}

    def conversation(self, file: TranscriptFile) -> ForeignConversation:
        parents = [self._before.last, *(message.id for message in self._messages)]
        found = [ForeignMessage(message, parent) for message, parent in zip(self._messages, parents, strict=False)]
        first = self._messages[0].created_at if self._messages else NOT_YET
        return ForeignConversation(
            id=self._id,
            messages=found,
            first_words=first_words(each.text for each in self._messages if each.role == "user"),
            created_at=None if first is NOT_YET else first,
            agent_id="codex",
            metadata=self._about | ({"model": self._model, "models": self._models()} if self._model else {}),
            transcript=file.transcript(),
        )

    def _models(self) -> list[str]:
        used = {each.usage.model for each in self._messages if each.usage and each.usage.model}
        return sorted(used.union(self._before.models))

    def state(self) -> SessionState:
        return SessionState(
            id=self._id,
            last=self._messages[-1].id if self._messages else self._before.last,
            answered=next((each.id for each in reversed(self._messages) if each.usage), self._before.answered),
            metadata=self._about | ({"model": self._model} if self._model else {}),
            models=tuple(self._models()),
        )
