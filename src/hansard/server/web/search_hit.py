"""A search hit as HTML: where it was found, and the passage around it. Formatted without a template, for speed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from msgspec import structs

from hansard.model import Message
from hansard.rendering.markdown import bare
from hansard.search.hits import Hit
from hansard.server.web import content, fragments
from hansard.server.web.conversation_rows import marked
from hansard.server.web.links import query, segment

SNIPPET, CONTEXT = 320, 140
"""Characters of a message that was found, and of those around it."""


def render(hit: Hit, title: str, home: str) -> str:
    message, conversation = hit.message, hit.conversation
    to = escape(f"{home}c/{segment(conversation.id)}{query(at=message.id)}#m{message.seq}")
    agent = f'<span class="badge agent">{escape(conversation.agent_id)}</span>' if conversation.agent_id else ""
    return (
        f'<li><a class="row" href="{to}">\n'
        f'<span class="row-head"><span class="row-title" dir="auto">{escape(title)}</span>{agent}'
        f'<span class="row-time">{fragments.time(message.created_at)}</span></span>\n'
        f"{''.join(_lines(hit))}</a></li>\n"
    )


def _lines(hit: Hit) -> Iterator[str]:
    """Yields a line for each message of the passage."""
    found = {id for passage in hit.passages for id in passage.found} | {hit.message.id}
    messages = [each for passage in hit.passages for each in passage.messages] or [hit.message]
    for message in messages:
        if message.id in found:
            snippet = str(marked(structs.replace(hit, message=message, passages=()).cut(SNIPPET)))
            yield _line(hit, message, "whole", snippet)
        elif text := " ".join(bare(message.text[: 3 * CONTEXT]).split()):
            yield _line(hit, message, "around", escape(text[:CONTEXT] + ("…" if len(text) > CONTEXT else "")))


def _line(hit: Hit, message: Message, kind: str, html: str) -> str:
    who = content.speaker_of(message, hit.conversation)
    return f'<span class="row-text {kind}" dir="auto"><span class="name">{escape(who.name)}</span> {html}</span>\n'
