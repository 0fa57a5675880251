"""Reads of one conversation. A short page takes one round trip; a long walk goes piece by piece.

A reader builds its request from the state that it remembers. If the conversation has changed so that the request was
wrong, the new state comes with the answer, and the reader repeats the request.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from heapq import merge

from hansard import rules
from hansard.backends.redis import rows
from hansard.backends.redis.answers import ReadAnswers, answer, decoded, total_size
from hansard.backends.redis.rows import PIECE, PIECE_BYTES, RedisMessage, StoredState, piece_of
from hansard.backends.redis.state_cache import Ask, Moment, RedisStateCache, SeenState
from hansard.backends.shared.optimistic import PATIENCE, Overtaken
from hansard.contract.storage import Wants
from hansard.contract.types import Context, ConversationState, MessageQuery, Row, Slice, StoredBranch
from hansard.errors import TimedOut
from hansard.model import MAIN, Message, to_micros

Piece = list[tuple[int, RedisMessage]]
"""Messages ordered by seq, each with its segment."""
_TRIES = 3
_FIRST = StoredBranch(MAIN, 1)
"""The segment where most conversations have all their messages."""


async def _rows(found: Sequence[bytes], id: str) -> list[RedisMessage]:
    return await decoded(total_size(found), partial(rows.rows_of, found, id))


def visible(seen: SeenState, context: Context) -> StoredState | None:
    entry = seen.entry
    return entry if entry is not None and rules.is_visible(entry.state.conversation, context) else None


async def find_state(states: RedisStateCache, context: Context, id: str) -> StoredState | None:
    return visible(await states.read((context.tenant, id)), context)


async def read(
    states: RedisStateCache, context: Context, id: str, wants: Wants
) -> tuple[ConversationState, ReadAnswers] | None:
    """Returns the conversation and the answers, of one moment."""
    needs_state = bool(wants.runs or wants.spans or wants.last_time_without)
    give_up, tries = 0.0, 0
    while not tries or time.monotonic() < give_up:
        tries += 1
        moment = Moment(states, (context.tenant, id))
        try:
            if needs_state:
                await moment.read()
            # While others keep writing, only a single round trip is consistent.
            answers = await answer(moment, id, wants, whole=tries >= _TRIES)
            if not moment.was_read:
                await moment.read()
        except Overtaken:
            give_up = give_up or time.monotonic() + PATIENCE
            continue
        entry = moment.entry
        seen = entry is not None and rules.is_visible(entry.state.conversation, context)
        return (entry.state, answers) if entry and seen else None
    raise TimedOut(f"other writers kept changing conversation {id!r} for {PATIENCE:g} seconds", outcome="not_applied")


# Messages


async def get_messages(states: RedisStateCache, context: Context, id: str, query: MessageQuery) -> Slice:
    known = states.known((context.tenant, id)) or await find_state(states, context, id)
    while known is not None:
        # An unknown branch may be new: the answer brings the newest state, which decides.
        branch = known.state.branches.get(query.branch or known.state.conversation.branch, _FIRST)
        if not _is_short(query, branch, known.largest):
            return await _long(states, context, id, query)
        asks = [_ask(segment, upto, query, (query.limit or 0) + 1) for segment, upto in _parts(branch, query)]
        seen = await states.read((context.tenant, id), asks)
        known = visible(seen, context)
        if known is not None and rules.segments(known.state.branch(query.branch)) == rules.segments(branch):
            found = [data for stored in seen.answers for data in stored]
            page = partial(_page, found, id, query, cannot_pass=_is_short(query, branch, known.largest))
            return await decoded(total_size(found), page)
    return Slice([], False)


def _is_short(query: MessageQuery, branch: StoredBranch, largest: int) -> bool:
    """Returns whether one request reads a page: no filter skips messages, and the bodies fit the byte limit."""
    narrow = (query.roles, query.participant_ids, query.scope, query.since, query.until)
    passes_over = query.pinned is False or any(each is not None for each in narrow)
    if query.sort == "time" or query.limit is None or passes_over:
        return False
    bound = min(query.max_bytes or PIECE_BYTES, PIECE_BYTES)
    return (query.limit + 1) * max(largest, 1) * len(rules.segments(branch)) <= bound or query.limit == 1


def _parts(branch: StoredBranch, query: MessageQuery) -> list[tuple[int, int]]:
    parts = list(rules.segments(branch))
    return parts[::-1] if query.newest_first else parts


def _ask(segment: int, upto: int, query: MessageQuery, limit: int, after: int | None = None) -> Ask:
    """Requests messages of one segment between the query's positions; `after` is where a walk continues."""
    low = query.above[1] if query.above and query.sort == "seq" else 0
    high = min(upto, query.below[1] - 1) if query.below and query.sort == "seq" else upto
    if after is not None:
        low, high = (low, min(high, after - 1)) if query.newest_first else (max(low, after), high)
    command: Ask = ("ZRANGEBYSCORE", f"messages:{segment}", f"({low}", high, "LIMIT", 0, limit)
    if query.newest_first:
        command = ("ZREVRANGEBYSCORE", f"messages:{segment}", high, f"({low}", "LIMIT", 0, limit)
    return ("pinned", "", segment, command[0], *command[2:]) if query.pinned else command


def _page(found: Sequence[bytes], id: str, query: MessageQuery, *, cannot_pass: bool) -> Slice:
    return _bounded(rows.rows_of(found, id), id, query, cannot_pass=cannot_pass)


