"""The search index: filled behind the appends, kept exact by every write that changes or removes a message.

An append only notes that a message has arrived, in `search_queue`. The terms follow in passes of many, each over one
tenant: by this process when nothing was appended for a moment, or by a search that finds too much of a tail. What is
indexed leaves the queue in the same transaction, so at every moment a message is in one of the two, and a search that
looks at both misses nothing and finds nothing twice. A queue and no high-water mark: what was numbered first may be
committed last.

A pass reads, analyses, and then writes with one statement: it holds no lock while nobody may come back to it, as when
an event loop stands still. Whoever changes or removes messages locks their conversation first. The statement takes only
conversations that nobody has locked so, keeps them for itself until it is committed, and believes only terms of
messages that have not changed since they were read. Appends need a weaker lock, and wait for neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial

from msgspec import Struct

from hansard.analysis import VERSION
from hansard.backends.postgres import lexemes, rows
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.engine import PostgresEngine, Work
from hansard.contract.types import Row as StoredRow
from hansard.errors import Corrupt
from hansard.executor import run_in_thread
from hansard.model import Problem, to_micros

SHORT_PASS = 200
"""Messages that one pass indexes in a moment of rest: who changes one of them meanwhile waits for that long."""
LONG_PASS = 1000
"""The same where the index is what is waited for: fewer and larger passes cost less."""
_MOST_BYTES = 8_000_000
_PAGE = 200
_COUNTED = 10_000

_SWEEPS = 5
_PAUSE = 0.02
"""Seconds before another look at conversations that somebody else was changing."""

Place = tuple[str, int, int]
"""The conversation, line and seq of a message."""
FIRST: Place = ("", 0, 0)


class IndexPass(Struct, frozen=True, gc=False):
    """What a pass did."""

    left: int
    """Messages that it looked at, and left for the next time."""
    last: Place | None
    """Where to go on; None when there was nothing left."""


# Filling


async def catch_up(engine: PostgresEngine) -> None:
    """Indexes everything."""
    for (tenant,) in await engine.read(None, lambda link: link.all("queued_tenants")):
        await catch_up_tenant(engine, tenant)


async def catch_up_tenant(engine: PostgresEngine, tenant: str) -> None:
    """Indexes what a tenant has.

    What cannot be read, or is being changed all the time, stays where it is: searches look at it there.
    """
    async with engine.filling:
        for _ in range(_SWEEPS):
            if not await sweep(engine, tenant, LONG_PASS):
                break
            await asyncio.sleep(_PAUSE)


async def sweep(engine: PostgresEngine, tenant: str, size: int) -> int:
    """One pass after another, over all; gives how many messages were not indexed."""
    left = 0
    place: Place | None = FIRST
    while place is not None:
        passed = await index_some(engine, tenant, place, size)
        left, place = left + passed.left, passed.last
    return left


async def index_some(
    engine: PostgresEngine, tenant: str, after: Place, limit: int, conversations: Sequence[str] | None = None
) -> IndexPass:
    """One pass, over what lies behind a place."""
    names = None if conversations is None else list(conversations)
    given = (*after, names, limit, _MOST_BYTES, VERSION)
    found = await engine.read(tenant, lambda link: link.all("queued", tenant, *given))
    if not found:
        return IndexPass(0, None)
    gone = [(row[8], row[0], row[1]) for row in found if row[9] is None]
    there = [row for row in found if row[9] is not None and row[5] is not None]
    made = await run_in_thread(_entries, tenant, there)
    done = await engine.write_once(tenant, lambda link: _index(link, tenant, made)) if made else 0
    if gone:
        done += await engine.write_once(tenant, lambda link: link.run("forget_queued", tenant, *rows.columns(gone, 3)))
    if len(there) + len(gone) < len(found):
        # The rest was too much for one time: it comes next.
        last = there[-1] if there else found[-1]
        return IndexPass(len(there) + len(gone) - done, (last[8], last[0], last[1]))
    last = found[-1]
    return IndexPass(len(found) - done, (last[8], last[0], last[1]) if len(found) == limit else None)


async def _index(link: PostgresConnection, tenant: str, made: Sequence[Row]) -> int:
    row = await link.one(
        "index_messages", tenant, VERSION, sorted({entry[0] for entry in made}), *rows.columns(made, len(made[0]))
    )
    return row[0] if row else 0


def _entries(tenant: str, found: Sequence[Row]) -> list[Row]:
    """Rows of the index. A message that cannot be read stays in the queue: whoever comes to it is told."""
    made: list[Row] = []
    for row in found:
        segment, seq, *_, created_at, _, conversation, mark, user_id = row
        try:
            message = rows.message_of(row, conversation)
        except Corrupt:
            continue
        vector = lexemes.vector_of(message, lexemes.owners(tenant, conversation, user_id))
        made.append((conversation, segment, seq, mark, user_id, created_at, vector.loose, vector.text))
    return made


# Building anew


async def rebuild(engine: PostgresEngine) -> AsyncIterator[int]:
    """Page by page: what is taken out of the index waits in the queue, where searches look for it, until it is back.

    It is done whoever brings it back: others, and the filler of this process, take from the same queue. An index of
    another version is of no use until all of it is built anew; until then searches are refused.
    """
    await engine.write(None, _start_rebuild)
    done = 0
    for tenant in [name for (name,) in await engine.read(None, lambda link: link.all("list_tenants"))]:
        after: str | None = ""
        while after is not None:
            after, queued = await engine.write(tenant, partial(_queue_page, after=after))
            await catch_up_tenant(engine, tenant)
            done += queued
            yield done
    place: tuple[str, str] | None = ("", "")
    while place is not None:
        place = await engine.write(None, partial(_drop_strays, after=place))
    await engine.write(None, _finish)


async def upgrade(engine: PostgresEngine) -> None:
    """Builds anew what an older version has built, or what was broken off."""
    state = await engine.read(None, lambda link: link.one("search_state", "", 0))
    if state is None or state[0] < VERSION:
        async for _ in rebuild(engine):
            pass


async def _start_rebuild(work: Work) -> None:
    state = await work.link.one("search_state", "", 0)
    version = VERSION if state is not None and state[0] == VERSION else 0
    await work.link.run("save_search_state", version, VERSION)


async def _queue_page(work: Work, after: str) -> tuple[str | None, int]:
    """Gives the last conversation of the page, None when there was none; and how many messages the page has."""
    page: list[str] = [id for (id,) in await work.link.all("lock_conversations_after", work.tenant, after, _PAGE)]
    row = await work.link.one("queue_conversations", work.tenant, page) if page else None
    return (page[-1], row[0]) if row else (None, 0)


async def _drop_strays(work: Work, after: tuple[str, str]) -> tuple[str, str] | None:
    """Of the next conversations; gives the last of them, None when there was none."""
    row = await work.link.one("forget_strays", *after, _PAGE)
    return (row[0], row[1]) if row else None


async def _finish(work: Work) -> None:
    await work.link.run("save_search_state", VERSION, VERSION)


# Checking


async def count_unindexed(link: PostgresConnection, tenant: str | None) -> int:
    """How many messages wait to be indexed, of a tenant or of all, up to a bound."""
    if tenant is None:
        row = await link.one("count_queued", _COUNTED)
        return row[0] if row else 0
    row = await link.one("search_state", tenant, _COUNTED)
    return row[1] if row else 0


async def find_fault(link: PostgresConnection) -> Problem | None:
    """Why the index cannot be used at all."""
    state = await link.one("search_state", "", 0)
    if state is None or state[0] != VERSION:
        return Problem("search index", "it was built by another version: run `hansard reindex`")
    return None


async def find_strays(link: PostgresConnection, tenant: str | None) -> Problem | None:
    """Whether the index has messages of conversations that there are not."""
    gone, after = 0, (tenant or "", "")
    while row := await link.one("count_strays", *after, _PAGE, tenant):
        gone, after = gone + row[2], (row[0], row[1])
    return Problem("search index", f"{gone} messages in it are gone: run `hansard reindex`") if gone else None


async def check_conversation(
    link: PostgresConnection, tenant: str, id: str, user_id: str | None, stored: Sequence[StoredRow]
) -> list[Problem]:
    """Whether the index and the queue have each message of a conversation once, and the index with its terms."""
    where = f"{tenant}/{id}"
    known: dict[tuple[int, int], bool] = {}
    twice = []
    for segment, seq, is_indexed in await link.all("search_places", tenant, id):
        if (segment, seq) in known:
            twice.append((segment, seq))
        known[segment, seq] = is_indexed
    there = {(row.segment, row.message.seq): row.message for row in stored}
    problems = [
        Problem(where, f"message {message.id!r} is not in the search index: run `hansard reindex`")
        for place, message in there.items()
        if place not in known
    ]
    problems += (
        Problem(where, f"message {there[place].id!r} is in the search index and waits for it: run `hansard reindex`")
        for place in twice
        if place in there
    )
    gone = len(known.keys() - there.keys())
    if gone:
        problems.append(Problem(where, f"{gone} messages in the search index are gone: run `hansard reindex`"))
    belongs_to = lexemes.owners(tenant, id, user_id)
    expected = [
        (*place, to_micros(message.created_at), lexemes.vector_of(message, belongs_to).text)
        for place, message in there.items()
        if known.get(place)
    ]
    for segment, seq in await link.all("other_terms", tenant, id, *rows.columns(expected, 4)) if expected else []:
        what = f"the search index has other words than message {there[segment, seq].id!r}: run `hansard reindex`"
        problems.append(Problem(where, what))
    return problems
