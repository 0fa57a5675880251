"""Summarizers: one for any OpenAI-compatible client, one for Anthropic's, and one without a model.

They take client objects of yours, async or blocking, and import no provider's package.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

from hansard.assembly.summaries import PROMPT_ID, SummaryRequest, spoken
from hansard.formats.dialogue import side_of
from hansard.model import Message

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]?")
_PIECE = 120


class ChatSummarizer:
    """Summaries by a model with Chat Completions: OpenAI's client, or any with the same API."""

    prompt_id: str | None = PROMPT_ID

    def __init__(self, client: Any, model: str, **options: Any) -> None:
        self._client = client
        self._options = options
        self.model: str | None = model

    async def summarize(self, request: SummaryRequest) -> str:
        limit = (
            {} if self._options.keys() & {"max_tokens", "max_completion_tokens"} else {"max_tokens": request.max_tokens}
        )
        answer = await _called(
            self._client.chat.completions.create,
            model=self.model,
            messages=[{"role": "user", "content": request.instructions}],
            **limit,
            **self._options,
        )
        choice = answer.choices[0]
        return "" if choice.finish_reason == "content_filter" else (choice.message.content or "").strip()


class AnthropicSummarizer:
    """Summaries by a model with Anthropic's Messages."""

    prompt_id: str | None = PROMPT_ID

    def __init__(self, client: Any, model: str, **options: Any) -> None:
        self._client = client
        self._options = options
        self.model: str | None = model

    async def summarize(self, request: SummaryRequest) -> str:
        answer = await _called(
            self._client.messages.create,
            model=self.model,
            messages=[{"role": "user", "content": request.instructions}],
            **{"max_tokens": request.max_tokens, **self._options},
        )
        if answer.stop_reason == "refusal":
            return ""
        return "".join(block.text for block in answer.content if block.type == "text").strip()


async def _called(create: Callable[..., Any], **arguments: Any) -> Any:
    """Returns the answer of an async or a blocking client. The latter runs in a thread."""
    answer = await asyncio.to_thread(create, **arguments)
    return await answer if inspect.isawaitable(answer) else answer


class ExtractiveSummarizer:
    """Summaries without a model: the first words of each message; the newest are kept longest.

    For tests, and as a mere reminder of the topics.
    """

    model: str | None = None
    prompt_id: str | None = "hansard-extract-1"

    async def summarize(self, request: SummaryRequest) -> str:
        lines = request.previous.splitlines() if request.previous else []
        lines += [line for message in request.messages if (line := _first_words(message))]
        size = request.max_tokens * 4
        kept: list[str] = []
        for line in reversed(lines):
            size -= len(line.encode()) + 1
            if size < 0:
                break
            kept.append(line)
        return "\n".join(reversed(kept))


def _first_words(message: Message) -> str:
    if side_of(message.role) not in ("user", "assistant"):
        return ""
    found = _SENTENCE.search(spoken(message))
    return found[0].strip()[:_PIECE] if found else ""
