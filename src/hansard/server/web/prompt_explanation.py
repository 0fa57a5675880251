"""The page "Why this prompt": the prompt that `assemble_prompt` returns now, and the decision about each message."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from markupsafe import Markup
from msgspec import Meta, Struct

from hansard.assembly.explanation import Decision, Prompt
from hansard.model import Conversation, Message, MessageScope
from hansard.rendering import highlight
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import charts, content, headings, markup
from hansard.server.web.conversation import ONE, base_of
from hansard.server.web.page_request import SANDBOX_HEADERS, NoForm, PageRequest, PageRoutes

routes = PageRoutes()

WORDS = {
    "newest": "the newest message is always included",
    "fits": "it fits",
    "system": "instructions are always included",
    "pinned": "pinned messages are always included",
    "summary": "the summary of earlier messages",
    "not_addressed": "not addressed to the agent",
    "over_budget": "no room left in the budget",
    "summarized": "included in the summary",
    "tool_pair": "a tool call without its result, or the reverse",
    "blocked": "it was blocked",
    "empty": "it has no content for a model",
}
_MOST_TURNS = 500
_PREVIEW = 160
FORMATS = ("openai.chat", "openai.responses", "anthropic", "gemini")


class WhyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of `assemble_prompt`. `hours` is its time window."""

    agent: Id | None = None
    name: str | None = None
    branch: Id | None = None
    budget: Annotated[int, Meta(ge=1, le=10_000_000)] = 3000
    turns: Annotated[int, Meta(ge=1, le=_MOST_TURNS)] = 100
    hours: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    scope: MessageScope | None = None
    addressed: Literal["yes", "no"] = "yes"
    names: Literal["prefix", "field", "none"] = "prefix"
    dangling: Literal["drop", "close"] = "drop"
    system: str | None = None
    format: Literal["openai.chat", "openai.responses", "anthropic", "gemini"] = "openai.chat"


class DecisionRow(Struct, frozen=True):
    decision: Decision
    words: str
    bar: str
    text: str
    who: content.Speaker | None


@routes.page(ONE + "/why")
async def see_why(request: PageRequest[WhyQuery, NoForm]) -> HttpResponse:
    """The prompt that an agent would get, and the reasons for it."""
    conversation = await request.conversation()
    prompt = await _assemble(request)
    messages = await _messages(request, prompt)
    base = base_of(request, conversation)
    result = Markup(_result(request.query, prompt, messages, conversation, base))
    if request.wants_fragment:
        return request.render_fragment("fragment.html", inside=result)
    agents = sorted({each.participant.id for each in messages.values() if each.participant and _is_agent(each)})
    heading = await headings.heading_of(request.store, conversation)
    values: dict[str, Any] = {"q": request.query, "base": base, "heading": heading, "result": result}
    return request.render("prompt_explanation.html", agents=agents, formats=FORMATS, **values)


def _result(
    query: WhyQuery, prompt: Prompt, messages: dict[str, Message], conversation: Conversation, base: str
) -> str:
    made = content.pretty(_as_sent(prompt, query.format))
    values = {
        "q": query,
        "prompt": prompt,
        "lines": _lines(prompt, messages, conversation),
        "json": highlight.json(made) if len(made) <= content.MOST else None,
        "plain_json": made,
        "share": charts.share(prompt.tokens, prompt.budget),
        "base": base,
        "conversation": conversation,
    }
    return markup.render("prompt_explanation_result.html", **values)


@routes.page(ONE + "/prompt")
async def see_prompt_json(request: PageRequest[WhyQuery, NoForm]) -> HttpResponse:
    """The prompt as JSON."""
    made = content.pretty(_as_sent(await _assemble(request), request.query.format))
    return HttpResponse(made.encode("utf-8", "replace") + b"\n", 200, SANDBOX_HEADERS, "application/json")


def _is_agent(message: Message) -> bool:
    return message.participant is not None and message.participant.kind == "agent"


async def _assemble(request: PageRequest[WhyQuery, NoForm]) -> Prompt:
    query = request.query
    return await request.store.assemble_prompt(
        request.path[0],
        agent_id=query.agent,
        agent_name=query.name,
        branch=query.branch,
        token_budget=query.budget,
        max_turns=query.turns,
        time_window=None if query.hours is None else timedelta(hours=query.hours),
        scope=query.scope,
        addressed_only=query.addressed == "yes",
        names=query.names,
        dangling=query.dangling,
        system=query.system,
        format=query.format,
    )


async def _messages(request: PageRequest[WhyQuery, NoForm], prompt: Prompt) -> dict[str, Message]:
    """Returns the considered messages, for their previews."""
    wanted = max(prompt.loaded, 1)
    found = await request.store.get_messages(request.path[0], last=wanted, branch=request.query.branch, blobs="refs")
    return {each.id: each for each in found}


def _lines(prompt: Prompt, messages: dict[str, Message], conversation: Conversation) -> list[DecisionRow]:
    most = max((each.tokens for each in prompt.decisions), default=1)
    lines = []
    for each in prompt.decisions:
        message = messages.get(each.message_id)
        text = "" if message is None else content.preview([message])[:_PREVIEW]
        who = None if message is None else content.speaker_of(message, conversation)
        lines.append(DecisionRow(each, WORDS.get(each.why, each.why), charts.share(each.tokens, most), text, who))
    return lines


def _as_sent(prompt: Prompt, format: str) -> Any:
    """Returns the prompt as the body of a provider's API request."""
    if format == "openai.responses":
        return {"input": prompt.messages, **({"instructions": prompt.system} if prompt.system else {})}
    if format == "gemini":
        return {"contents": prompt.messages, **({"system_instruction": prompt.system} if prompt.system else {})}
    return {**({"system": prompt.system} if prompt.system else {}), "messages": prompt.messages}
