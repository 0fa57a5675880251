"""From history to prompt. Works on messages only, never on a store.

Modules that are slow to import are imported with the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hansard.assembly.explanation import Decision, Prompt
    from hansard.assembly.summaries import Summarizer, SummaryRequest
    from hansard.assembly.summarizers import AnthropicSummarizer, ChatSummarizer, ExtractiveSummarizer
    from hansard.assembly.tokens import ByteCounter, TokenCounter, Tokenizer
    from hansard.assembly.window import valid

_WHERE = {
    "AnthropicSummarizer": "summarizers",
    "ByteCounter": "tokens",
    "ChatSummarizer": "summarizers",
    "Decision": "explanation",
    "ExtractiveSummarizer": "summarizers",
    "Prompt": "explanation",
    "Summarizer": "summaries",
    "SummaryRequest": "summaries",
    "TokenCounter": "tokens",
    "Tokenizer": "tokens",
    "valid": "window",
}

__all__ = [
    "AnthropicSummarizer",
    "ByteCounter",
    "ChatSummarizer",
    "Decision",
    "ExtractiveSummarizer",
    "Prompt",
    "Summarizer",
    "SummaryRequest",
    "TokenCounter",
    "Tokenizer",
    "valid",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"hansard.assembly.{_WHERE[name]}"), name)
