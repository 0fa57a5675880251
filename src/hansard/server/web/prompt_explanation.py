"""The page "Why this prompt": what a model was given, or would be given now, and the decision about each message.

It shows one prompt, or two next to each other: what was stored with an answer and what would be given now, or the
prompts of two budgets, agents or times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from markupsafe import Markup
from msgspec import Meta, Struct, structs

from hansard.assembly.explanation import AnswerPrompt, Prompt
from hansard.model import Conversation, Message, MessageScope
from hansard.rendering import highlight
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import content, headings, markup, prompt_comparison, prompt_table
from hansard.server.web.conversation import ONE, base_of
from hansard.server.web.page_request import SANDBOX_HEADERS, NoForm, PageRequest, PageRoutes
from hansard.server.web.prompt_comparison import PromptSide
from hansard.server.web.words import say, say_count

routes = PageRoutes()

_MOST_TURNS = 500
_DEFAULT_BUDGET = 3000
FORMATS = ("openai.chat", "openai.responses", "anthropic", "gemini")

Budget = Annotated[int, Meta(ge=1, le=10_000_000)]


class WhyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of `assemble_prompt`. `hours` is its time window; `other_…` are those of a second prompt."""

    agent: Id | None = None
    name: str | None = None
    branch: Id | None = None
    budget: Budget | None = None
    turns: Annotated[int, Meta(ge=1, le=_MOST_TURNS)] | None = None
    hours: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    scope: MessageScope | None = None
    addressed: Literal["yes", "no"] | None = None
    names: Literal["prefix", "field", "none"] | None = None
    dangling: Literal["drop", "close"] | None = None
    system: str | None = None
    format: Literal["openai.chat", "openai.responses", "anthropic", "gemini"] = "openai.chat"
    before: Id | None = None
    answer: Id | None = None
    other_budget: Budget | None = None
    other_agent: Id | None = None
    other_before: Id | None = None

    @property
    def is_compared(self) -> bool:
        return bool(self.other_budget or self.other_agent or self.other_before)


class Explained(Struct, frozen=True):
    """The prompts of a page."""

    sides: Sequence[PromptSide]
    prompt: Prompt
    """The one that would be given now, in full."""
    messages: Mapping[str, Message]
    states: Mapping[str, str]
    given: AnswerPrompt | None = None


@routes.page(ONE + "/why")
async def see_why(request: PageRequest[WhyQuery, NoForm]) -> HttpResponse:
    """The prompt that an agent was or would be given, and the reasons for it."""
    conversation = await request.conversation()
    explained = await _explain(request)
    base = base_of(request, conversation)
    people = (conversation.user_id, conversation.agent_id)
    shown = ("why", request.query, explained, people, base)
    result = markup.cached(shown, lambda: _result(request.query, explained, conversation, base))
    if request.wants_fragment:
        return request.render_fragment("fragment.html", inside=result)
    found = explained.messages.values()
    agents = sorted({each.participant.id for each in found if each.participant and _is_agent(each)})
    heading = await headings.heading_of(request.store, conversation)
    values: dict[str, Any] = {"q": request.query, "base": base, "heading": heading, "result": result}
    options = _options(request.query, explained.given)
    return request.render("prompt_explanation.html", agents=agents, formats=FORMATS, options=options, **values)


async def _explain(request: PageRequest[WhyQuery, NoForm]) -> Explained:
    query, given = request.query, None
    if query.answer is not None:
        given = await request.store.get_prompt(request.path[0], query.answer)
    prompt = await _assemble(request, query, given)
    sides = [prompt_comparison.side_of_prompt(say("Now"), prompt)]
    states: dict[str, str] = {}
    messages = await _messages(request, prompt)
    if given is not None:
        sides = [prompt_comparison.side_of_answer(say("Then"), given), *sides]
        states = {each.message_id: each.state for each in given.messages if each.state != "same"}
        messages |= {each.message_id: each.message for each in given.messages if each.message is not None}
    elif query.is_compared:
        other = structs.replace(
            query,
            budget=query.other_budget or query.budget,
            agent=query.other_agent or query.agent,
            before=query.other_before or query.before,
        )
        second = await _assemble(request, other, None)
        sides = [
            prompt_comparison.side_of_prompt(_title(query, prompt), prompt),
            prompt_comparison.side_of_prompt(_title(other, second), second),
        ]
        messages |= await _messages(request, second)
    return Explained(sides, prompt, messages, states, given)


