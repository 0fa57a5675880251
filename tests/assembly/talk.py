"""Conversations to assemble prompts from."""

from __future__ import annotations

from typing import Any

from hansard.model import Message, Participant

ANN = Participant("user", "u1", "Ann")
BEN = Participant("user", "u2", "Ben")
HELPER = Participant("agent", "helper", "Helper")
SCOUT = Participant("agent", "scout", "Scout")


def said(who: Participant | None, text: str, **fields: Any) -> Message:
    roles = {"user": "user", "agent": "assistant", "system": "system"}
    return Message(roles[who.kind] if who else "user", text, participant=who, format="text", **fields)


def call(*ids: str, **fields: Any) -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    content = {"role": "assistant", "content": None, "tool_calls": calls}
    return Message("assistant", content, format="openai.chat", **fields)


def result(id: str, text: str = "done", **fields: Any) -> Message:
    return Message("tool", {"role": "tool", "tool_call_id": id, "content": text}, format="openai.chat", **fields)


def numbered(messages: list[Message]) -> list[Message]:
    """As stored: each with an id and a seq."""
    from msgspec import structs

    return [structs.replace(each, id=each.id or f"m{at}", seq=at) for at, each in enumerate(messages, 1)]
