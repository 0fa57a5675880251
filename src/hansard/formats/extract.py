"""What all formats have in common: text, tool calls, and their results.

The formats of the providers do not collide, so one walk reads them all: `tool_calls` and `tool_call_id` (Chat
Completions), `function_call` and `function_call_output` items (Responses), `tool_use` and `tool_result` blocks
(Anthropic), `functionCall` and `functionResponse` parts (Gemini), `tool_call` and `tool_result` (our parts), parts with
a `part_kind` (Pydantic AI). LangChain wraps its messages in `data` or `kwargs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from hansard.model import Message

_TEXT_KEYS = ("text", "content", "parts", "output", "transcript", "refusal", "summary", "thinking")
# Not included: calls that the provider answers itself, in the same message (`mcp_call`, `server_tool_use`).
_CALL_TYPES = ("tool_call", "tool_use", "function_call", "custom_tool_call")
_RESULT_TYPES = ("tool_result", "function_call_output", "custom_tool_call_output")


class ToolLinks(Struct, frozen=True):
    """The ids of the tool calls that a message makes, and of those that it answers."""

    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


NO_LINKS = ToolLinks()


def plain_text(message: Message) -> str:
    """Returns the text of a message, in paragraphs, without images, audio or arguments."""
    return "\n".join(text for text in _texts(message.content) if text)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for item in content:
            yield from _texts(item)
    elif isinstance(content, dict) and content.get("part_kind") != "system-prompt":
        for key in _TEXT_KEYS:
            if key in content:
                yield from _texts(content[key])
        yield from _texts(_wrapped(content))


def _wrapped(item: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the fields of a message that LangChain or the Claude Agent SDK has wrapped, or None."""
    fields = item.get("data") or item.get("kwargs") or item.get("message")
    return fields if isinstance(fields, dict) and "content" in fields else None


def tool_links(message: Message) -> ToolLinks:
    """Returns which tool calls a message makes and answers, in any format."""
    if isinstance(message.content, str):
        answered = (message.metadata or {}).get("tool_call_id")
        return ToolLinks(results=(answered,)) if isinstance(answered, str) else NO_LINKS
    calls: list[str] = []
    results: list[str] = []
    _collect(message.content, calls, results)
    return ToolLinks(tuple(calls), tuple(results)) if calls or results else NO_LINKS


def _collect(content: Any, calls: list[str], results: list[str]) -> None:
    if isinstance(content, list):
        for item in content:
            _collect(item, calls, results)
    elif isinstance(content, dict):
        _collect_object(content, calls, results)


def _collect_object(item: dict[str, Any], calls: list[str], results: list[str]) -> None:
    kind = item.get("type")
    if kind in _CALL_TYPES:
        _add(calls, item.get("call_id") or item.get("id"))
    elif kind in _RESULT_TYPES:
        _add(results, item.get("call_id") or item.get("tool_use_id") or item.get("id"))
    elif item.get("part_kind") == "tool-call":
        _add(calls, item.get("tool_call_id"))
    elif "tool_call_id" in item:
        _add(results, item["tool_call_id"])
    elif isinstance(call := item.get("functionCall") or item.get("function_call"), dict):
        _add(calls, call.get("id") or call.get("name"))
    elif isinstance(answer := item.get("functionResponse") or item.get("function_response"), dict):
        _add(results, answer.get("id") or answer.get("name"))
    else:
        _collect_inside(item, calls, results)


def _collect_inside(item: dict[str, Any], calls: list[str], results: list[str]) -> None:
    made = item.get("tool_calls")
    for call in made if isinstance(made, list) else ():
        if isinstance(call, dict):
            _add(calls, call.get("id"))
    for key in ("content", "parts"):
        _collect(item.get(key), [] if made else calls, results)
    _collect(_wrapped(item), calls, results)


def _add(ids: list[str], id: Any) -> None:
    if isinstance(id, str):
        ids.append(id)
