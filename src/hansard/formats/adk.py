"""Google's ADK: an event that holds one of Gemini's contents. Only read; events are written by ADK."""

from __future__ import annotations

from typing import Any

from hansard.formats import gemini
from hansard.formats.parts import Other, Reading

FORMAT = "adk"


def read(content: Any, role: str) -> Reading:
    if not isinstance(content, dict):
        return Reading([Other(native=content, origin=FORMAT)])
    said = content.get("content")
    # An event may change the state and say nothing.
    return gemini.read(said, role) if isinstance(said, dict) and "parts" in said else Reading([])