def _title(query: WhyQuery, prompt: Prompt) -> str:
    before = say("before {message}", message=query.before) if query.before else ""
    words = [say_count("{n} token", "{n} tokens", prompt.budget), query.agent or "", before]
    return Markup(", ").join(each for each in words if each)


def _result(query: WhyQuery, explained: Explained, conversation: Conversation, base: str) -> str:
    made = content.pretty(_as_sent(explained.prompt, query.format))
    rows = prompt_comparison.rows_of(explained.sides, explained.messages, conversation, explained.states)
    values = {
        "q": query,
        "prompt": explained.prompt,
        "given": explained.given,
        "sides": explained.sides,
        "table": prompt_table.table_of(prompt_comparison.grouped(rows), explained.sides, base, query.branch)
        if rows
        else None,
        "difference": prompt_comparison.difference(rows) if len(explained.sides) > 1 else None,
        "json": highlight.json(made) if len(made) <= content.MOST else None,
        "plain_json": made,
        "base": base,
    }
    return markup.render("prompt_explanation_result.html", **values)


@routes.page(ONE + "/prompt")
async def see_prompt_json(request: PageRequest[WhyQuery, NoForm]) -> HttpResponse:
    """The prompt as JSON."""
    given = None
    if request.query.answer is not None:
        given = await request.store.get_prompt(request.path[0], request.query.answer)
    made = content.pretty(_as_sent(await _assemble(request, request.query, given), request.query.format))
    return HttpResponse(made.encode("utf-8", "replace") + b"\n", 200, SANDBOX_HEADERS, "application/json")


def _is_agent(message: Message) -> bool:
    return message.participant is not None and message.participant.kind == "agent"


def _options(query: WhyQuery, given: AnswerPrompt | None) -> dict[str, Any]:
    """Returns the arguments of `assemble_prompt`: as asked, else as they were then, else the defaults."""
    then = {} if given is None or not given.budget else given.options
    left = max(1, given.budget - given.reserved) if given is not None and given.budget else _DEFAULT_BUDGET
    asked = {
        "agent_id": query.agent,
        "agent_name": query.name,
        "branch": query.branch,
        "token_budget": query.budget,
        "max_turns": query.turns,
        "scope": query.scope,
        "addressed_only": None if query.addressed is None else query.addressed == "yes",
        "names": query.names,
        "dangling": query.dangling,
        "before": query.answer or query.before,
    }
    defaults = {"token_budget": left, "max_turns": 100, "addressed_only": True, "names": "prefix", "dangling": "drop"}
    options = {
        name: value if value is not None else then.get(name, defaults.get(name)) for name, value in asked.items()
    }
    return {
        **options,
        "agent_aliases": then.get("agent_aliases", ()),
        "max_turns": min(options["max_turns"], _MOST_TURNS),
    }


async def _assemble(request: PageRequest[WhyQuery, NoForm], query: WhyQuery, given: AnswerPrompt | None) -> Prompt:
    return await request.store.assemble_prompt(
        request.path[0],
        time_window=None if query.hours is None else timedelta(hours=query.hours),
        system=query.system,
        format=query.format,
        **_options(query, given),
    )


async def _messages(request: PageRequest[WhyQuery, NoForm], prompt: Prompt) -> dict[str, Message]:
    """Returns the considered messages, for their previews."""
    query = request.query
    place: dict[str, Any] = {"last": max(prompt.loaded, 1)}
    if (before := query.answer or query.before) is not None:
        place = {"before": before, "limit": min(max(prompt.loaded, 1), request.store.limits.page)}
    found = await request.store.get_messages(request.path[0], branch=query.branch, blobs="refs", **place)
    return {each.id: each for each in found}


def _as_sent(prompt: Prompt, format: str) -> Any:
    """Returns the prompt as the body of a provider's API request."""
    if format == "openai.responses":
        return {"input": prompt.messages, **({"instructions": prompt.system} if prompt.system else {})}
    if format == "gemini":
        return {"contents": prompt.messages, **({"system_instruction": prompt.system} if prompt.system else {})}
    return {**({"system": prompt.system} if prompt.system else {}), "messages": prompt.messages}
