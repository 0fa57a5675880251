"""One HTML page that needs nothing else: no scripts, no fonts, no requests. Messages are rendered as on Hansard's page.

Content is hostile until proven otherwise: texts pass through the page's Markdown renderer, which escapes HTML and
sanitizes its output; everything else is escaped; only pictures of known types are embedded; and the page's own content
security policy forbids everything but its style and those pictures.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from html import escape
from pathlib import Path

from hansard.errors import Unsupported
from hansard.exporters import people
from hansard.exporters.exporter import ExportedConversation
from hansard.exporters.report import ExportReport
from hansard.formats import parts
from hansard.model import Message

_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_BEGIN = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="POLICY">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Conversations</title>
<style>
STYLE</style>
</head>
<body>
"""
_END = "</body>\n</html>\n"

Render = Callable[[str], str]


class Html:
    name = "html"
    title = "one HTML page, for people"
    media_type = "text/html; charset=utf-8"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        page = _Page(_renderer())
        style = Path(__file__).with_name("page.css").read_text("utf-8")
        yield _BEGIN.replace("POLICY", _POLICY).replace("STYLE", style).encode()
        async for each in conversations:
            yield _bytes(page.head(each))
            count = 0
            async for message in each.line():
                if people.is_shown(message):
                    yield _bytes(page.message(message))
                    count += 1
            yield b"</main>\n"
            report.wrote(count)
        yield _END.encode()


def _renderer() -> Render:
    try:
        from hansard.rendering.markdown import render
    except ImportError as error:
        raise Unsupported(
            "the export as HTML needs an extra: pip install 'hansard[server]'", capability="html"
        ) from error
    return render


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


class _Page:
    def __init__(self, render: Render) -> None:
        self._render = render
        self._calls: dict[str, str] = {}
        """The names of the tools whose results have not come yet."""

    def head(self, given: ExportedConversation) -> str:
        self._calls.clear()
        facts = "".join(
            f"<dt>{name}</dt><dd><bdi>{escape(value)}</bdi></dd>" for name, value in people.facts(given.conversation)
        )
        return f'<main>\n<h1 dir="auto">{escape(people.title_of(given.conversation))}</h1>\n<dl>{facts}</dl>\n'

    def message(self, message: Message) -> str:
        kind = "user" if message.role == "user" else "other"
        status = "" if message.status == "complete" else f" · {escape(message.status.replace('_', ' '))}"
        who = f"<b><bdi>{escape(people.speaker(message))}</bdi></b> · {people.moment(message.created_at)}{status}"
        body = "\n".join(filter(None, map(self._part, people.pieces(message))))
        return f'<article class="{kind}">\n<header>{who}</header>\n{body}\n</article>\n'

    def _part(self, part: parts.AnyPart) -> str:
        match part:
            case parts.Text() | parts.Refusal():
                return self._render(part.text) if part.text.strip() else ""
            case parts.Reasoning():
                return _folded("Reasoning", self._render(part.text)) if part.text.strip() else ""
            case parts.ToolCall():
                self._calls[part.id] = part.name
                return _folded(f"Call of {part.name}", _code(people.pretty(part.arguments)))
            case parts.ToolResult():
                return self._result(part)
            case parts.Document(text=str(text)):
                return _folded(people.media_name(part), _code(text))
            case parts.Media():
                return _media(part)
        return _folded(part.origin or "Content", _code(people.pretty(part.native)))

    def _result(self, result: parts.ToolResult) -> str:
        inside = [
            _code(piece.text) if isinstance(piece, parts.Text) else self._part(piece)
            for piece in parts.result_parts(result)
        ]
        what = "Error" if result.is_error else "Result"
        name = self._calls.pop(result.id, None) or result.name
        return _folded(f"{what} of {name}" if name else what, "".join(inside), is_error=result.is_error)


def _folded(summary: str, inside: str, *, is_error: bool = False) -> str:
    kind = ' class="error"' if is_error else ""
    return f"<details{kind}><summary><bdi>{escape(summary)}</bdi></summary>\n{inside}</details>"


def _code(text: str) -> str:
    return f'<pre><code dir="auto">{escape(text)}</code></pre>\n'


def _media(media: parts.Media) -> str:
    name = escape(people.media_name(media))
    if media.media_type in _PICTURES and media.data and _BASE64.fullmatch(media.data):
        return f'<p><img alt="{name}" src="data:{media.media_type};base64,{media.data}"></p>'
    return f"<p>[<bdi>{name}</bdi>]</p>"
