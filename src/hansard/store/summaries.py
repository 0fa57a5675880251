"""Rolling summaries: read messages not covered yet, ask the summarizer, verify, store.

The messages stay. A lease in the records lets one process at a time summarize a branch. Each step is stored as soon as
it is verified, so that interrupted work continues where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import takewhile
from typing import Any

from msgspec import Struct, structs

from hansard import codec
from hansard.assembly import summaries
from hansard.assembly.summaries import Summarizer, SummaryRequest
from hansard.assembly.tokens import DEFAULT_COUNTER, TokenCounter
from hansard.contract.types import Context, ConversationChange, MessageQuery, RecordWrite
from hansard.errors import Conflict, HansardError, TimedOut, Unavailable
from hansard.model import Conversation, Message, Summary
from hansard.store.core import View

LEASES = ("hansard", "leases")
_CHUNK = 100
_CHUNK_CHARACTERS = 60_000
_SLACK = timedelta(minutes=1)

logger = logging.getLogger("hansard.summaries")


class SummaryTask(Struct, frozen=True):
    """A summary to write: of which branch, up to which seq, by which summarizer."""

    conversation_id: str
    branch: str
    until_seq: int
    summarizer: Summarizer
    max_tokens: int = 750
    timeout: float = 30.0
    counter: TokenCounter = DEFAULT_COUNTER
    in_metadata: bool = False
    """Also set `summary` and `summarizedUntil` in the conversation's metadata, as EdgeOne Makers does."""


async def latest(
    view: View, context: Context, conversation: Conversation, branch: str, before: int | None = None
) -> Summary | None:
    """Returns the summary in effect on a branch; with `before`, of messages before that seq.

    Lists summaries only for conversations that have any.
    """
    if conversation.summary is None:
        return None
    found = await view.backend.list_summaries(context, conversation.id, None)
    found = [each for each in found if before is None or each.to_seq < before]
    foreign = any(each.branch != branch for each in found)
    branches = await view.backend.list_branches(context, conversation.id) if foreign else []
    return summaries.latest(found, branch, branches)


async def roll(view: View, task: SummaryTask, *, total: float | None = None) -> Summary | None:
    """Extends the summary to `until_seq`, chunk by chunk, each building on the last.

    None if there was nothing to do, or if another process holds the lease. Stops after the chunk in which `total`
    seconds have passed.
    """
    done: Summary | None = None
    ends_at = None if total is None else asyncio.get_running_loop().time() + total
    async with _lease(view, task) as lease:
        while lease is not None:
            conversation = await view.backend.get_conversation(view.context(), task.conversation_id)
            if conversation is None:
                return None
            previous = await latest(view, view.context(), conversation, task.branch)
            made = await _next(view, task, previous)
            if made is None:
                break
            await _check(view, task, made)
            if previous is not None and await latest(view, view.context(), conversation, task.branch) != previous:
                raise _outdated()
            await view.backend.put_summary(view.context(), made.summary)
            done = made.summary
            if task.in_metadata:
                await _note(view, made)
            if made.summary.to_seq >= task.until_seq or (ends_at is not None and _now() >= ends_at):
                break
            if not await lease.renew():
                break
    return done


async def rebuild(view: View, task: SummaryTask) -> list[Summary]:
    """Writes all summaries of a branch again, from its first message. Stores them only once all are complete.

    They reach at least as far as the summary in use, which would otherwise stay in use.
    """
    conversation = await view.backend.get_conversation(view.context(), task.conversation_id)
    used = await latest(view, view.context(), conversation, task.branch) if conversation is not None else None
    if used is not None and used.to_seq > task.until_seq:
        task = structs.replace(task, until_seq=used.to_seq)
    built: list[_Made] = []
    while made := await _next(view, task, built[-1].summary if built else None):
        built.append(made)
    for made in built:
        await _check(view, task, made)
    for made in built:
        await view.backend.put_summary(view.context(), made.summary)
    if built and task.in_metadata:
        await _note(view, built[-1])
    return [made.summary for made in built]


class _Made(Struct, frozen=True):
    summary: Summary
    seqs: list[int]
    """Of the messages that it was made from, besides the previous summary."""
    last_id: str


async def _next(view: View, task: SummaryTask, previous: Summary | None) -> _Made | None:
    """Returns the summary that covers the next chunk after `previous`; None if there is none."""
    begin = previous.to_seq if previous is not None else 0
    if begin >= task.until_seq:
        return None
    query = MessageQuery(
        branch=task.branch,
        above=(0, begin),
        below=(0, task.until_seq + 1),
        limit=_CHUNK,
        max_bytes=view.limits.page_bytes,
    )
    read: list[Message] = []
    before = previous.text if previous is not None else None
    text: str | None = None
    while text is None:
        taken = await view.backend.get_messages(view.context(), task.conversation_id, query)
        messages = _bounded(_finished(taken.messages))
        if not messages:
            return None
        read += messages
        text = await _call_summarizer(task, SummaryRequest(tuple(messages), before, task.max_tokens))
        # The chunk has no text to summarize: include the next messages and ask again.
        query = structs.replace(query, above=(0, messages[-1].seq))
    summary = Summary(
        task.conversation_id,
        previous.from_seq if previous is not None else read[0].seq,
        read[-1].seq,
        text,
        task.branch,
        task.summarizer.model,
        task.summarizer.prompt_id,
        task.counter.count(text),
        view.clock(),
    )
    return _Made(summary, [message.seq for message in read], read[-1].id)


