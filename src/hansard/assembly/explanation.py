"""The result of an assembly: the prompt, and the reasons for its content."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from hansard.model import Message, Summary

if TYPE_CHECKING:
    from hansard.formats.dialogue import Loss

_MAKE_ID = "make_id"

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


State = Literal["same", "changed", "deleted"]


class GivenMessage(Struct, frozen=True):
    """A message that a model was given, compared with what is stored now."""

    message_id: str
    tokens: int
    why: Why
    state: State
    message: Message | None
    """As it is stored now, with references in place of its blobs; None if it was deleted."""


class GivenSummary(Struct, frozen=True):
    """A summary that a model was given, compared with what is stored now."""

    branch: str
    from_seq: int
    to_seq: int
    tokens: int
    state: State
    summary: Summary | None
    """As it is stored now; None if it was deleted or written again."""


class AnswerPrompt(Struct, frozen=True, kw_only=True):
    """What the model was given for a stored answer."""

    conversation_id: str
    message_id: str
    """The answer."""
    created_at: datetime
    """When the prompt was assembled."""
    model: str | None = None
    """The model that the answer's usage names."""
    messages: list[GivenMessage]
    """Oldest first; at most the newest 200."""
    unnamed: int = 0
    """How many earlier messages were given that are not listed."""
    summary: GivenSummary | None = None
    dropped: dict[Why, int] = {}
    """How many messages were left out, by reason."""
    tokens: int
    budget: int
    """0 if there was none, because the whole history was sent."""
    reserved: int
    counter: str
    calibration: float
    loaded: int
    has_older: bool
    options: dict[str, Any]
    """Arguments of `assemble_prompt` that were used, to make the prompt again."""


class Prompt(Struct, frozen=True, kw_only=True, dict=True):
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

    @cached_property
    def prompt_id(self) -> str | None:
        """Names what the prompt holds. Append the answer with it, and `get_prompt` returns it later.

        Made when it is first asked for: that takes half as long as the assembly. None with `compat`.
        """
        make: Callable[[], str] | None = self.__dict__.get(_MAKE_ID)
        return None if make is None else make()

    def with_id(self, make: Callable[[], str]) -> Prompt:
        """Sets the function that makes `prompt_id`, which is no field: prompts are compared and sent without it."""
        self.__dict__[_MAKE_ID] = make
        return self

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
        """Returns the explanation as text, a line for each message, and one for the reserved tokens."""
        lines = [
            f"{'kept' if each.kept else 'dropped':8}{each.why:14}{each.tokens:6}  {each.role:10} {each.message_id}"
            for each in self.decisions
        ]
        if self.reserved:
            lines.append(f"{'kept':8}{'reserved':14}{self.reserved:6}  system prompt and tools")
        lines.append(f"{len(self.kept)} kept, {len(self.dropped)} dropped, {self.tokens} of {self.budget} tokens")
        return "\n".join(lines)
