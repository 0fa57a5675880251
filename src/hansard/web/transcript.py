"""A run of messages as HTML: who said what, results inside of their calls, summaries at the end of what they cover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from hansard import formats
from hansard.formats.parts import ToolResult
from hansard.model import Branch, Conversation, Message, Summary
from hansard.web import content, markdown, rendering

_HEAVY = 60_000
"""Characters from which on rendering goes to a thread."""
_STRUCTURED = 1_000
"""What content that is no text is taken for."""


class Setting(Struct, frozen=True):
    """What a message is shown in."""

    conversation: Conversation
    base: str
    """The way to the conversation."""
    may_write: bool = False
    branches: Sequence[Branch] = ()
    summaries: Sequence[Summary] = ()
    most: int = content.MOST


class Item(Struct, frozen=True):
    """One message, as it stands in the list."""

    html: Markup
    day: date
    is_new_day: bool
    summaries: list[Markup] = []


async def items_of(messages: Sequence[Message], setting: Setting) -> list[Item]:
    """What `items` gives; made off the event loop where there is much to render."""
    weight = sum(len(each.content) if isinstance(each.content, str) else _STRUCTURED for each in messages)
    if weight > _HEAVY:
        return await asyncio.to_thread(items, messages, setting)
    return items(messages, setting)


def items(messages: Sequence[Message], setting: Setting) -> list[Item]:
    """The messages as HTML, in their order, without those that are shown inside of others."""
    results, inside = _pair(messages)
    shown: list[Item] = []
    day: date | None = None
    seen = [message for message in messages if message.seq not in inside]
    covered = _ends(seen, setting.summaries, messages[-1].seq if messages else 0)
    for message in seen:
        html = _html(message, setting, results)
        at = message.created_at.date()
        shown.append(Item(html, at, at != day, covered.get(message.seq, [])))
        day = at
    return shown


def joined(shown: Iterable[Item]) -> Markup:
    """The items as one text, with a line where a day begins."""
    pieces: list[str] = []
    for item in shown:
        if item.is_new_day:
            pieces.append(f'<p class="day"><span>{item.day.strftime("%-d %B %Y")}</span></p>\n')
        pieces += [item.html, *item.summaries, "\n"]
    return Markup("".join(pieces))


def one(message: Message, setting: Setting) -> Markup:
    return _html(message, setting, {})


def _pair(messages: Sequence[Message]) -> tuple[dict[str, tuple[ToolResult, Message]], set[int]]:
    """Results by the call that they answer, and the messages that are nothing but such results."""
    calls: set[str] = set()
    results: dict[str, tuple[ToolResult, Message]] = {}
    inside: set[int] = set()
    for message in messages:
        links = formats.tool_links(message)
        if links.results and calls.issuperset(links.results):
            found = content.results_in(message)
            if found and not any(each.id in results for each in found):
                results.update({each.id: (each, message) for each in found})
                inside.add(message.seq)
        calls.update(links.calls)
    return results, inside


def _html(message: Message, setting: Setting, results: dict[str, tuple[ToolResult, Message]]) -> Markup:
    answers = [results[id][1] for id in formats.tool_links(message).calls if id in results]
    conversation = setting.conversation
    left_at = [each.id for each in setting.branches if each.from_seq == message.seq]

    def values() -> dict[str, Any]:
        blocks = content.blocks_of(message, formats.read(message), results, setting.base, setting.most)
        speaker = content.speaker_of(message, conversation)
        return {"m": message, "who": speaker, "blocks": blocks, "left_at": left_at, "base": setting.base}

    people = (conversation.user_id, conversation.agent_id)
    return rendering.remembered("message.html", (message, answers, setting.base, setting.most, left_at, people), values)


def _ends(messages: Sequence[Message], summaries: Iterable[Summary], end: int) -> dict[int, list[Markup]]:
    """For each message that is seen, the summaries whose range ends with it, or with what is folded into it."""
    found: dict[int, list[Markup]] = {}
    if not messages:
        return found
    for summary in summaries:
        if summary.to_seq < messages[0].seq or summary.to_seq > end:
            continue
        last = max(each.seq for each in messages if each.seq <= summary.to_seq)
        text = Markup(markdown.render(summary.text[: content.MOST]))
        html = Markup(rendering.render("summary.html", summary=summary, text=text))
        found.setdefault(last, []).append(html)
    return found
