"""How a Store makes a prompt: it reads messages, lets `assembly` choose, and writes the choice in a format."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, structs

from hansard import codec, rules
from hansard.assembly import projection, prompt_ids, reader, selection, tokens, window
from hansard.assembly.explanation import Decision, Prompt
from hansard.assembly.selection import Chosen, PromptOptions
from hansard.assembly.summaries import Summarizer
from hansard.assembly.tokens import DEFAULT_COUNTER, TokenCounter
from hansard.assembly.window import Closing
from hansard.contract.types import Context, MessageQuery
from hansard.errors import HansardError
from hansard.executor import run_in_thread
from hansard.formats import registry
from hansard.formats.dialogue import side_of
from hansard.model import Conversation, Message, MessageScope, Summary
from hansard.store import read_query, summaries
from hansard.store.core import View

logger = logging.getLogger("hansard.prompts")

T = TypeVar("T")

_CHUNK = 100
_MANY = 200
"""More messages than this are selected and converted in a thread, outside the event loop."""
_STAND_IN = 48_000
"""Bytes. As base64 text that is not a picture, this is more than most budgets allow."""


class PromptRequest(Struct, frozen=True, kw_only=True):
    """The checked arguments of `assemble_prompt`."""

    conversation_id: str
    options: PromptOptions
    branch: str | None = None
    scope: MessageScope | None = None
    since: datetime | None = None
    max_turns: int = 100
    summary_threshold: int = 40
    summarizer: Summarizer | None = None
    summary_timeout: float = 30.0
    in_background: bool = False
    system: str | None = None
    agent_name: str | None = None
    aliases: Sequence[str] = ()
    before: str | None = None


class BranchReader:
    """Reads a branch for a prompt, with placeholders for blobs: only the chosen messages need the real ones."""

    def __init__(self, view: View, context: Context, conversation_id: str, query: MessageQuery) -> None:
        """`query.below` is the end of the history, if it is not to be read to the end."""
        self._view = view
        self._context = context
        self._id = conversation_id
        self._query = structs.replace(query, newest_first=True, max_bytes=view.limits.page_bytes)
        self._bare = MessageQuery(branch=query.branch, below=query.below, max_bytes=view.limits.page_bytes)

    @property
    def has_past(self) -> bool:
        return self._query.since is not None

    async def older(self, before: Message | None, limit: int) -> tuple[list[Message], bool]:
        below = rules.position(before) if before is not None else self._query.below
        return await self._take(structs.replace(self._query, below=below, limit=limit))

    async def first(self, limit: int) -> list[Message]:
        return (await self._take(structs.replace(self._bare, limit=limit)))[0]

    async def pinned(self, limit: int) -> list[Message]:
        # Not from another scope: a private message must not reach everybody.
        query = structs.replace(self._bare, newest_first=True, pinned=True, scope=self._query.scope, limit=limit)
        return (await self._take(query))[0][::-1]

    async def around(self, message: Message, limit: int) -> list[Message]:
        place = rules.position(message)
        before, _ = await self._take(structs.replace(self._bare, newest_first=True, below=place, limit=limit))
        after, _ = await self._take(structs.replace(self._bare, above=place, limit=limit))
        return [*before[::-1], message, *after]

    async def _take(self, query: MessageQuery) -> tuple[list[Message], bool]:
        taken = await self._view.backend.get_messages(self._context, self._id, query)
        return [_with_stand_ins(message) for message in taken.messages], taken.has_more


def _with_stand_ins(message: Message) -> Message:
    """Returns the message with placeholders in place of its blobs, so that it is read and measured alike."""
    if not message.blobs:
        return message
    zeros = {ref.sha256: bytes(min(ref.size, _STAND_IN)) for ref in message.blobs}
    return structs.replace(message, content=codec.restore(message.content, message.blobs, zeros))


async def assemble(view: View, request: PromptRequest) -> Prompt:
    context = view.context()
    conversation = await view.backend.get_conversation(context, request.conversation_id)
    if conversation is None:
        return await _written(view, context, request, _nothing(request), None, [])
    branch = request.branch or conversation.branch
    end = await read_query.position(view, context, request.conversation_id, request.before)
    query = MessageQuery(branch=request.branch, scope=request.scope, since=request.since, below=end)
    branch_reader = BranchReader(view, context, request.conversation_id, query)
    loaded = await reader.load(
        branch_reader, request.options.view, request.max_turns, addressed_only=request.options.addressed_only
    )
    # A summary covers the whole branch, including other scopes and the time before the time window.
    is_narrowed = request.scope is not None or request.since is not None
    summary = None if is_narrowed else await summaries.latest(view, context, conversation, branch, end and end[1])
    chosen = await _off_the_loop(loaded.messages, selection.choose, loaded.messages, request.options, summary)
    problems: list[str] = []
    if request.summarizer is not None and not is_narrowed:
        until = _summarizable(loaded.messages, chosen.decisions, request.summary_threshold)
        newer = await _rolled(view, request, conversation, branch, until, problems) if until else None
        if newer is not None:
            summary = newer
            chosen = await _off_the_loop(loaded.messages, selection.choose, loaded.messages, request.options, summary)
    prompt = await _written(view, context, request, chosen, summary, problems)
    # A summary may cover everything before the loaded messages.
    is_reached = summary is not None and summary.to_seq >= loaded.first_seq - 1
    prompt = structs.replace(prompt, loaded=len(loaded.messages), has_older=loaded.has_older and not is_reached)
    prompt = prompt.with_id(partial(_id_of, context, request, branch, chosen, prompt))
    prompt_ids.note(request.conversation_id, prompt)
    return prompt


def _id_of(context: Context, request: PromptRequest, branch: str, chosen: Chosen, prompt: Prompt) -> str:
    options, summary = request.options, prompt.summary
    kept = [each for each in chosen.decisions if each.kept]
    names = prompt_ids.named(chosen.messages, kept)
    cost = selection.summary_tokens(summary, options.counter)
    given = prompt_ids.GivenPrompt(
        at=context.now,
        options=prompt_ids.PromptOptionsThen(
            agent_id=options.view.agent_id,
            agent_name=request.agent_name,
            agent_aliases=tuple(request.aliases),
            branch=branch,
            token_budget=options.token_budget,
            max_turns=request.max_turns,
            scope=request.scope,
            addressed_only=options.addressed_only,
            names=options.names,
            dangling=options.dangling,
            format=options.format,
        ),
        messages=names,
        unnamed=len(kept) - len(names),
        summary=prompt_ids.named_summary(summary, cost),
        dropped=prompt_ids.dropped(chosen.decisions),
        tokens=prompt.tokens,
        reserved=prompt.reserved,
        system=prompt_ids.digest_of_text(request.system) if request.system else None,
        counter=prompt.counter,
        calibration=prompt.calibration,
        loaded=prompt.loaded,
        has_older=prompt.has_older,
    )
    return prompt_ids.encode(given)


async def _off_the_loop(messages: Sequence[Message], function: Callable[..., T], *args: Any) -> T:
    """Runs the function in a thread if there are many messages; for a few, a thread costs more than it saves."""
    return await run_in_thread(function, *args) if len(messages) > _MANY else function(*args)


def _nothing(request: PromptRequest) -> Chosen:
    return selection.choose([], request.options, None)


async def _written(
    view: View, context: Context, request: PromptRequest, chosen: Chosen, summary: Summary | None, problems: list[str]
) -> Prompt:
    readings = chosen.readings
    messages = chosen.messages
    if any(message.blobs for message in messages):
        messages = await read_query.with_blobs(view, context, messages, "inline")
        readings = [chosen.project(message) for message in messages]
    pairs = selection.ordered(zip(messages, readings, strict=True), request.system, summary)
    options = request.options
    convert = partial(registry.convert_readings, dangling=options.dangling)
    converted = await _off_the_loop(messages, convert, pairs, options.format)
    return Prompt(
        messages=converted,
        system=converted.system,
        decisions=[*_of_summary(summary, options), *chosen.decisions],
        tokens=chosen.tokens,
        budget=options.token_budget,
        reserved=options.reserved,
        counter=options.counter.name,
        calibration=chosen.calibration,
        summary=summary,
        losses=converted.losses,
        problems=problems,
    )


def _of_summary(summary: Summary | None, options: PromptOptions) -> list[Decision]:
    if summary is None:
        return []
    cost = selection.summary_tokens(summary, options.counter)
    return [Decision("", summary.to_seq, "system", True, "summary", cost)]


# Summaries


def _summarizable(loaded: Sequence[Message], decisions: Sequence[Decision], threshold: int) -> int:
    """Returns the seq up to which messages should be summarized: the older half if they exceed the threshold, else 0.

    The newer half begins with a user's message where possible, so that no turn is split.
    """
    waiting = [
        message
        for message, decision in zip(loaded, decisions, strict=True)
        if decision.why in ("newest", "fits", "over_budget") and not projection.always_stays(message)
    ]
    if len(waiting) <= threshold:
        return 0
    middle = len(waiting) // 2
    begins = (index for index in range(middle, len(waiting)) if side_of(waiting[index].role) == "user")
    return waiting[next(begins, middle)].seq - 1


async def _rolled(
    view: View, request: PromptRequest, conversation: Conversation, branch: str, until: int, problems: list[str]
) -> Summary | None:
    """Returns the newer summary; None if it is written in the background, by another process, or not at all."""
    assert request.summarizer is not None
    task = summaries.SummaryTask(
        conversation.id,
        branch,
        until,
        request.summarizer,
        max(1, int(request.options.token_budget * selection.SUMMARY_SHARE)),
        request.summary_timeout,
        request.options.counter,
    )
    if request.in_background:
        _summarize_in_background(view, task)
        return None
    try:
        return await summaries.roll(view, task, total=request.summary_timeout)
    except HansardError as error:
        # A prompt without a new summary is better than none. The prompt reports the failure.
        logger.warning("no summary of conversation %s: %s", conversation.id, error)
        problems.append(str(error))
        return None


def _summarize_in_background(view: View, task: summaries.SummaryTask) -> None:
    """Summarizes in the background. The view holds the task until it has ended or the store is closed."""

    async def work() -> None:
        try:
            await summaries.roll(view, task)
        except HansardError as error:
            logger.warning("no summary of conversation %s: %s", task.conversation_id, error)

    started = asyncio.get_running_loop().create_task(work())
    view.tasks.add(started)
    started.add_done_callback(view.tasks.discard)


# Windows


class WindowRequest(Struct, frozen=True):
    """The checked arguments of `window`: by messages, turns or tokens."""

    messages: int | None = None
    turns: int | None = None
    tokens: int | None = None
    dangling: Closing = "drop"
    counter: TokenCounter = DEFAULT_COUNTER


async def in_window(view: View, conversation_id: str, branch: str | None, request: WindowRequest) -> list[Message]:
    context = view.context()
    branch_reader = BranchReader(view, context, conversation_id, MessageQuery(branch=branch))
    found, more = await _newest(branch_reader, request)
    messages = found[::-1]
    if more:
        messages = await reader.with_staying(branch_reader, messages)
    if request.tokens is None:
        kept = window.valid(messages, request.dangling)
    else:
        counter = request.counter
        kept = window.within(
            messages,
            request.tokens,
            lambda message: tokens.cost(registry.read(message), counter),
            projection.always_stays,
            request.dangling,
        )
    return await read_query.with_blobs(view, context, kept, "inline")


async def _newest(branch_reader: BranchReader, request: WindowRequest) -> tuple[list[Message], bool]:
    """Returns messages newest first, as far back as the window may reach, and whether there are more."""
    if request.messages is not None:
        return await branch_reader.older(None, request.messages)
    found: list[Message] = []
    more = True
    reached = 0
    limit = request.turns if request.turns is not None else request.tokens
    assert limit is not None
    while more:
        chunk, more = await branch_reader.older(found[-1] if found else None, _CHUNK)
        for at, message in enumerate(chunk):
            found.append(message)
            if request.turns is not None:
                reached += message.role == "user"
                if reached == limit:
                    return found, more or at + 1 < len(chunk)
            else:
                reached += tokens.cost(registry.read(message), request.counter)
        if request.turns is None and reached > limit:
            break
    return found, more