def _bounded(found: Sequence[RedisMessage], id: str, query: MessageQuery, *, cannot_pass: bool = False) -> Slice:
    """Takes messages up to the limits of count and bytes, but at least one. `cannot_pass`: they are known to fit."""
    if cannot_pass:
        return Slice(rows.messages_from(found[: query.limit], id), len(found) > (query.limit or 0))
    messages: list[Message] = []
    size = 0
    for row in found:
        if len(messages) == query.limit or (query.max_bytes is not None and size >= query.max_bytes):
            return Slice(messages, True)
        messages.append(rows.message_from(row, id))
        size += rows.size_of(row)
    return Slice(messages, False)


# Long walks


class Changed(Exception):
    """The branch has changed since the walk began."""


async def _long(states: RedisStateCache, context: Context, id: str, query: MessageQuery) -> Slice:
    while True:
        entry = await find_state(states, context, id)
        if entry is None:
            return Slice([], False)
        try:
            if query.sort == "time":
                return await _by_time(states, context, id, entry, query)
            return await _by_seq(states, context, id, entry, query)
        except Changed:
            continue


async def _by_seq(states: RedisStateCache, context: Context, id: str, entry: StoredState, query: MessageQuery) -> Slice:
    taken: list[RedisMessage] = []
    size = 0
    async for row in _walk(states, context, id, entry, query):
        if not is_wanted(row, query):
            continue
        if len(taken) == query.limit or (query.max_bytes is not None and size >= query.max_bytes):
            return Slice(await decoded(size, partial(rows.messages_from, taken, id)), True)
        taken.append(row)
        size += rows.size_of(row)
    return Slice(await decoded(size, partial(rows.messages_from, taken, id)), False)


async def _by_time(
    states: RedisStateCache, context: Context, id: str, entry: StoredState, query: MessageQuery
) -> Slice:
    """A branch must be read completely to be sorted by time."""
    wanted = [row async for row in _walk(states, context, id, entry, query) if is_wanted(row, query)]
    above = [row for row in wanted if query.above is None or (row.created_at, row.seq) > query.above]
    between = [row for row in above if query.below is None or (row.created_at, row.seq) < query.below]
    between.sort(key=lambda row: (row.created_at, row.seq), reverse=query.newest_first)
    size = sum([len(row.body) for row in between])
    return await decoded(size, partial(_bounded, between, id, query))


def is_wanted(row: RedisMessage, query: MessageQuery) -> bool:
    """Like `rules.is_wanted`, before a message is made of the row."""
    extra = row.extra
    who, scope = (extra.participant, extra.scope) if extra else (None, None)
    return (
        (query.roles is None or row.role in query.roles)
        and (query.participant_ids is None or (who is not None and who.id in query.participant_ids))
        and (query.scope is None or scope == query.scope)
        and (query.since is None or row.created_at >= to_micros(query.since))
        and (query.until is None or row.created_at < to_micros(query.until))
        and (query.pinned is None or query.pinned == (extra is not None and extra.pinned))
    )


async def _walk(
    states: RedisStateCache, context: Context, id: str, entry: StoredState, query: MessageQuery
) -> AsyncIterator[RedisMessage]:
    """Yields every message of a branch between the query's positions, in its order."""
    branch = entry.state.branch(query.branch)
    piece = piece_of(entry)
    # Short segments share a round trip: a branch of branches has many.
    parts = _parts(branch, query)
    at = 0
    while at < len(parts):
        group = parts[at : at + 50] if piece == PIECE else parts[at : at + 1]
        limit = max(1, piece // len(group))
        seen = await states.read((context.tenant, id), [_ask(segment, upto, query, limit) for segment, upto in group])
        _check_same(seen, context, entry, query)
        for (segment, upto), stored in zip(group, seen.answers, strict=True):
            found = await _rows(stored, id)
            while found:
                for row in found:
                    yield row
                if len(found) < limit:
                    break
                seen = await states.read((context.tenant, id), [_ask(segment, upto, query, limit, found[-1].seq)])
                _check_same(seen, context, entry, query)
                found = await _rows(seen.answers[0], id)
        at += len(group)


def _check_same(seen: SeenState, context: Context, entry: StoredState, query: MessageQuery) -> None:
    now = visible(seen, context)
    if now is None or now.birth != entry.birth:
        raise Changed
    if now.n != entry.n and rules.segments(now.state.branch(query.branch)) != rules.segments(
        entry.state.branch(query.branch)
    ):
        raise Changed


# Copying


async def read_segments(
    states: RedisStateCache, context: Context, id: str, entry: StoredState, after_seq: int, limit: int
) -> Piece | None:
    """Returns the next messages of all segments; None if the conversation is gone."""
    segments = sorted(rows.segments_of(entry.state))
    asks = [
        ("ZRANGEBYSCORE", f"messages:{segment}", f"({after_seq}", "+inf", "LIMIT", 0, limit) for segment in segments
    ]
    seen = await states.read((context.tenant, id), asks)
    now = visible(seen, context)
    if now is None or now.birth != entry.birth:
        return None
    if sorted(rows.segments_of(now.state)) != segments:
        return await read_segments(states, context, id, now, after_seq, limit)
    found = [
        [(segment, row) for row in await _rows(stored, id)]
        for segment, stored in zip(segments, seen.answers, strict=True)
    ]
    return list(merge(*found, key=lambda pair: pair[1].seq))[:limit]


async def read_rows(
    states: RedisStateCache, context: Context, id: str, after_seq: int, limit: int, max_bytes: int
) -> list[Row]:
    taken: list[Row] = []
    size = 0
    entry = await find_state(states, context, id)
    while entry is not None and len(taken) < limit and size < max_bytes:
        step = min(piece_of(entry), limit - len(taken))
        piece = await read_segments(states, context, id, entry, taken[-1].message.seq if taken else after_seq, step)
        if not piece:
            break
        for segment, row in piece:
            if size >= max_bytes:
                break
            taken.append(Row(segment, rows.message_from(row, id)))
            size += rows.size_of(row)
    return taken
