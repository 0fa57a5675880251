"""`compat="toolpack"`: the prompt that toolpack's `assemblePrompt` would make, step by step, defects included.

Load, addressed filter, rolling summary, projection, budget. toolpack deletes what it has summarized. Nothing is deleted
here: a `Roll` stores which messages a summary represents, and later assemblies in this mode skip them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from hansard.assembly.explanation import Decision, Why
from hansard.formats.dialogue import side_of
from hansard.model import Message, MessageScope, Participant

SUMMARY_SHARE = 0.25


class Roll(Struct, frozen=True):
    """A summary as toolpack would have stored it, and the ids of the messages that it would have deleted."""

    id: str
    at: datetime
    scope: MessageScope
    covers: list[str]
    from_seq: int
    to_seq: int
    after: int = 0
    """The newest seq when it was made: of messages with the same time, those up to this one come before it."""
    text: str = ""
    """Not stored with the rest, but as a `Summary`, which is deleted with any message that it covers."""

    def as_message(self) -> Message:
        summarizer = Participant("system", "summarizer")
        return Message(
            "system",
            self.text,
            id=self.id,
            seq=self.to_seq,
            format="text",
            participant=summarizer,
            scope=self.scope,
            created_at=self.at,
        )


class ToolpackPrompt(Struct, frozen=True):
    messages: list[dict[str, str]]
    decisions: list[Decision]
    tokens: int


def seen(stored: Iterable[Message], rolls: Sequence[Roll], limit: int) -> list[Message]:
    """Returns what toolpack's store would hold: the newest `limit`, oldest first."""
    hidden = {id for roll in rolls for id in roll.covers}
    # Of equal times, the one stored first comes first.
    placed = [(message.created_at, message.seq, message) for message in stored if message.id not in hidden]
    placed += [(roll.at, roll.after, roll.as_message()) for roll in rolls if roll.id not in hidden]
    return [message for _, _, message in sorted(placed, key=lambda each: each[:2])][-limit:]


def addressed(messages: Sequence[Message], agent_id: str, aliases: Iterable[str]) -> list[Message]:
    names = {agent_id, *aliases}
    kept = []
    for index, message in enumerate(messages):
        following = _author(messages[index + 1], agent_id) if index + 1 < len(messages) else None
        if (
            _author(message, agent_id).id == agent_id
            or names.intersection(message.mentions)
            or following is None
            or (following.kind == "agent" and following.id == agent_id)
        ):
            kept.append(message)
    return kept


def halves(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Returns the messages to summarize, and those that stay."""
    middle = len(messages) // 2
    return messages[:middle], messages[middle:]


def roll_of(
    id: str, covered: Sequence[Message], text: str, turns: int, scope: MessageScope | None, *, after: int
) -> Roll:
    seqs = [message.seq for message in covered]
    return Roll(
        id,
        covered[0].created_at,
        scope or "channel",
        [message.id for message in covered],
        min(seqs),
        max(seqs),
        after,
        f"[Summary of {turns} earlier turns]: {text}",
    )


def filled(messages: Sequence[Message], loaded: Sequence[Message], agent_id: str, token_budget: int) -> ToolpackPrompt:
    """Projects messages and takes them newest first until one does not fit. The newest is always taken."""
    projected = [_project(message, agent_id) for message in messages]
    kept: list[dict[str, str]] = []
    whys: dict[str, tuple[Why, int]] = {}
    total = 0
    for message, item in zip(reversed(messages), reversed(projected), strict=True):
        tokens = _tokens(item["content"])
        if kept and total + tokens > token_budget:
            break
        whys[message.id] = ("fits" if kept else "newest", tokens)
        kept.append(item)
        total += tokens
    considered = {message.id for message in messages}
    decisions = [_decision(message, whys.get(message.id), message.id in considered, agent_id) for message in loaded]
    return ToolpackPrompt(kept[::-1], decisions, total)


def _decision(message: Message, kept: tuple[Why, int] | None, considered: bool, agent_id: str) -> Decision:
    item = _project(message, agent_id)
    if kept is not None:
        return Decision(message.id, message.seq, item["role"], True, kept[0], kept[1])
    why: Why = "over_budget" if considered else "not_addressed"
    return Decision(message.id, message.seq, item["role"], False, why, _tokens(item["content"]))


def _author(message: Message, agent_id: str) -> Participant:
    """Returns the participant; toolpack has no message without one."""
    if message.participant is not None:
        return message.participant
    side = side_of(message.role)
    if side == "assistant":
        return Participant("agent", agent_id)
    return Participant("system", "system") if side in ("system", "developer") else Participant("user", "user")


def _project(message: Message, agent_id: str) -> dict[str, str]:
    who = _author(message, agent_id)
    name = who.id if who.display_name is None else who.display_name
    if who.kind == "system":
        return {"role": "system", "content": message.text}
    if who.kind == "agent" and who.id == agent_id:
        return {"role": "assistant", "content": message.text}
    label = f"{name} (agent)" if who.kind == "agent" else name
    return {"role": "user", "content": f"{label}: {message.text}"}


def _tokens(text: str) -> int:
    """Returns toolpack's estimate: a quarter of the UTF-16 units, rounded up."""
    units = len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
    return (units + 3) // 4
