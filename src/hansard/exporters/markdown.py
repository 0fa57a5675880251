"""Markdown for people: a heading for each conversation and each message of its active branch."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

from hansard.exporters import people
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport
from hansard.formats import parts
from hansard.model import Message

_TICKS = re.compile("`{3,}")
_ODD = re.compile(r"([\\`*_\[\]<>#|])")


class Markdown:
    name = "markdown"
    title = "Markdown, for people"
    media_type = "text/markdown; charset=utf-8"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        separator = ""
        async for each in conversations:
            yield (separator + _head(each)).encode("utf-8", "replace")
            count = 0
            async for message in each.line():
                if people.is_shown(message):
                    yield _message(message).encode("utf-8", "replace")
                    count += 1
            report.wrote(count)
            separator = "\n---\n\n"


def _head(given: ExportedConversation) -> str:
    facts = "".join(f"- {name}: {_plain(value)}\n" for name, value in people.facts(given.conversation))
    return f"# {_plain(people.title_of(given.conversation))}\n\n{facts}"


def _message(message: Message) -> str:
    heading = f"## {_plain(people.speaker(message))} · {people.moment(message.created_at)}"
    body = "\n\n".join(block for part in people.pieces(message) for block in _blocks(part) if block)
    status = "" if message.status == "complete" else f"\n\n*{message.status.replace('_', ' ')}*"
    return f"\n{heading}\n\n{body}{status}\n"


def _blocks(part: parts.AnyPart) -> Iterator[str]:
    match part:
        case parts.Text() | parts.Refusal():
            yield part.text.strip()
        case parts.Reasoning():
            yield "\n".join(f"> {line}".rstrip() for line in part.text.strip().splitlines())
        case parts.ToolCall():
            yield f"**Call of {_plain(part.name)}**"
            yield _fenced(people.pretty(part.arguments), "" if isinstance(part.arguments, str) else "json")
        case parts.ToolResult():
            yield "**Error**" if part.is_error else "**Result**"
            for piece in parts.result_parts(part):
                yield from [_fenced(piece.text)] if isinstance(piece, parts.Text) else _blocks(piece)
        case parts.Document(text=str(text)):
            yield _fenced(text)
        case parts.Media():
            yield f"*[{_plain(people.media_name(part))}]*"
        case _:
            yield _fenced(people.pretty(part.native), "json")


def _fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    fence = "`" * max([3, *(len(found) + 1 for found in _TICKS.findall(text))])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _plain(text: str) -> str:
    """Text without markup, on one line."""
    return _ODD.sub(r"\\\1", " ".join(text.split()))
