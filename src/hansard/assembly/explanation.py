"""The result of an assembly: the prompt, and the reasons for its content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from hansard.model import Summary

if TYPE_CHECKING:
    from hansard.formats.dialogue import Loss

Why = Literal[
    "newest",
    "fits",
    "system",
    "pinned",
    "summary",
    "not_addressed",
    "over_budget",
    "summarized",
    "tool_pair",
    "blocked",
    "empty",
]


class Decision(Struct, frozen=True):
    """What happened to one message, and why."""

    message_id: str
    seq: int
    role: str
    """The role under which the model sees it."""
    kept: bool
    why: Why
    tokens: int


class Prompt(Struct, frozen=True, kw_only=True):
    """Messages ready for a model, and the explanation."""

    messages: list[Any]
    """In the requested format."""
    system: Any = None
    """Instructions, for providers that separate them from the messages."""
    decisions: list[Decision] = []
    """Every loaded message, oldest first: kept or dropped, and why."""
    tokens: int = 0
    """What the prompt costs: messages, summary, system prompt and tools."""
    budget: int = 0
    reserved: int = 0
    """How many of the tokens are the system prompt and the tools that were passed in."""
    counter: str = ""
    """The name of the counter."""
    calibration: float = 1.0
    """The factor by which reported usage corrected the estimates."""
    loaded: int = 0
    """How many messages were read."""
    has_older: bool = False
    """Older messages exist that were not loaded and that no summary covers."""
    summary: Summary | None = None
    """The summary that represents older messages."""
    losses: list[Loss] = []
    """Content that the provider's format cannot represent."""
    problems: list[str] = []
    """Failures that did not stop the assembly, such as a summarizer that failed."""

    @property
    def kept(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.kept]

    @property
    def dropped(self) -> list[Decision]:
        return [decision for decision in self.decisions if not decision.kept]

    @property
    def is_over_budget(self) -> bool:
        """Required content alone (system, pinned, summary, the newest message) exceeds the budget."""
        return self.tokens > self.budget

    def explain(self) -> str:
        """Returns the explanation as text, a line for each message."""
        lines = [
            f"{'kept' if each.kept else 'dropped':8}{each.why:14}{each.tokens:6}  {each.role:10} {each.message_id}"
            for each in self.decisions
        ]
        lines.append(f"{len(self.kept)} kept, {len(self.dropped)} dropped, {self.tokens} of {self.budget} tokens")
        return "\n".join(lines)
