"""The timeline of a turn: how long the model and each tool took, with tokens and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from markupsafe import Markup
from msgspec import Struct

from hansard import formats
from hansard.formats.parts import AnyPart, ToolCall, ToolResult
from hansard.model import Message
from hansard.server.web import content
from hansard.server.web.quantities import DOT, duration, money
from hansard.server.web.words import escape_html as escape
from hansard.server.web.words import number, say, say_count, say_html

_MODELS = ("assistant", "agent")
"""Roles of answers."""
_NAME = 60
_MOST = 100
"""Steps that are shown of one turn."""


class TurnStep(Struct, frozen=True):
    """A call of the model or of a tool."""

    name: str
    start: datetime
    end: datetime
    kind: str = "tool"
    tokens: int = 0
    cost: float = 0.0
    is_error: bool = False

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


def turns_of(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yields the turns that begin among these messages: from a user's message up to the next one."""
    turn: list[Message] = []
    for message in messages:
        if message.role == "user":
            if turn:
                yield turn
            turn = [message]
        elif turn:
            turn.append(message)
    if turn:
        yield turn


def timelines(messages: Sequence[Message]) -> dict[int, Markup]:
    """Returns the timelines of turns with tools or usage, by the seq of their last message."""
    found: dict[int, Markup] = {}
    for turn in turns_of(messages):
        if len(turn) > 1 and not any(each.status == "in_progress" for each in turn):
            html = _plain(*turn) if len(turn) == 2 and content.is_plain(turn[1]) else _timeline(turn)
            if html:
                found[turn[-1].seq] = Markup(html)
    return found


def _plain(asked: Message, answer: Message) -> str:
    """Renders the turn of a plain answer, which most turns are."""
    usage = answer.usage
    if usage is None or answer.role not in _MODELS or not usage.input_tokens + usage.output_tokens:
        return ""
    ended = _end(answer)
    return "" if ended is None else _took(max(0.0, (ended - asked.created_at).total_seconds()))


def _timeline(turn: Sequence[Message]) -> str:
    steps = _steps(turn)
    return _render(turn, steps) if any(step.kind == "tool" or step.tokens for step in steps) else ""


def _steps(turn: Sequence[Message]) -> list[TurnStep]:
    results = _results(turn)
    steps: list[TurnStep] = []
    before = turn[0].created_at
    for message in turn[1:]:
        at = message.created_at
        if message.role in _MODELS:
            usage = message.usage
            name = (usage.model if usage is not None else None) or say("model")
            tokens = 0 if usage is None else usage.input_tokens + usage.output_tokens
            at = _end(message) or at
            steps.append(TurnStep(name, before, max(at, before), "model", tokens, 0.0 if usage is None else usage.cost))
        for part in _parts(message) if results else ():
            if isinstance(part, ToolCall) and part.id in results:
                result, ended = results[part.id]
                steps.append(TurnStep(part.name, at, max(ended, at), is_error=result.is_error))
        before = max(before, at)
    return steps[:_MOST]


def _end(message: Message) -> datetime | None:
    """Returns when a message was complete, or None if nothing says so.

    A streamed message is stored when it begins, and updated for the last time when it is complete; unless somebody has
    changed it since.
    """
    if message.updated_at is None:
        return message.created_at
    is_changed = message.edited_at is not None or message.pinned or message.ratings or message.labels
    return None if is_changed else message.updated_at


def _results(turn: Sequence[Message]) -> Mapping[str, tuple[ToolResult, datetime]]:
    return {
        part.id: (part, message.created_at)
        for message in turn
        for part in _parts(message)
        if isinstance(part, ToolResult)
    }


def _parts(message: Message) -> Sequence[AnyPart]:
    return () if content.is_plain(message) else formats.read(message).parts


def _took(seconds: float) -> str:
    """Renders a turn of one step. The answer shows its tokens and cost itself.

    Many imported messages have all the same time, which says nothing about how long the turn took.
    """
    if not seconds:
        return ""
    return f'<p class="turn">{say_html("took {time}").replace("{time}", duration(seconds))}</p>\n'


def _render(turn: Sequence[Message], steps: Sequence[TurnStep]) -> str:
    first = turn[0].created_at
    whole = max(0.0, (max(step.end for step in steps) - first).total_seconds())
    if _end(turn[-1]) is None:
        whole = 0.0
    if len(steps) == 1:
        return _took(whole)
    facts = [duration(whole)] if whole else []  # see `_took`
    if tools := sum(step.kind == "tool" for step in steps):
        facts.append(say_count("{n} tool call", "{n} tool calls", tools))
    facts += _costs(sum(step.tokens for step in steps), sum(step.cost for step in steps))
    rows = "".join(_row(step, first, whole) for step in steps)
    return (
        f'<details class="turn"><summary><span class="unseen">{say_html("Turn:")} </span>{DOT.join(facts)}</summary>'
        f'<ol class="timeline">{rows}</ol></details>\n'
    )


def _row(step: TurnStep, first: datetime, whole: float) -> str:
    start = (step.start - first).total_seconds()
    seconds = step.seconds
    x = min(100.0, max(0.0, start / whole * 100)) if whole else 0.0
    width = min(100.0 - x, max(0.8, seconds / whole * 100)) if whole else 0.0
    kind = "failed" if step.is_error else step.kind
    facts = _costs(step.tokens, step.cost)
    failed = f' <span class="state bad">{say_html("failed")}</span>' if step.is_error else ""
    return (
        f'<li><span class="step-name" dir="auto">{escape(step.name[:_NAME])}{failed}</span>'
        '<svg class="span" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="rest" width="100" height="8"/>'
        f'<rect class="{kind}" x="{x:.2f}" width="{width:.2f}" height="8"/></svg>'
        f'<span class="step-time">{duration(seconds) if whole else ""}</span>'
        f'<span class="step-cost">{DOT.join(facts)}</span></li>'
    )


def _costs(tokens: int, price: float) -> list[str]:
    text = say_html("{n} token") if tokens == 1 else say_html("{n} tokens")
    facts = [text.replace("{n}", number(tokens))] if tokens else []
    return [*facts, money(price)] if price else facts