async def _check(view: View, task: SummaryTask, made: _Made) -> None:
    """Raises if one of the messages was deleted meanwhile: a summary must not preserve it."""
    above: int = made.seqs[0] - 1
    for at in range(0, len(made.seqs), _CHUNK):
        wanted = made.seqs[at : at + _CHUNK]
        query = MessageQuery(branch=task.branch, above=(0, above), below=(0, wanted[-1] + 1))
        taken = await view.backend.get_messages(view.context(), task.conversation_id, query)
        if [message.seq for message in taken.messages] != wanted:
            raise _outdated()
        above = wanted[-1]


def _outdated() -> Unavailable:
    return Unavailable(
        "a message that it covers was deleted meanwhile: the summary was not used",
        retryable=True,
        outcome="not_applied",
    )


def _finished(messages: Sequence[Message]) -> list[Message]:
    """Returns the messages before the first one in progress: a summary that covered it would hide the rest of it."""
    return list(takewhile(lambda message: message.status != "in_progress", messages))


def _bounded(messages: Sequence[Message]) -> list[Message]:
    """Returns as many of the messages as one request should hold; at least one."""
    size = 0
    for index, message in enumerate(messages):
        size += len(summaries.spoken(message))
        if size > _CHUNK_CHARACTERS and index:
            return list(messages[:index])
    return list(messages)


async def _call_summarizer(task: SummaryTask, request: SummaryRequest) -> str | None:
    """Returns the verified answer; the previous text if there was nothing new to summarize."""
    if not request.transcript:
        return request.previous
    try:
        text = await answer_of(task.summarizer, request, task.timeout)
    except TimeoutError as error:
        raise TimedOut(
            f"the summarizer did not answer within {task.timeout:g} seconds", retryable=True, outcome="not_applied"
        ) from error
    except HansardError:
        raise
    except Exception as error:
        raise Unavailable(
            f"the summarizer failed: {type(error).__name__}: {error}", retryable=True, outcome="not_applied"
        ) from error
    if problem := summaries.problem_with(text, request, task.counter):
        raise Unavailable(f"the summarizer's answer was not used: {problem}", retryable=True, outcome="not_applied")
    return str(text).strip()


async def answer_of(summarizer: Summarizer, request: SummaryRequest, timeout: float) -> Any:
    """Returns the summarizer's answer, unverified. `TimeoutError` in time, even if it ignores cancellation."""
    asking = asyncio.ensure_future(summarizer.summarize(request))
    try:
        done, _ = await asyncio.wait({asking}, timeout=timeout)
    finally:
        asking.cancel()
    if not done:
        raise TimeoutError
    if asking.cancelled():
        raise RuntimeError("it was cancelled")
    return asking.result()


async def _note(view: View, made: _Made) -> None:
    metadata = {"summary": made.summary.text, "summarizedUntil": made.last_id}
    change = ConversationChange(metadata=metadata)
    await view.backend.update_conversation(view.context(), made.summary.conversation_id, change)


def _now() -> float:
    return asyncio.get_running_loop().time()


# The lease


class _Lease:
    """The right to summarize a branch. While it is renewed, no other process writes the branch's summary."""

    def __init__(self, view: View, task: SummaryTask) -> None:
        self._view = view
        self._task = task
        self._key = codec.digest(task.conversation_id, task.branch)
        self._revision = 0

    async def renew(self) -> bool:
        """Takes or renews it. False if another process holds it."""
        try:
            written = await self._view.backend.write_records(self._context(), [self._write()])
        except Conflict:
            return False
        assert written[0] is not None
        self._revision = written[0].revision
        return True

    async def release(self) -> None:
        back = RecordWrite(LEASES, self._key, delete=True, expected_revision=self._revision)
        try:
            await self._view.backend.write_records(self._context(), [back])
        except Conflict:
            # It had run out, and another process holds it now.
            logger.info("a summary took longer than its lease: conversation %s", self._task.conversation_id)

    def _write(self) -> RecordWrite:
        return RecordWrite(
            LEASES,
            self._key,
            {"what": "summary", "branch": self._task.branch},
            expected_revision=self._revision,
            expires_at=self._view.clock() + timedelta(seconds=self._task.timeout) + _SLACK,
            conversation_id=self._task.conversation_id,
        )

    def _context(self) -> Context:
        # Not in the user's own namespace: all processes that summarize must see the same lease.
        return structs.replace(self._view.context(), user=None)


class _NoLease:
    """For a backend without records, where no lease can be stored. Such a backend is not shared."""

    async def renew(self) -> bool:
        return True


@asynccontextmanager
async def _lease(view: View, task: SummaryTask) -> AsyncIterator[_Lease | _NoLease | None]:
    """Yields the lease, or None if another process holds it."""
    if not view.backend.capabilities.records or not view.backend.capabilities.keeps:
        yield _NoLease()
        return
    lease = _Lease(view, task)
    if not await lease.renew():
        yield None
        return
    try:
        yield lease
    finally:
        await lease.release()
