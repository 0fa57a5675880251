"""The model endpoint as the chat model of the web page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from hansard.agents.capture.sdk_replies import named, usage_of
from hansard.errors import Unavailable
from hansard.model import Usage
from hansard.server.openai.upstream import Upstream, events, is_done
from hansard.server.openai.wire_errors import WireError


class ChatModel:
    """The model that `--model` names, at the endpoint that `--upstream` names."""

    def __init__(self, upstream: Upstream, name: str) -> None:
        self._upstream = upstream
        self.name = name

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str | Usage]:
        body = {"model": self.name, "messages": list(messages), "stream": True}
        is_whole = False
        try:
            async with self._upstream.ask("/chat/completions", body) as answer:
                async for raw, data in events(answer):
                    chunk = _chunk(data)
                    is_whole = is_whole or is_done(raw) or any(each.finish_reason for each in chunk.choices)
                    for each in chunk.choices[:1]:
                        if each.delta.content:
                            yield each.delta.content
                    usage = named(usage_of(chunk.usage), self.name)
                    if usage is not None:
                        yield usage
        except WireError as error:
            raise Unavailable(str(error), retryable=False, outcome="not_applied") from error
        if not is_whole:
            raise Unavailable("The model endpoint broke off.", retryable=True, outcome="not_applied")


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _CompletionChunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None


def _chunk(data: Any) -> _CompletionChunk:
    """Decodes a chunk of a stream; returns an empty one if it is not valid."""
    try:
        return msgspec.convert(data, _CompletionChunk)
    except msgspec.ValidationError:
        return _CompletionChunk()
