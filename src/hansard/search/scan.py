"""Search without an index: every message is compared. Exact, and limited to `MOST` messages for each search.

It uses only the Backend contract, so every backend has search from its first day. An index returns the same, only
faster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from heapq import nlargest

from msgspec import structs

from hansard import rules
from hansard.analysis import Lookup, Match, Matches, Position, Sieve, analyse, searchable
from hansard.contract.backend import Backend
from hansard.contract.types import Context, ConversationQuery, MessageQuery
from hansard.executor import run_in_thread
from hansard.model import Conversation, Message, to_micros

MOST = 100_000
"""Messages that one search compares. The conversations with the newest activity come first."""
_PAGE = 100
_PAGE_BYTES = 8_000_000

Found = tuple[Conversation, Message]


async def find(backend: Backend, context: Context, lookup: Lookup) -> Matches:
    newest: list[tuple[Position, Match]] = []
    sieve = Sieve(lookup.query)
    seen = matching = 0
    complete = True
    async for batch in _batches(_messages(backend, context, lookup)):
        complete = seen + len(batch) <= MOST
        found = await run_in_thread(_matching, batch[: MOST - seen], lookup, sieve)
        seen += len(batch)
        matching += len(found)
        newest = nlargest(lookup.limit, [*newest, *found], key=_position)
        if not complete:
            break
    return Matches([match for _, match in newest], matching > lookup.limit, complete)


def _matching(batch: list[Found], lookup: Lookup, sieve: Sieve) -> list[tuple[Position, Match]]:
    """Returns the matches, each with its position. CPU-bound: it runs in a thread."""
    found = []
    for conversation, message in batch:
        text = searchable(message)
        match = Match(conversation, message)
        is_below = lookup.below is None or match.position < lookup.below
        if is_below and sieve.passes(text) and lookup.query.matches(analyse(text)):
            found.append((match.position, match))
    return found


def _position(found: tuple[Position, Match]) -> Position:
    return found[0]


async def _batches(messages: AsyncIterator[Found]) -> AsyncIterator[list[Found]]:
    """Yields messages of several conversations together: a thread for each one would cost more than it saves."""
    batch: list[Found] = []
    async for found in messages:
        batch.append(found)
        if len(batch) == _PAGE:
            yield batch
            batch = []
    yield batch


async def _messages(backend: Backend, context: Context, lookup: Lookup) -> AsyncIterator[Found]:
    query = MessageQuery(
        branch=lookup.branch,
        newest_first=True,
        limit=_PAGE,
        max_bytes=_PAGE_BYTES,
        roles=lookup.roles,
        participant_ids=lookup.participant_ids,
        since=lookup.since,
        until=lookup.until,
    )
    async for conversation in conversations(backend, context, lookup):
        lines = (
            _all_branches(backend, context, conversation.id, query)
            if lookup.all_branches
            else _branch_messages(backend, context, conversation.id, query)
        )
        async for message in lines:
            yield conversation, message


async def conversations(backend: Backend, context: Context, lookup: Lookup) -> AsyncIterator[Conversation]:
    if lookup.conversation_id is not None:
        only = await backend.get_conversation(context, lookup.conversation_id)
        if only is not None and _is_wanted(only, lookup):
            yield only
        return
    query = ConversationQuery(
        user_id=context.user if lookup.user_id is None else lookup.user_id,
        agent_id=lookup.agent_id,
        metadata=lookup.metadata,
        archived=None,
        limit=_PAGE,
    )
    more = True
    while more:
        page, more = await backend.list_conversations(context, query)
        for conversation in page:
            yield conversation
        if page:
            last = page[-1]
            place = (to_micros(last.last_message_at or last.created_at), last.id)
            query = structs.replace(query, below=place)


def _is_wanted(conversation: Conversation, lookup: Lookup) -> bool:
    return (
        lookup.user_id in (None, conversation.user_id)
        and lookup.agent_id in (None, conversation.agent_id)
        and rules.has_metadata(conversation, lookup.metadata)
    )


async def _branch_messages(backend: Backend, context: Context, id: str, query: MessageQuery) -> AsyncIterator[Message]:
    more = True
    while more:
        page = await backend.get_messages(context, id, query)
        for message in page.messages:
            yield message
        more = page.has_more
        if page.messages:
            query = structs.replace(query, below=rules.position(page.messages[-1]))


async def _all_branches(backend: Backend, context: Context, id: str, query: MessageQuery) -> AsyncIterator[Message]:
    seq = 0
    while rows := await backend.read_rows(context, id, seq, _PAGE, _PAGE_BYTES):
        for row in rows:
            if rules.is_wanted(row.message, query):
                yield row.message
        seq = rows[-1].message.seq
