"""Content in any provider's vocabulary, read as plain text and as tool links. Pure functions, no provider's package."""

from __future__ import annotations

from hansard.formats.reading import ToolLinks, plain_text, tool_links

__all__ = ["ToolLinks", "plain_text", "tool_links"]
