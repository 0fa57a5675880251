"""Claude Code's transcripts: one JSON Lines file a session, or a folder of them (`~/.claude/projects`).

Messages of users, Claude and its tools become messages of the format `claude.transcript`, as the adapter for the
Claude Agent SDK stores them. All lines are kept, so that the file can be written again: see `transcripts.py`. A
subagent's transcript is a conversation of its own, named after its session.

Claude Code writes a line for each block of a response, and each says the tokens of the whole response: they are counted
once, with the last line. The result of each of several calls follows the line of its call, like a branch; it is put
behind the lines of the response and the results that came before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from msgspec import structs

from hansard.formats import claude_transcript
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcript_file import SessionState, TranscriptFile, first_words, transcripts
from hansard.importers.values import count, mapping, number, text, time
from hansard.model import NOT_YET, Message, Usage

_ABOUT = (("cwd", "project"), ("gitBranch", "git_branch"), ("version", "version"))
_TITLES = {"custom-title": ("customTitle", "title"), "ai-title": ("aiTitle", "title"), "summary": ("summary",)}
"""Lines that name a session, the best first."""
_REMEMBERED = 200
"""Lines without a message that a state keeps: what follows one comes soon after it."""
_OPEN = 10
"""Responses of which a state keeps the lines, because more blocks or results of calls may come."""


class ClaudeCode:
    name = "claude-code"
    title = "Claude Code transcripts: a session's .jsonl, or a folder of them"

    def recognises(self, source: ImportSource) -> bool:
        names = source.named(".jsonl")
        return bool(names) and any(self.is_transcript(source.head(name)) for name in names[:20])

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        return transcripts(self, source, report, otherwise="it is no transcript of Claude Code")

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

    def add(self, at: int, entry: dict[str, Any]) -> Message | None:
        kind, uuid = text(entry.get("type")), text(entry.get("uuid"))
        if uuid:
            self._parents[uuid] = text(entry.get("parentUuid")) or text(entry.get("logicalParentUuid")) or None
        for field, name in _ABOUT:
            if field in entry and text(entry[field]):
                self._about[name] = entry[field]
        for field in _TITLES.get(kind, ()):
            if text(entry.get(field)):
                self._titles[kind] = entry[field]
        if kind == "cost-state" and (cost := number(entry.get("totalCostUSD"))) is not None:
            self._about["cost"] = round(cost, 6)
        if kind in ("user", "assistant") and uuid and isinstance(entry.get("message"), dict):
            return self._messages.setdefault(uuid, _message(uuid, entry))
        return None

    def conversation(self, file: TranscriptFile) -> ForeignConversation:
        parents, _ = self._linked()
        counted = self._counted()
        found = [ForeignMessage(message, parents[message.id]) for message in counted]
        return ForeignConversation(
            id=self._id,
            messages=found,
            title=next((self._titles[kind] for kind in _TITLES if kind in self._titles), None),
            first_words=first_words(_spoken(self._messages.values())),
            created_at=found[0].message.created_at if found and found[0].message.created_at is not NOT_YET else None,
            agent_id="claude-code",
            metadata=self._about | self._totals(counted) | self._subagent(),
            transcript=file.transcript(),
            is_parsed=True,
        )

    def _subagent(self) -> dict[str, Any]:
        return {"is_subagent": True, "session": self._id.partition("/")[0]} if self._is_subagent else {}

    def _linked(self) -> tuple[dict[str, str | None], dict[str, list[str]]]:
        """What each message follows, and the messages of each response: its blocks, and the results of its calls."""
        parents: dict[str, str | None] = {}
        responses = {id: [*uuids] for id, uuids in self._before.responses.items()}
        response_of = {uuid: id for id, uuids in responses.items() for uuid in uuids}
        for uuid, message in self._messages.items():
            nearest = self._parent(uuid)
            before = response_of.get(nearest or "")
            parents[uuid] = responses[before][-1] if before is not None else nearest
            own = _response(message) or (before if _is_result(message) else None)
            if own is not None:
                responses.setdefault(own, []).append(uuid)
                response_of[uuid] = own
        return parents, responses

    def _counted(self) -> list[Message]:
        """The messages. Of the blocks of a response, only the last one has its tokens."""
        last = {response: uuid for uuid, message in self._messages.items() if (response := _response(message))}
        if not last:
            return [*self._messages.values()]
        return [
            message if last.get(_response(message) or "", uuid) == uuid else _without_tokens(message)
            for uuid, message in self._messages.items()
        ]

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
        """A response that goes on: its tokens are those of its last block, which was another one before."""
        answered, model = self._before.answered, self._before.metadata.get("model")
        ids = {response for message in self._messages.values() if (response := _response(message))}
        goes_on = answered is not None and any(answered in self._before.responses.get(id, ()) for id in ids)
        return {answered: Usage(model=model)} if answered is not None and goes_on else {}

    def state(self) -> SessionState:
        others = [uuid for uuid in self._parents if uuid not in self._messages][-_REMEMBERED:]
        counted = self._counted()
        totals = self._totals(counted)
        _, responses = self._linked()
        answers = (uuid for uuid, message in reversed(self._messages.items()) if message.usage is not None)
        return SessionState(
            id=self._id,
            parents={uuid: self._parent(uuid) for uuid in others},
            last=next(reversed(self._messages), self._before.last),
            answered=next(answers, self._before.answered),
            responses={id: tuple(responses[id]) for id in list(responses)[-_OPEN:]},
            metadata=self._about | {name: totals[name] for name in ("model",) if name in totals},
            titles=self._titles,
            models=tuple(totals.get("models", ())),
            cost=self._cost(counted),
        )

    def _totals(self, counted: list[Message]) -> dict[str, Any]:
        used = [message.usage.model for message in counted if message.usage is not None]
        models = [model for model in used if model and not model.startswith("<")]
        last = models[-1] if models else self._about.get("model")
        every = sorted({*models, *self._before.models})
        # Newer versions say what the session has cost so far, older ones what each answer has cost.
        cost = self._about.get("cost") or self._cost(counted)
        return ({"model": last, "models": every} if last else {}) | ({"cost": cost} if cost else {})

    def _cost(self, counted: list[Message]) -> float:
        costs = (message.usage.cost for message in counted if message.usage is not None)
        return round(self._before.cost + sum(costs), 6)


def _spoken(messages: Any) -> Iterator[str]:
    """What the user has typed, without what Claude Code writes in the user's name."""
    for message in messages:
        if message.role == "user" and not (message.metadata or {}).get("hidden"):
            yield message.text


def _response(message: Message) -> str | None:
    """The id of the response that a line is a block of."""
    return text(message.content["message"].get("id")) or None if message.role == "assistant" else None


def _is_result(message: Message) -> bool:
    """Whether it is the result of a call, or what a tool says besides it."""
    return message.role == "tool" or bool(text(message.content.get("sourceToolUseID")))


def _without_tokens(message: Message) -> Message:
    return structs.replace(message, usage=Usage(model=message.usage.model) if message.usage is not None else None)


def _is_hidden(entry: dict[str, Any]) -> bool:
    """Whether Claude Code has written it in the user's name."""
    return bool(entry.get("isMeta") or entry.get("isCompactSummary") or entry.get("promptSource") == "system")


def _message(uuid: str, entry: dict[str, Any]) -> Message:
    native = entry["message"]
    content = native.get("content")
    kinds = {text(mapping(block).get("type")) for block in content} if isinstance(content, list) else ()
    role = "tool" if kinds == {"tool_result"} else text(native.get("role")) or entry["type"]
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
            cost=number(entry.get("costUSD")) or 0.0,
        )
        if usage
        else None,
        metadata={"hidden": True} if _is_hidden(entry) else None,
    )
