"""Selects the messages of a prompt: projected, measured, chosen, explained. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from hansard.assembly import budget, projection, tokens, window
from hansard.assembly.budget import Candidate
from hansard.assembly.explanation import Decision, Why
from hansard.assembly.projection import Labels, Names, Viewpoint
from hansard.assembly.tokens import TokenCounter
from hansard.assembly.window import Closing
from hansard.formats import ToolLinks, registry
from hansard.formats.dialogue import side_of
from hansard.formats.parts import AnyPart, OtherPart, Reading, Refusal, Text, ToolCall, ToolResult
from hansard.model import Message, Summary

SUMMARY_SHARE = 0.25
"""The share of the budget that a new summary may take."""
SUMMARY_OPENING = "[Summary of what was said before the messages below]: "
_NO_LINKS = ToolLinks()
_NAMED_FORMATS = ("openai.chat", "langchain", "parts")
"""Formats with a field for a participant's name, which message text cannot imitate."""


class PromptOptions(Struct, frozen=True, kw_only=True):
    """How a prompt is made."""

    view: Viewpoint
    token_budget: int
    addressed_only: bool = True
    names: Names = "prefix"
    dangling: Closing = "drop"
    format: str = "openai.chat"
    counter: TokenCounter = tokens.DEFAULT_COUNTER
    reserved: int = 0
    """Tokens that are used before any message: the system prompt, the tools."""

    @property
    def spoken_names(self) -> Names:
        """How to show names in the target format."""
        return "prefix" if self.names == "field" and self.format not in _NAMED_FORMATS else self.names


class Chosen(Struct, frozen=True):
    """The messages of the prompt, and why."""

    messages: list[Message]
    readings: list[Reading]
    """Of each of the messages, as the agent sees it."""
    decisions: list[Decision]
    tokens: int
    calibration: float
    project: Callable[[Message], Reading]
    """Reads and projects a message again, after its placeholders were replaced."""


def choose(loaded: Sequence[Message], options: PromptOptions, summary: Summary | None) -> Chosen:
    """Returns the messages (oldest first) of the prompt."""
    project = _projector(loaded, options)
    readings = [project(message) for message in loaded]
    linked = [_links(reading) for reading in readings]
    estimates = [tokens.cost(reading, options.counter) for reading in readings]
    factor = 1.0 if options.counter.is_exact else tokens.calibration(zip(loaded, estimates, strict=True))
    costs = estimates if factor == 1.0 else [math.ceil(estimate * factor) for estimate in estimates]
    spent = options.reserved + summary_tokens(summary, options.counter)
    stays = _staying(loaded, linked)
    reasons = _excluded(loaded, readings, stays, linked, options, summary)
    musts: list[Why | None] = [
        ("system" if projection.instructs(message) else "pinned") if stay else None
        for message, stay in zip(loaded, stays, strict=True)
    ]
    _fill(musts, linked, costs, reasons, options.token_budget - spent, options.dangling)
    decisions = _decisions(loaded, readings, costs, reasons)
    kept = [index for index, decision in enumerate(decisions) if decision.kept]
    return Chosen(
        [loaded[index] for index in kept],
        [readings[index] for index in kept],
        decisions,
        spent + sum(costs[index] for index in kept),
        factor,
        project,
    )


def _projector(loaded: Sequence[Message], options: PromptOptions) -> Callable[[Message], Reading]:
    labels = Labels(loaded, options.view)
    names = options.spoken_names

    def project(message: Message) -> Reading:
        return projection.project(message, registry.read(message), options.view, labels, names)

    return project


def _links(reading: Reading) -> ToolLinks:
    """Returns which calls a message makes and answers, as the agent sees it."""
    if len(reading.parts) == 1 and type(reading.parts[0]) is Text:
        return _NO_LINKS
    calls = tuple(part.id for part in reading.parts if isinstance(part, ToolCall))
    results = tuple(part.id for part in reading.parts if isinstance(part, ToolResult))
    return ToolLinks(calls, results) if calls or results else _NO_LINKS


def _staying(loaded: Sequence[Message], linked: Sequence[ToolLinks]) -> list[bool]:
    """Returns which messages stay whatever they cost: instructions and pinned ones, each with its whole group."""
    stays = [projection.always_stays(message) for message in loaded]
    pairs = window.links(linked).pairs if any(stays) else []
    if not pairs:
        return stays
    group = window.groups(len(loaded), pairs)
    staying = {group[index] for index, stay in enumerate(stays) if stay}
    return [each in staying for each in group]


