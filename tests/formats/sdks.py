"""The providers' own types: what they say about a value, to the last element."""

from __future__ import annotations

import warnings
from typing import Any

from pydantic import TypeAdapter

with warnings.catch_warnings():
    # Compiled for the first time, a docstring of its own has an invalid escape.
    warnings.simplefilter("ignore")
    from google.genai import types as gemini

import anthropic.types
import openai.types.chat
import openai.types.realtime
import openai.types.responses

CHAT: TypeAdapter[Any] = TypeAdapter(list[openai.types.chat.ChatCompletionMessageParam])
RESPONSES: TypeAdapter[Any] = TypeAdapter(list[openai.types.responses.ResponseInputItemParam])
REALTIME: TypeAdapter[Any] = TypeAdapter(list[openai.types.realtime.ConversationItemParam])
ANTHROPIC: TypeAdapter[Any] = TypeAdapter(list[anthropic.types.MessageParam])
ANTHROPIC_SYSTEM: TypeAdapter[Any] = TypeAdapter(str | list[anthropic.types.TextBlockParam] | None)

__all__ = ["ANTHROPIC", "ANTHROPIC_SYSTEM", "CHAT", "REALTIME", "RESPONSES", "accept", "gemini"]


def accept(adapter: TypeAdapter[Any], value: Any) -> None:
    _exhaust(adapter.validate_python(value))


def _exhaust(value: Any) -> None:
    """Pydantic checks an `Iterable` only while it is walked: walk them all."""
    if isinstance(value, dict):
        for item in value.values():
            _exhaust(item)
    elif hasattr(value, "__iter__") and not isinstance(value, str | bytes):
        for item in value:
            _exhaust(item)
