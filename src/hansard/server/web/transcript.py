"""Renders messages as HTML: results inside their calls, and summaries after the messages that they cover."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import date

from markupsafe import Markup
from msgspec import Struct

from hansard import formats
from hansard.executor import run_in_thread
from hansard.formats.extract import NO_LINKS
from hansard.formats.parts import ToolCall, ToolResult
from hansard.model import Branch, Conversation, Message, Summary
from hansard.rendering import markdown
from hansard.server.web import content, fragments, markup, quantities, turns

_HEAVY = 60_000
"""Characters above which messages are rendered in a thread."""
_STRUCTURED = 1_000
"""Assumed characters of structured content."""
_SHORT = 1_000
"""Characters of plain texts that are not cached by themselves: caching one takes half as long as rendering it."""


_NOTHING = Markup("")


class TranscriptContext(Struct, frozen=True):
    """The conversation and the options with which messages are rendered."""

    conversation: Conversation
    base: str
    """Link to the conversation."""
    may_write: bool = False
    branches: Sequence[Branch] = ()
    summaries: Sequence[Summary] = ()
    neighbours: Sequence[Message] = ()
    """Adjacent messages that are not shown but may contain counterparts of shown calls and results."""
    most: int = content.MOST


class TranscriptItem(Struct, frozen=True):
    """One rendered message."""

    html: Markup
    day: date
    is_new_day: bool
    summaries: list[Markup] = []
    turn: Markup = _NOTHING
    """The timeline of the turn that ends with the message."""


async def render_off_loop(messages: Sequence[Message], make: Callable[[], Markup]) -> Markup:
    """Calls `make`, in a thread if there is much to render."""
    weight = sum(len(each.content) if isinstance(each.content, str) else _STRUCTURED for each in messages)
    return await run_in_thread(make) if weight > _HEAVY else make()


def render_items(messages: Sequence[Message], context: TranscriptContext) -> Markup:
    """Renders messages, with a heading before each day."""
    return _join_items(_render_items(messages, context))


def _render_items(messages: Sequence[Message], context: TranscriptContext) -> list[TranscriptItem]:
    """Renders messages in order, without those that are shown inside of others."""
    pairs = _pair(messages, context.neighbours)
    shown: list[TranscriptItem] = []
    day: date | None = None
    seen = [message for message in messages if message.seq not in pairs.inside]
    covered = _summaries_by_end(seen, context.summaries, messages[-1].seq if messages else 0)
    ends = _timelines_by_end(messages, seen)
    for message in seen:
        at = message.created_at.date()
        turn = ends.get(message.seq, _NOTHING)
        html = _html(message, context, pairs)
        shown.append(TranscriptItem(html, at, at != day, covered.get(message.seq, []), turn))
        day = at
    return shown


def _timelines_by_end(messages: Sequence[Message], seen: Sequence[Message]) -> dict[int, Markup]:
    """Returns the timelines of turns by the seq of the last message that is shown by itself."""
    seqs = [message.seq for message in seen]
    found = {}
    for end, html in turns.timelines(messages).items():
        if at := bisect_right(seqs, end):
            found[seqs[at - 1]] = html
    return found


def _join_items(shown: Iterable[TranscriptItem]) -> Markup:
    pieces: list[str] = []
    for item in shown:
        if item.is_new_day:
            pieces.append(f'<p class="day"><span>{quantities.long_day(item.day)}</span></p>\n')
        pieces += [item.html, item.turn, *item.summaries, "\n"]
    return Markup("".join(pieces))


def render_message(message: Message, context: TranscriptContext) -> Markup:
    return _html(message, context, _pair([message], context.neighbours))


def unpaired_tools(messages: Iterable[Message]) -> formats.ToolLinks:
    """Returns the calls without a result among these messages, and the results without a call."""
    calls: dict[str, None] = {}
    results: dict[str, None] = {}
    for message in messages:
        links = formats.tool_links(message)
        if links is NO_LINKS:
            continue
        for id in links.results:
            if id in calls:
                del calls[id]
            else:
                results[id] = None
        calls.update(dict.fromkeys(links.calls))
    return formats.ToolLinks(tuple(calls), tuple(results))


class RenderedToolPairs(Struct, frozen=True):
    """Tool calls and their results."""

    results: dict[str, tuple[ToolResult, Message]] = {}
    """Results by the id of the call that they are shown in."""
    inside: set[int] = set()
    """Messages that consist only of such results."""
    callers: dict[str, Message] = {}
    answers: dict[str, Message] = {}


def _pair(messages: Sequence[Message], neighbours: Sequence[Message]) -> RenderedToolPairs:
    pairs = RenderedToolPairs({}, set(), {}, {})
    for message in neighbours:
        _index_tools(pairs, message, formats.tool_links(message))
    calls: set[str] = set()
    for message in messages:
        links = formats.tool_links(message)
        if links is NO_LINKS:
            continue
        if links.results and calls.issuperset(links.results):
            found = content.results_in(message)
            if found and not any(each.id in pairs.results for each in found):
                pairs.results.update({each.id: (each, message) for each in found})
                pairs.inside.add(message.seq)
        calls.update(links.calls)
        _index_tools(pairs, message, links)
    return pairs


def _index_tools(pairs: RenderedToolPairs, message: Message, links: formats.ToolLinks) -> None:
    for id in links.calls:
        pairs.callers[id] = message
    for id in links.results:
        pairs.answers[id] = message


def _counterparts(
    message: Message, links: formats.ToolLinks, pairs: RenderedToolPairs
) -> dict[str, content.Counterpart]:
    """Returns the counterparts of a message's calls and results that are not shown inside of it."""
    answers = {id: pairs.answers.get(id) for id in links.calls if id not in pairs.results}
    callers = {id: pairs.callers.get(id) for id in links.results}
    return {
        id: content.Counterpart(other.id, other.seq, _tool_name(pairs.callers[id], id))
        for id, other in (*answers.items(), *callers.items())
        if other is not None and other.seq != message.seq
    }


