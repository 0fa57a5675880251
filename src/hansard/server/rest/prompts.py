"""From history to prompt: assembled prompts, and summaries of older messages.

Assembling a prompt writes nothing. Callers that want a new summary in it must call `summarize` before.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert, structs

from hansard.assembly.explanation import Decision, State, Why
from hansard.assembly.projection import Names
from hansard.assembly.summaries import Summarizer
from hansard.assembly.window import Closing
from hansard.errors import ConversationNotFound, MessageNotFound, NotFound, ValidationError
from hansard.formats.dialogue import Loss
from hansard.formats.registry import Target
from hansard.model import MessageScope, Summary
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request
from hansard.server.rest.branches import SummaryList

_ONE = "/conversations/{conversation_id}"
_MISSING = (ConversationNotFound, NotFound)
routes = Routes()


_LONGEST = 10**9
"""Largest time window, in seconds."""


class PromptBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent that the prompt is for, its format and its token budget."""

    agent_id: Id | None = None
    agent_name: str | None = None
    agent_aliases: list[str] = []
    channels: list[dict[str, Any]] = []
    format: Target = "openai.chat"
    token_budget: int = 3000
    max_turns: Annotated[int, Meta(ge=1)] = 100
    time_window_seconds: Annotated[int, Meta(ge=1, le=_LONGEST)] | None = None
    scope: MessageScope | None = None
    branch: Id | None = None
    before: str | None = None
    addressed_only: bool = True
    names: Names = "prefix"
    dangling: Closing = "drop"
    system: str | None = None
    tools: list[Any] = []
    compat: Literal["toolpack"] | None = None
    summary_threshold: Annotated[int, Meta(ge=0)] = 40
    """With `compat`: the largest number of messages. Ignored without it, where `summarize` decides."""


class PromptAnswer(Struct, frozen=True):
    """`messages` and `system` are for the model; the other fields explain them."""

    messages: list[Any]
    system: Any
    decisions: list[Decision]
    tokens: int
    budget: int
    reserved: int
    counter: str
    calibration: float
    loaded: int
    has_older: bool
    summary: Summary | None
    losses: list[Loss]
    problems: list[str]
    prompt_id: str | None
    """Send it with the answer, and `GET …/messages/{message_id}/prompt` returns what the model was given."""


class StoredMessagePrompt(Struct, frozen=True):
    """`state` is `same`, `changed` or `deleted`: what has become of the message since."""

    message_id: str
    tokens: int
    why: Why
    state: State


class StoredSummaryPrompt(Struct, frozen=True):
    branch: str
    from_seq: int
    to_seq: int
    tokens: int
    state: State


class StoredPrompt(Struct, frozen=True):
    """What the model was given for an answer: ids and counts, no content."""

    conversation_id: str
    message_id: str
    created_at: datetime
    model: str | None
    messages: list[StoredMessagePrompt]
    unnamed: int
    summary: StoredSummaryPrompt | None
    dropped: dict[Why, int]
    tokens: int
    budget: int
    reserved: int
    counter: str
    calibration: float
    loaded: int
    has_older: bool
    options: dict[str, Any]


class FoundPrompt(Struct, frozen=True):
    """Null if the answer was stored without a `prompt_id`."""

    prompt: StoredPrompt | None


class SummarizeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The server's summarizer to use for all but the newest `keep` messages."""

    summarizer: str = "extractive"
    keep: Annotated[int, Meta(ge=0)] = 20
    branch: Id | None = None
    max_tokens: Annotated[int, Meta(ge=1)] = 750
    timeout_seconds: Annotated[float, Meta(gt=0, le=60)] = 30.0
    in_metadata: bool = False


class Summarized(Struct, frozen=True):
    """Null if there was nothing to do, or another process is summarizing."""

    summary: Summary | None


@routes.post(_ONE + "/prompt", scope="read", errors=_MISSING)
async def assemble_prompt(request: Request[NoQuery, PromptBody]) -> PromptAnswer:
    """Assembles a prompt for one agent within a token budget, and explains the decision about each message."""
    given = structs.asdict(request.body)
    seconds = given.pop("time_window_seconds")
    window = None if seconds is None else timedelta(seconds=seconds)
    prompt = await request.store.assemble_prompt(request.path[0], time_window=window, **given)
    return PromptAnswer(*(getattr(prompt, name) for name in PromptAnswer.__struct_fields__))


@routes.get(_ONE + "/messages/{message_id}/prompt", errors=(*_MISSING, MessageNotFound))
async def get_prompt(request: Request[NoQuery, None]) -> FoundPrompt:
    """What the model was given for a stored answer, compared with what is stored now."""
    found = await request.store.get_prompt(*request.path)
    return FoundPrompt(None if found is None else convert(found, StoredPrompt, from_attributes=True))


@routes.post(_ONE + "/summarize", errors=_MISSING)
async def summarize(request: Request[NoQuery, SummarizeBody]) -> Summarized:
    """Extends the rolling summary to all but the newest `keep` messages. The messages stay."""
    return Summarized(await request.store.summarize(request.path[0], _chosen(request), **_options(request.body)))


@routes.post(_ONE + "/rebuild-summaries", repeat="no", errors=_MISSING)
async def rebuild_summaries(request: Request[NoQuery, SummarizeBody]) -> SummaryList:
    """Rebuilds the summaries of a branch from its messages, all or nothing, and returns them."""
    return SummaryList(
        await request.store.rebuild_summaries(request.path[0], _chosen(request), **_options(request.body))
    )


def _chosen(request: Request[NoQuery, SummarizeBody]) -> Summarizer:
    known = request.context.summarizers
    try:
        return known[request.body.summarizer]
    except KeyError:
        raise ValidationError(f"unknown summarizer: this server has {', '.join(known)}") from None


def _options(body: SummarizeBody) -> dict[str, Any]:
    given = structs.asdict(body)
    del given["summarizer"]
    return {"timeout": given.pop("timeout_seconds"), **given}
