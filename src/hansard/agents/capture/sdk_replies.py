"""Replies of providers' SDKs, recognised by their fields: none of the SDKs is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hansard.model import Status, Usage


class SdkReply(Struct, frozen=True):
    """A provider's reply: its content in the provider's format, and its cost."""

    content: Any
    format: str = ""
    usage: Usage | None = None
    status: Status = "complete"


def field_of(value: Any, *names: str) -> Any:
    """Returns the first of these fields that a mapping or an object has, and that is not None."""
    if value is None:
        return None
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found is not None and not callable(found):
            return found
    return None


def usage_of(value: Any) -> Usage | None:
    """Returns tokens as OpenAI, Anthropic or we report them."""
    if value is None or isinstance(value, Usage):
        return value
    details = field_of(value, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    thought = field_of(value, "completion_tokens_details", "output_tokens_details", "output_token_details")
    cached = field_of(value, "cached_tokens", "cache_read_input_tokens") or field_of(details, "cached_tokens")
    cost, model = field_of(value, "cost"), field_of(value, "model")
    return Usage(
        input_tokens=_count(field_of(value, "input_tokens", "prompt_tokens")),
        output_tokens=_count(field_of(value, "output_tokens", "completion_tokens")),
        cached_tokens=_count(cached),
        reasoning_tokens=_count(field_of(value, "reasoning_tokens") or field_of(thought, "reasoning_tokens")),
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else 0.0,
        model=model if isinstance(model, str) else None,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def named(usage: Usage | None, model: Any) -> Usage | None:
    if usage is None or usage.model is not None or not isinstance(model, str):
        return usage
    return msgspec.structs.replace(usage, model=model)


def answer_of(result: Any) -> SdkReply | None:
    """Returns the reply of a Chat Completion, an Anthropic message or a Response; None for anything else."""
    model = field_of(result, "model")
    usage = named(usage_of(field_of(result, "usage")), model)
    choices = field_of(result, "choices")
    if isinstance(choices, list) and choices:
        message = plain(field_of(choices[0], "message"))
        if isinstance(message, dict):
            blocked = field_of(choices[0], "finish_reason") == "content_filter"
            return _chat_answer(message, usage, "blocked" if blocked else "complete")
    blocks = field_of(result, "content")
    if isinstance(blocks, list) and field_of(result, "stop_reason") is not None:
        blocked = field_of(result, "stop_reason") == "refusal"
        return SdkReply(blocks_of(blocks), "anthropic", usage, "blocked" if blocked else "complete")
    items = field_of(result, "output")
    if isinstance(items, list) and field_of(result, "object") == "response":
        return SdkReply([plain(item) for item in items], "openai.responses", usage)
    return None


def _chat_answer(message: dict[str, Any], usage: Usage | None, status: Status) -> SdkReply:
    present = {key: value for key, value in message.items() if value not in (None, [])}
    if set(present) <= {"role", "content"} and isinstance(present.get("content"), str):
        return SdkReply(present["content"], "text", usage, status)
    return SdkReply({"role": "assistant", "content": None, **present}, "openai.chat", usage, status)


def blocks_of(blocks: list[Any]) -> list[Any]:
    # Empty fields that the SDK adds are not part of the content.
    return [_without_none(plain(block)) for block in blocks]


def _without_none(block: Any) -> Any:
    return {key: value for key, value in block.items() if value is not None} if isinstance(block, dict) else block


def plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else value


def text_of(chunk: Any) -> str | None:
    """Returns the text that a piece of a stream adds; None if it adds none."""
    if isinstance(chunk, str):
        return chunk
    choices = field_of(chunk, "choices")
    if isinstance(choices, list) and choices:
        return _text(field_of(field_of(choices[0], "delta"), "content"))
    kind = field_of(chunk, "type")
    if kind == "response.output_text.delta":
        return _text(field_of(chunk, "delta"))
    if kind == "content_block_delta":
        return _text(field_of(field_of(chunk, "delta"), "text"))
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def is_known(chunk: Any) -> bool:
    """Whether this is a piece of a provider's stream, with or without text."""
    return isinstance(field_of(chunk, "choices"), list) or isinstance(field_of(chunk, "type"), str)


def chunk_usage(chunk: Any) -> Usage | None:
    """Returns the usage that a piece of a stream reports: OpenAI's last, Anthropic's first and last."""
    whole = field_of(chunk, "response", "message") or chunk
    return named(usage_of(field_of(chunk, "usage") or field_of(whole, "usage")), field_of(whole, "model"))


def merged(one: Usage | None, other: Usage | None) -> Usage | None:
    """Merges two reports about the same answer: each number is the higher one."""
    if one is None or other is None:
        return one or other
    return Usage(
        max(one.input_tokens, other.input_tokens),
        max(one.output_tokens, other.output_tokens),
        max(one.cached_tokens, other.cached_tokens),
        max(one.reasoning_tokens, other.reasoning_tokens),
        max(one.cost, other.cost),
        other.model or one.model,
    )