def _excluded(
    loaded: Sequence[Message],
    readings: Sequence[Reading],
    stays: Sequence[bool],
    linked: Sequence[ToolLinks],
    options: PromptOptions,
    summary: Summary | None,
) -> list[Why | None]:
    """Returns why a message is excluded whatever the budget; None for the others."""
    concerns = [True] * len(loaded)
    if options.addressed_only and projection.is_shared(loaded, options.view):
        concerns = projection.addressed(loaded, options.view)
        for call, result in window.links(linked).pairs:
            concerns[result] = concerns[result] or concerns[call]
    covered = _covered(loaded, linked, summary)
    reasons: list[Why | None] = []
    for message, reading, stay, concerned, is_covered in zip(loaded, readings, stays, concerns, covered, strict=True):
        reason: Why | None = None
        if message.status == "blocked":
            reason = "blocked"
        elif is_covered and not stay:
            reason = "summarized"
        elif not concerned and not stay:
            reason = "not_addressed"
        elif not any(map(_says_something, reading.parts)):
            reason = "empty"
        reasons.append(reason)
    return reasons


def _covered(loaded: Sequence[Message], linked: Sequence[ToolLinks], summary: Summary | None) -> list[bool]:
    """Returns which messages a summary represents: groups that it covers completely, except the last message.

    That one has to be answered; and a result whose call is covered would have no call.
    """
    if summary is None:
        return [False] * len(loaded)
    covered = [message.seq <= summary.to_seq for message in loaded]
    covered[-1:] = [False] * len(covered[-1:])
    group = window.groups(len(loaded), window.links(linked).pairs)
    needed = {group[index] for index, is_covered in enumerate(covered) if not is_covered}
    return [each not in needed for each in group]


def _says_something(part: AnyPart) -> bool:
    if type(part) is Text or type(part) is Refusal:
        return bool(part.text) and not part.text.isspace()
    return not isinstance(part, OtherPart) or part.origin == "json" or part.is_hosted


def _fill(
    musts: Sequence[Why | None],
    linked: Sequence[ToolLinks],
    costs: Sequence[int],
    reasons: list[Why | None],
    left: int,
    dangling: Closing,
) -> None:
    """Sets a reason, kept or dropped, for every message that has none yet, group by group."""
    while True:
        places = [index for index, reason in enumerate(reasons) if reason is None]
        found = window.links([linked[index] for index in places])
        broken = found.orphans if dangling == "close" else found.orphans.union(found.dangling)
        if not broken:
            break
        for index in broken:
            reasons[places[index]] = "tool_pair"
    group = window.groups(len(places), found.pairs)
    candidates = [Candidate(costs[place], group[at], musts[place]) for at, place in enumerate(places)]
    for place, why in zip(places, budget.chosen(candidates, left), strict=True):
        reasons[place] = why


def _decisions(
    loaded: Sequence[Message], readings: Sequence[Reading], costs: Sequence[int], reasons: Sequence[Why | None]
) -> list[Decision]:
    kept = ("newest", "fits", "system", "pinned")
    return [
        Decision(message.id, message.seq, side_of(reading.role or message.role), why in kept, why, cost)
        for message, reading, cost, why in zip(loaded, readings, costs, reasons, strict=True)
        if why is not None
    ]


def summary_tokens(summary: Summary | None, counter: TokenCounter) -> int:
    if summary is None:
        return 0
    return tokens.DEFAULT_PRICES.message + counter.count(SUMMARY_OPENING + summary.text)


# The prompt itself


def ordered(
    chosen: Iterable[tuple[Message, Reading]], system: str | None, summary: Summary | None
) -> list[tuple[Message, Reading]]:
    """Returns the whole prompt: the caller's system prompt, stored instructions, the summary, the messages."""
    rest = list(chosen)
    head = 0
    while head < len(rest) and side_of(rest[head][1].role or rest[head][0].role) in ("system", "developer"):
        head += 1
    before = [_instruction(system)] if system else []
    between = [_instruction(SUMMARY_OPENING + summary.text)] if summary is not None else []
    return [*before, *rest[:head], *between, *rest[head:]]


def _instruction(text: str) -> tuple[Message, Reading]:
    return Message("system", text, format="text"), Reading([Text(text)])


def with_reserved(options: PromptOptions, system: str | None, definitions: Sequence[object]) -> PromptOptions:
    """Returns the options with the cost of the system prompt and the tools reserved."""
    reserved = tokens.tools_cost(definitions, options.counter)
    if system:
        reserved += tokens.DEFAULT_PRICES.message + options.counter.count(system)
    return structs.replace(options, reserved=reserved)
