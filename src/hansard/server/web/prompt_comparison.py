"""What a prompt holds, in rows and bars, alone or next to another one: then and now, two budgets, agents or times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from markupsafe import Markup
from msgspec import Struct

from hansard.assembly.explanation import AnswerPrompt, Decision, Prompt
from hansard.model import Conversation, Message
from hansard.server.web import content
from hansard.server.web.words import number, say, say_count

_PREVIEW = 160
_FEWEST_FOLDED = 4
"""As many messages in a row that were dropped for the same reason are folded."""
SUMMARY = "summary"
"""Stands for the summary among the ids of messages."""


class Cell(Struct, frozen=True):
    """What became of one message in one prompt."""

    is_kept: bool
    words: str
    tokens: int = 0
    why: str = ""


class Segment(Struct, frozen=True):
    """A part of the budget."""

    kind: str
    label: str
    tokens: int


class PromptSide(Struct, frozen=True):
    """One of the prompts that a page shows."""

    title: str
    cells: Mapping[str, Cell]
    """By the id of the message; that of the summary is `summary`."""
    seqs: Mapping[str, int]
    segments: Sequence[Segment]
    tokens: int
    budget: int
    notes: Sequence[str] = ()

    @property
    def kept(self) -> int:
        return sum(each.is_kept for each in self.cells.values())

    @property
    def is_over_budget(self) -> bool:
        return 0 < self.budget < self.tokens

    @property
    def bar(self) -> Markup:
        return token_bar(self.segments, max(self.budget, self.tokens))


class ComparedRow(Struct, frozen=True):
    """One message, and what became of it in each prompt."""

    message_id: str
    seq: int
    who: str
    text: str
    cells: Sequence[Cell | None]
    state: str = ""
    """`changed` or `deleted`, if that happened since the answer."""

    @property
    def differs(self) -> bool:
        kept = {cell is not None and cell.is_kept for cell in self.cells}
        return len(kept) > 1 or bool(self.state)


class RowGroup(Struct, frozen=True):
    """Consecutive rows; those that were dropped for one reason are folded under it."""

    rows: list[ComparedRow]
    folded: str = ""


# Prompts


def reasons() -> dict[str, str]:
    """Returns the words for each reason of a decision, in the reader's language."""
    return {
        "newest": say("the newest message is always included"),
        "fits": say("it fits"),
        "system": say("instructions are always included"),
        "pinned": say("pinned messages are always included"),
        "summary": say("the summary of earlier messages"),
        "not_addressed": say("not addressed to the agent"),
        "over_budget": say("no room left in the budget"),
        "summarized": say("included in the summary"),
        "tool_pair": say("a tool call without its result, or the reverse"),
        "blocked": say("it was blocked"),
        "empty": say("it has no content for a model"),
    }


def side_of_prompt(title: str, prompt: Prompt) -> PromptSide:
    """Returns a prompt that was assembled now."""
    words = reasons()
    cells = {
        _key(each): Cell(each.kept, words.get(each.why, each.why), each.tokens, each.why) for each in prompt.decisions
    }
    notes = []
    if prompt.has_older:
        notes.append(say("older messages were not considered"))
    if prompt.calibration != 1.0:
        notes.append(say("corrected by {factor} from reported usage", factor=f"{prompt.calibration:.2f}"))
    return PromptSide(
        title,
        cells,
        {_key(each): each.seq for each in prompt.decisions},
        _segments(cells.values(), prompt.reserved, prompt.budget, prompt.tokens),
        prompt.tokens,
        prompt.budget,
        [say("tokens counted with {counter}", counter=prompt.counter or say("nothing")), *notes],
    )


def _key(decision: Decision) -> str:
    return decision.message_id or SUMMARY


def side_of_answer(title: str, given: AnswerPrompt) -> PromptSide:
    """Returns the prompt that was stored with an answer."""
    words = reasons()
    cells = {
        each.message_id: Cell(True, words.get(each.why, each.why), each.tokens, each.why) for each in given.messages
    }
    seqs: dict[str, int] = {}
    last = 0
    if given.summary is not None:
        cells = {SUMMARY: Cell(True, words[SUMMARY], given.summary.tokens, SUMMARY), **cells}
        seqs[SUMMARY] = given.summary.to_seq
    for each in given.messages:
        # A deleted message is shown after the one that it followed.
        last = seqs[each.message_id] = last if each.message is None else each.message.seq
    return PromptSide(
        title,
        cells,
        seqs,
        _segments(cells.values(), given.reserved, given.budget, given.tokens),
        given.tokens,
        given.budget,
        _notes(given, words),
    )