def _tool_name(caller: Message, id: str) -> str:
    calls = (part for part in formats.read(caller).parts if isinstance(part, ToolCall))
    return next((part.name for part in calls if part.id == id), "call")


def _html(message: Message, context: TranscriptContext, pairs: RenderedToolPairs) -> Markup:
    left_at = [each.id for each in context.branches if each.from_seq == message.seq]
    if content.is_plain(message) and len(message.content) <= _SHORT:
        return Markup(_message(message, context, content.plain_blocks(message, context.most), left_at))
    links = formats.tool_links(message)
    answers = [pairs.results[id][1] for id in links.calls if id in pairs.results]
    counterparts = _counterparts(message, links, pairs) if links.calls or links.results else {}

    def write() -> str:
        render_context = content.RenderContext(counterparts, context.base, context.most)
        blocks = content.blocks_of(message, formats.read(message), pairs.results, render_context)
        return _message(message, context, blocks, left_at)

    people = (context.conversation.user_id, context.conversation.agent_id)
    shown = (message, answers, counterparts, context.base, context.most, left_at, people)
    return markup.cached(shown, write)


def _message(
    message: Message, context: TranscriptContext, blocks: Sequence[content.ContentBlock], left_at: Sequence[str]
) -> str:
    return fragments.message(message, content.speaker_of(message, context.conversation), blocks, left_at, context.base)


def _summaries_by_end(messages: Sequence[Message], summaries: Iterable[Summary], end: int) -> dict[int, list[Markup]]:
    """Returns summaries by the seq of the last shown message that they cover."""
    found: dict[int, list[Markup]] = {}
    if not messages:
        return found
    for summary in summaries:
        if summary.to_seq < messages[0].seq or summary.to_seq > end:
            continue
        last = max(each.seq for each in messages if each.seq <= summary.to_seq)
        text = Markup(markdown.render(summary.text[: content.MOST]))
        html = Markup(markup.render("summary.html", summary=summary, text=text))
        found.setdefault(last, []).append(html)
    return found
