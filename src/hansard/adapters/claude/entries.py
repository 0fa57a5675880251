"""Entries of Claude's transcripts as messages of the shared history, and messages as entries."""

from __future__ import annotations

import uuid
from typing import Any, cast

from hansard import codec
from hansard.adapters.history import reading_of
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.ids import message_id
from hansard.limits import Limits
from hansard.model import Message
from hansard.store import checks

FORMAT = "claude.transcript"
NAMES = uuid.UUID("6f6b8d1c-5f0e-4d3a-9b67-0f0a6f9c1e55")

_MORE = 2_000
"""Bytes that the record of an entry may have besides the entry."""

Entry = dict[str, Any]


def private_copy(entry: object, limits: Limits) -> Entry:
    """Returns a private copy of an entry. Refuses one that cannot be stored, before any of its batch is written."""
    if not isinstance(entry, dict):
        raise ValidationError(f"an entry of a transcript must be a mapping, not a {type(entry).__name__}")
    if is_dialogue(entry):
        return {**entry}
    if name := uuid_of(entry):
        checks.id_of(name, "the uuid of an entry", limits)
    # One level and some bytes less than a record may have: the record adds to the entry.
    text, copy = codec.snapshot(entry, "an entry", depth=limits.depth - 1)
    checks.count(len(text), "the size of an entry", limits.content_bytes - _MORE, least=0)
    return cast(Entry, copy)


def without_halves(value: Any) -> Any:
    """Returns the value with U+FFFD for lone surrogates, which tools leave where they truncate a text."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {without_halves(name): without_halves(item) for name, item in value.items()}
    return [without_halves(item) for item in value] if isinstance(value, list) else value


def is_dialogue(entry: Entry) -> bool:
    """Whether an entry of the main transcript is part of the dialogue, and so a message for every framework to read."""
    message = entry.get("message")
    return (
        entry.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and message.get("role") in ("user", "assistant")
        and isinstance(message.get("content"), str | list)
        and not any(entry.get(mark) for mark in ("isSidechain", "isMeta"))
    )


def row_of(entry: Entry) -> Message:
    """Returns the message of an entry. It has an id at once, so that side entries can refer to it."""
    content = entry["message"]["content"]
    answers = isinstance(content, list) and content and all(_is_result(block) for block in content)
    id = uuid_of(entry) or message_id()
    return Message("tool" if answers else entry["message"]["role"], entry, id=id, format=FORMAT)


def uuid_of(entry: Entry) -> str:
    """Returns the entry's uuid; empty if it has none."""
    name = entry.get("uuid")
    return name if isinstance(name, str) else ""


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def texts_of(row: Message) -> list[str]:
    """Returns the texts of a message that side entries may quote."""
    message = row.content.get("message") if row.format == FORMAT and isinstance(row.content, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return [block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return [content if isinstance(content, str) else row.text]


def entries_of(row: Message, session_id: str, parent: str | None, answer: str | None = None) -> list[Entry]:
    """Returns a message as entries: its own content if Claude wrote it.

    `answer` is the id of the assistant's answer in progress. Claude's process treats entries with the same id as one
    answer, as it writes them itself, and expects the results of all calls after it.
    """
    if row.format == FORMAT and isinstance(row.content, dict):
        return [row.content]
    entries = []
    spoken = registry.write(reading_of(row), "anthropic", row)
    if _side(row) == "assistant" and len(spoken) > 1:
        # Anthropic's dialogues begin with a user: drop the user turn that conversion adds to an assistant's message.
        spoken = [written for written in spoken if written["role"] == "assistant"]
    for number, written in enumerate(spoken):
        name = str(uuid.uuid5(NAMES, f"{row.conversation_id}/{row.id}.{number}"))
        entries.append(_entry(written, row, session_id, name, parent, answer or f"msg_{name}"))
        parent, answer = name, answer_in(entries[-1])
    return entries


def answer_in(entry: Entry) -> str | None:
    """Returns the id of the assistant's answer that an entry made here is part of; None for other entries."""
    return entry["message"].get("id") if entry["type"] == "assistant" else None


def _entry(written: Any, row: Message, session_id: str, name: str, parent: str | None, answer: str) -> Entry:
    message = (
        written
        if isinstance(written, dict) and "role" in written
        else {"role": _side(row), "content": _blocks(written)}
    )
    if message["role"] == "assistant":
        message = {
            "id": answer,
            "type": "message",
            "role": "assistant",
            "model": (row.usage.model if row.usage else None) or "unknown",
            "content": _blocks(message["content"]),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/",
        "sessionId": session_id,
        "version": "1.0.0",
        "type": message["role"],
        "message": message,
        "uuid": name,
        "timestamp": row.created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _blocks(content: Any) -> Any:
    """Returns content of Claude's own format as blocks: it may be a text, one block, or a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [content] if isinstance(content, dict) else content


def _side(row: Message) -> str:
    return "assistant" if row.role in ("assistant", "agent") else "user"
