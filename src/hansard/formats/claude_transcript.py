"""Claude's transcripts: an entry that holds one of Anthropic's messages. Read only: Claude writes its own entries."""

from __future__ import annotations

from typing import Any

from hansard.formats import anthropic
from hansard.formats.parts import OtherPart, Reading

FORMAT = "claude.transcript"


def read(content: Any, role: str) -> Reading:
    message = content.get("message") if isinstance(content, dict) else None
    if not isinstance(message, dict):
        return Reading([OtherPart(native=content, origin=FORMAT)])
    own_role = message.get("role")
    reading = anthropic.read(message.get("content"), role)
    return Reading(reading.parts, own_role if isinstance(own_role, str) else None)
