"""What Open WebUI renders into the text of an answer: `<details>` with reasoning, tool calls or code.

Texts that only look like it are left as they are.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import count

from msgspec import DecodeError, json

from hansard.formats import parts

_SIGN = '<details type="'
_OPENING = re.compile(r'<details type="(reasoning|tool_calls|code_interpreter)"([^<>]*)>')
_CLOSING = "</details>"
_SUMMARY = re.compile(r"\s*<summary>[^<]*</summary>")
_ATTRIBUTE = re.compile(r'\b([a-z_]+)="([^"]*)"')
_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)


def has_details(said: str, role: str) -> bool:
    """Whether a text may consist of several parts."""
    return role == "assistant" and _SIGN in said


def detail_parts(said: str, role: str) -> Iterator[tuple[str, parts.AnyPart]]:
    """The parts of a text, each with the role of who says it: results of tools are the tool's."""
    if not has_details(said, role):
        if said:
            yield role, parts.Text(text=said)
        return
    end = 0
    for number in count(1):
        opening = _OPENING.search(said, end)
        closing = said.find(_CLOSING, opening.end()) if opening else -1
        if opening is None or closing < 0:
            break
        if before := said[end : opening.start()].strip():
            yield role, parts.Text(text=before)
        body = said[opening.end() : closing]
        if summary := _SUMMARY.match(body):
            body = body[summary.end() :]
        yield from _details(opening[1], dict(_ATTRIBUTE.findall(opening[2])), body, number)
        end = closing + len(_CLOSING)
    if rest := said[end:].strip():
        yield role, parts.Text(text=rest)


def _details(kind: str, about: dict[str, str], body: str, number: int) -> Iterator[tuple[str, parts.AnyPart]]:
    body = html.unescape(body).strip()
    if kind == "reasoning":
        lines = [line.removeprefix("> ").removeprefix(">") for line in body.splitlines()]
        yield "assistant", parts.Reasoning(text="\n".join(lines))
        return
    id = about.get("id") or f"call-{number}"
    name = about.get("name") or kind
    if kind == "tool_calls":
        arguments = _value(about.get("arguments"))
        result = _value(about.get("result"))
    else:
        code = _FENCE.fullmatch(body)
        arguments, result = {"code": code[1] if code else body}, _value(about.get("output"))
    if isinstance(arguments, str):
        arguments = parts.arguments_of(arguments)
    yield "assistant", parts.ToolCall(id=id, name=name, arguments=arguments)
    if about.get("done") != "false":
        yield "tool", parts.ToolResult(id=id, output=result, name=name)


def _value(escaped: str | None) -> object:
    """JSON inside of an attribute; the text itself where it is none."""
    said = html.unescape(escaped or "")
    try:
        return json.decode(said) if said else ""
    except (DecodeError, RecursionError):
        return said
