"""Content in any provider's format: read as plain text, as tool links, as parts; written in any other.

Pure functions, without any provider's package. Modules that are slow to import are imported with the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.formats.extract import ToolLinks, plain_text, tool_links

if TYPE_CHECKING:
    from hansard.formats.dialogue import Loss
    from hansard.formats.registry import (
        FORMATS,
        Converted,
        convert,
        read,
        to_anthropic_messages,
        to_gemini_contents,
        to_langchain_messages,
        to_openai_input,
        to_openai_responses,
        write,
    )

__all__ = [
    "FORMATS",
    "Converted",
    "Loss",
    "ToolLinks",
    "convert",
    "plain_text",
    "read",
    "to_anthropic_messages",
    "to_gemini_contents",
    "to_langchain_messages",
    "to_openai_input",
    "to_openai_responses",
    "tool_links",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hansard.formats import registry

    found = globals()[name] = getattr(registry, name)  # so that this function is not called again
    return found
