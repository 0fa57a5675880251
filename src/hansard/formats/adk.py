"""Google's ADK: an event that holds one of Gemini's contents. Read only: ADK writes its own events."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hansard.formats import gemini
from hansard.formats.parts import AnyPart, OtherPart, Reading, ToolResult

FORMAT = "adk"


def read(content: Any, role: str) -> Reading:
    if not isinstance(content, dict):
        return Reading([OtherPart(native=content, origin=FORMAT)])
    inner = content.get("content")
    if not isinstance(inner, dict) or "parts" not in inner:
        return Reading([])  # An event may change the state and have no content.
    reading = gemini.read(inner, role)
    return Reading([_unwrapped(part) for part in reading.parts], reading.role)


def _unwrapped(part: AnyPart) -> AnyPart:
    """ADK wraps the output of a tool in an object if it is not one already."""
    if isinstance(part, ToolResult) and isinstance(part.output, dict) and part.output.keys() == {"result"}:
        return structs.replace(part, output=part.output["result"])
    return part
