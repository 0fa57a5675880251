"""Codex's sessions: `rollout-….jsonl`, or a folder of them (`~/.codex/sessions`).

A `response_item` is an item of OpenAI's Responses, and becomes a message of that format. Events (`event_msg`) repeat
items for display; only their token counts are read, and that the user went back some turns: what follows is another
branch. All lines are kept, so that the file can be written again. The file of a subagent or of a fork begins with a
copy of the lines that it continues.
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
from hansard.importers.transcript_file import SessionState, TranscriptFile, first_words, transcripts
from hansard.importers.values import count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Usage

_ROLES = {
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "local_shell_call": "assistant",
    "web_search_call": "assistant",
    "reasoning": "assistant",
    "agent_message": "agent",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
}
_CONTEXT = (
    *("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<skill>", "<turn_aborted>"),
    "<subagent_notification>",
)
"""How messages begin that Codex writes in the user's name."""
_NO_TURN = (*_CONTEXT, "<user_shell_command>")
"""How messages of the user begin that begin no turn."""
_TURNS = 200
"""Turns that a state keeps, so that the user can go back so many."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Codex:
    name = "codex"
    title = "Codex sessions: a rollout .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".jsonl")
        return bool(names) and any(self.is_transcript(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        return transcripts(self, source, report)

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
        self._ids: set[str] = set()
        self._parents: list[str | None] = []
        self._last = before.last
        self._turns: list[str | None] = [*before.turns]
        """The message before each turn."""
        self._about: dict[str, Any] = {**before.metadata, "imported_from": "codex", "transcript": name}
        self._model: str | None = before.metadata.get("model")
        self._is_described = bool(before.id)
        self._late_usage: Usage | None = None
        """Of the last answer in lines before."""

    def add(self, number: int, line: dict[str, Any]) -> Message | None:
        kind, payload = text(line.get("type")), mapping(line.get("payload"))
        if kind == "session_meta":
            self._describe(payload)
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
        elif kind == "response_item":
            return self._append(self._message(number, line, payload), payload)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            self._count(mapping(mapping(payload.get("info")).get("last_token_usage")))
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            self._go_back(count(payload.get("num_turns")))
        return None

    def _append(self, message: Message, item: dict[str, Any]) -> Message:
        if message.role in ("user", "agent") and not _begins_with(item, _NO_TURN):
            self._turns.append(self._last)
        self._messages.append(message)
        self._parents.append(self._last)
        self._last = message.id
        return message

    def _go_back(self, turns: int) -> None:
        """To before so many turns; to before the first one if there are fewer."""
        if turns and self._turns:
            at = max(0, len(self._turns) - turns)
            self._last = self._turns[at]
            del self._turns[at:]

    def _describe(self, given: dict[str, Any]) -> None:
        """Takes what the first line says of the session. Copied lines begin with what another one says of itself."""
        id = text(given.get("id")) or self._id
        if self._is_described and id != self._id:
            return
        self._id, self._is_described = id, True
        about = {
            "project": text(given.get("cwd")),
            "git_branch": text(mapping(given.get("git")).get("branch")),
            "version": text(given.get("cli_version")),
        }
        self._about |= {name: value for name, value in about.items() if value} | _relation(id, given)

    def _new_id(self, number: int, item: dict[str, Any]) -> str:
        """The id of an item. Servers other than OpenAI's may begin to count again: a repeated id gets its line."""
        id = text(item.get("id")) or f"line-{number}"
        if id in self._ids:
            id = f"{id}.{number}"
        self._ids.add(id)
        return id

    def _message(self, number: int, line: dict[str, Any], item: dict[str, Any]) -> Message:
        kind = text(item.get("type"))
        role = text(item.get("role")) if kind == "message" else _ROLES.get(kind, "assistant")
        return Message(
            "system" if role == "developer" else role or "assistant",
            [item],
            self._new_id(number, item),
            format="openai.responses",
            created_at=time(line.get("timestamp")) or NOT_YET,
            usage=Usage(model=self._model) if self._model and role == "assistant" else None,
            metadata={"hidden": True} if role == "user" and _begins_with(item, _CONTEXT) else None,
        )

    def _count(self, given: dict[str, Any]) -> None:
        """Tokens of the last answer."""
        if not given:
            return
        names = ("input_tokens", "output_tokens", "reasoning_output_tokens", "cached_input_tokens")
        counts = [value if isinstance(value := given.get(name), int) else 0 for name in names]
        if not any(counts):
            return  # after a compaction: the length of what is left
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
        found = [ForeignMessage(*each) for each in zip(self._messages, self._parents, strict=True)]
        first = self._messages[0].created_at if self._messages else NOT_YET
        return ForeignConversation(
            id=self._id,
            messages=found,
            title=self._about.get("agent"),
            first_words=first_words(each.text for each in self._messages if each.role == "user"),
            created_at=None if first is NOT_YET else first,
            agent_id="codex",
            metadata=self._about | ({"model": self._model, "models": self._models()} if self._model else {}),
            transcript=file.transcript(),
            is_parsed=True,
        )

    def _models(self) -> list[str]:
        used = {each.usage.model for each in self._messages if each.usage and each.usage.model}
        return sorted(used.union(self._before.models))

    def state(self) -> SessionState:
        return SessionState(
            id=self._id,
            last=self._last,
            turns=tuple(self._turns[-_TURNS:]),
            answered=next((each.id for each in reversed(self._messages) if each.usage), self._before.answered),
            metadata=self._about | ({"model": self._model} if self._model else {}),
            models=tuple(self._models()),
        )


def _relation(id: str, given: dict[str, Any]) -> dict[str, Any]:
    """The session that a subagent works for, or that a fork continues."""
    spawned = mapping(mapping(mapping(given.get("source")).get("subagent")).get("thread_spawn"))
    parent = text(given.get("parent_thread_id")) or text(spawned.get("parent_thread_id"))
    if not parent:
        origin = text(given.get("forked_from_id"))
        return {"forked_from": origin} if origin else {}
    session = text(given.get("session_id"))
    agent = text(given.get("agent_path")) or text(given.get("agent_nickname"))
    relation = {"is_subagent": True, "session": session if session and session != id else parent}
    return relation | ({"agent": agent} if agent else {})


def _begins_with(item: dict[str, Any], beginnings: tuple[str, ...]) -> bool:
    """Whether each piece of a message begins with one of these."""
    pieces = items(item.get("content"))
    for piece in pieces:
        if not text(mapping(piece).get("text")).startswith(beginnings):
            return False
    return bool(pieces)