def _notes(given: AnswerPrompt, words: Mapping[str, str]) -> list[str]:
    notes = [say("tokens counted with {counter}", counter=given.counter)]
    if given.model:
        notes.append(say("model {name}", name=given.model))
    if not given.budget:
        notes.append(say("the whole history was sent, without a budget"))
    if given.unnamed:
        notes.append(
            say_count("{n} earlier message was given too", "{n} earlier messages were given too", given.unnamed)
        )
    for why, count in given.dropped.items():
        notes.append(say("{n} left out: {why}", n=number(count), why=words.get(why, why)))
    return notes


def _segments(cells: Iterable[Cell], reserved: int, budget: int, tokens: int) -> list[Segment]:
    sums = {"system": 0, "pinned": 0, SUMMARY: 0, "messages": 0}
    for cell in cells:
        if cell.is_kept:
            sums[cell.why if cell.why in sums else "messages"] += cell.tokens
    labels = {"system": say("instructions"), "pinned": say("pinned"), SUMMARY: say("summary")}
    labels["messages"] = say("messages")
    parts = [Segment("reserved", say("system prompt and tools"), reserved)]
    parts += [Segment(kind, labels[kind], count) for kind, count in sums.items()]
    parts.append(Segment("free", say("free"), max(0, budget - tokens)))
    return [each for each in parts if each.tokens]


def token_bar(segments: Sequence[Segment], most: int) -> Markup:
    """Returns a bar of all parts of the budget, and a legend with their tokens."""
    x, drawn = 0.0, []
    for each in segments:
        width = each.tokens / most * 100 if most else 0.0
        title = f"{escape(each.label)}: {say_count('{n} token', '{n} tokens', each.tokens)}"
        drawn.append(
            f'<rect class="part-{each.kind}" x="{x:.2f}" width="{width:.2f}" height="8"><title>{title}</title></rect>'
        )
        x += width
    legend = "".join(
        f'<li><span class="swatch part-{each.kind}"></span>{escape(each.label)}'
        f" <strong>{number(each.tokens)}</strong></li>"
        for each in segments
    )
    return Markup(
        '<svg class="parts" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'{"".join(drawn)}</svg><ul class="legend">{legend}</ul>'
    )


# Rows


def rows_of(
    sides: Sequence[PromptSide],
    messages: Mapping[str, Message],
    conversation: Conversation,
    states: Mapping[str, str],
) -> list[ComparedRow]:
    """Returns a row for every message of any of the prompts, in the order of the conversation."""
    seqs: dict[str, int] = {}
    for side in reversed(sides):
        seqs |= side.seqs
    # Stable: equal seqs, such as those of deleted messages, keep their order.
    ids = sorted(seqs, key=lambda id: (seqs[id], id != SUMMARY))
    return [_row(id, seqs[id], sides, messages.get(id), conversation, states.get(id, "")) for id in ids]


def _row(
    id: str, seq: int, sides: Sequence[PromptSide], message: Message | None, conversation: Conversation, state: str
) -> ComparedRow:
    if id == SUMMARY:
        who, text = say("Summary"), say("of the messages before")
    elif message is None:
        who, text = "", say("no longer stored") if state == "deleted" else id
    else:
        who = content.speaker_of(message, conversation).name
        text = content.preview([message])[:_PREVIEW] or _calls(message)
    return ComparedRow(id, seq, who, text, [side.cells.get(id) for side in sides], state)


def _calls(message: Message) -> str:
    """Returns the tools that a message without text calls, or whose result it is."""
    names = content.tool_names(message)
    return ", ".join(names)[:_PREVIEW] if names else say("no text")


def grouped(rows: Sequence[ComparedRow]) -> list[RowGroup]:
    """Folds long runs of messages that were dropped for the same reason, and do not differ."""
    groups: list[RowGroup] = []
    for row in rows:
        reason = _reason(row)
        if groups and groups[-1].folded == reason:
            groups[-1].rows.append(row)
        else:
            groups.append(RowGroup([row], reason))
    return [each if len(each.rows) >= _FEWEST_FOLDED else RowGroup(each.rows) for each in groups]


def _reason(row: ComparedRow) -> str:
    cells = [cell for cell in row.cells if cell is not None]
    if row.differs or not cells or any(cell.is_kept for cell in cells):
        return ""
    return cells[0].words


def difference(rows: Sequence[ComparedRow]) -> dict[str, int]:
    """Counts the rows of two prompts: in both, only in one of them, changed or deleted since."""
    counts = {"both": 0, "left": 0, "right": 0, "changed": 0, "deleted": 0}
    for row in rows:
        left, right = (cell is not None and cell.is_kept for cell in row.cells)
        counts["both"] += left and right
        counts["left"] += left and not right
        counts["right"] += right and not left
        if row.state:
            counts[row.state] += 1
    return counts
