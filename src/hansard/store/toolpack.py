"""`assemble_prompt(compat="toolpack")`: reads its messages, and remembers what it has summarized."""

from __future__ import annotations

import logging
from uuid import uuid4

import msgspec
from msgspec import structs

from hansard import codec
from hansard.assembly import toolpack
from hansard.assembly.explanation import Prompt
from hansard.assembly.summaries import TOOLPACK, SummaryRequest
from hansard.assembly.toolpack import Roll
from hansard.contract.types import Context, MessageQuery, RecordWrite
from hansard.errors import Conflict
from hansard.formats import registry
from hansard.model import Message, Summary
from hansard.store import read_query
from hansard.store.core import View
from hansard.store.prompt_builder import BranchReader, PromptRequest
from hansard.store.summaries import answer_of

ROLLS = ("hansard", "toolpack")

logger = logging.getLogger("hansard.prompts")


class _Memory(msgspec.Struct):
    """The summaries of a conversation, as its record stores them."""

    rolls: list[Roll] = []
    revision: int = 0


async def assemble(view: View, request: PromptRequest) -> Prompt:
    context = view.context()
    agent_id = request.options.view.agent_id or ""
    memory = await _recall(view, context, request.conversation_id)
    loaded = await _load(view, context, request, memory.rolls)
    messages = toolpack.addressed(loaded, agent_id, request.aliases) if request.options.addressed_only else list(loaded)
    problems: list[str] = []
    if len(messages) > request.summary_threshold:
        messages = await _shortened(view, context, request, memory, messages, problems)
    known = {message.id for message in loaded}
    shown = [message for message in messages if message.id not in known] + loaded
    filled = toolpack.filled(messages, shown, agent_id, request.options.token_budget)
    return Prompt(
        messages=registry.Converted(filled.messages),
        decisions=filled.decisions,
        tokens=filled.tokens,
        budget=request.options.token_budget,
        counter="toolpack",
        loaded=len(loaded),
        problems=problems,
    )


async def _load(view: View, context: Context, request: PromptRequest, rolls: list[Roll]) -> list[Message]:
    query = MessageQuery(branch=request.branch, scope=request.scope, since=request.since, sort="time")
    reader = BranchReader(view, context, request.conversation_id, query)
    hidden = {id for roll in rolls for id in roll.covers}
    found: list[Message] = []
    last: Message | None = None
    more = True
    while more and len(found) < request.max_turns:
        chunk, more = await reader.older(last, request.max_turns)
        found += [message for message in chunk if message.id not in hidden]
        last = chunk[-1] if chunk else last
    seen = [roll for roll in rolls if _is_in_view(roll, request)]
    whole = await read_query.with_blobs(view, context, found[::-1], "inline")
    return toolpack.seen(whole, seen, request.max_turns)


def _is_in_view(roll: Roll, request: PromptRequest) -> bool:
    return request.scope in (None, roll.scope) and (request.since is None or roll.at >= request.since)


async def _shortened(
    view: View, context: Context, request: PromptRequest, memory: _Memory, messages: list[Message], problems: list[str]
) -> list[Message]:
    """Returns the older half as a summary; without a summarizer, or if it fails, the newest messages only."""
    newest = messages[-request.summary_threshold :] if request.summary_threshold else messages
    if request.summarizer is None:
        return newest
    covered, recent = toolpack.halves(messages)
    own = {roll.id for roll in memory.rolls}
    raw = tuple(message for message in covered if message.id not in own)
    summary_request = SummaryRequest(raw, max_tokens=int(request.options.token_budget * toolpack.SUMMARY_SHARE))
    try:
        text = await answer_of(request.summarizer, summary_request, request.summary_timeout)
    except Exception as error:
        logger.warning("no summary of conversation %s: %s", request.conversation_id, error)
        problems.append(f"the summarizer failed: {type(error).__name__}: {error}")
        return newest
    after = max(message.seq for message in messages)
    roll = toolpack.roll_of(f"summary-{uuid4()}", covered, str(text), len(raw), request.scope, after=after)
    if problem := await _remember(view, context, request, memory, roll):
        problems.append(problem)
    return [roll.as_message(), *recent]


async def _recall(view: View, context: Context, conversation_id: str) -> _Memory:
    """Returns the stored summaries, without those that were deleted with a message that they covered."""
    if not view.backend.capabilities.records:
        return _Memory()
    (record,) = await view.backend.get_records(context, [(ROLLS, conversation_id)])
    if record is None:
        return _Memory()
    texts = {each.prompt_id: each.text for each in await view.backend.list_summaries(context, conversation_id, None)}
    codec.prepare(Roll)
    rolls = msgspec.convert(record.value, list[Roll])
    whole = [structs.replace(roll, text=texts[TOOLPACK + roll.id]) for roll in rolls if TOOLPACK + roll.id in texts]
    return _Memory(whole, record.revision)


async def _remember(view: View, context: Context, request: PromptRequest, memory: _Memory, roll: Roll) -> str | None:
    """Stores the summary with the messages, and what it hides in a record. Returns the problem, if there was one."""
    id = request.conversation_id
    conversation = await view.backend.get_conversation(context, id)
    if conversation is None or not view.backend.capabilities.records:
        return None
    summary = Summary(
        id,
        roll.from_seq,
        roll.to_seq,
        roll.text,
        request.branch or conversation.branch,
        request.summarizer.model if request.summarizer is not None else None,
        TOOLPACK + roll.id,
        created_at=view.clock(),
    )
    value = msgspec.to_builtins([structs.replace(each, text="") for each in (*memory.rolls, roll)])
    write = RecordWrite(ROLLS, id, value, expected_revision=memory.revision, conversation_id=id)
    try:
        await view.backend.write_records(context, [write])
    except Conflict as error:
        # Another process summarized it meanwhile: this prompt is right, and the next one uses theirs.
        return f"the summary was not stored: {error}"
    await view.backend.put_summary(context, summary)
    return None
