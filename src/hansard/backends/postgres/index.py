"""The search index: filled after the appends, kept exact by every write that changes or removes a message.

An append only adds the message to `search_queue`. The terms follow in passes of many messages, each over one tenant: by
this process when nothing was appended for a moment, or by a search that finds too long a tail. An indexed message
leaves the queue in the same transaction, so at every moment a message is in one of the two, and a search that reads
both misses nothing and finds nothing twice. It is a queue and not a high-water mark, because the message with the lower
number may be committed later.

A pass reads, analyses, and then writes with one statement: so it holds no lock while its event loop may be blocked.
Writers that change or remove messages lock their conversation first. The statement skips conversations that are locked
so, locks the others until it is committed, and uses only terms of messages that have not changed since they were read.
Appends need a weaker lock and wait for neither.
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
"""Messages of one pass in the background: a writer that changes one of them waits for that long."""
LONG_PASS = 1000
"""Messages of one pass when a caller waits for the index: fewer and larger passes cost less."""
_MOST_BYTES = 8_000_000
_PAGE = 200
_COUNTED = 10_000

_SWEEPS = 5
_PAUSE = 0.02
"""Seconds until conversations that another writer was changing are tried again."""

Place = tuple[str, int, int]
"""The conversation, segment and seq of a message."""
FIRST: Place = ("", 0, 0)


class IndexPass(Struct, frozen=True, gc=False):
    """The result of a pass."""

    left: int
    """Messages that it read and left for the next pass."""
    last: Place | None
    """Where to continue; None if nothing was left."""


# Filling


async def catch_up(engine: PostgresEngine) -> None:
    """Indexes everything."""
    for (tenant,) in await engine.read(None, lambda link: link.all("queued_tenants")):
        await catch_up_tenant(engine, tenant)


async def catch_up_tenant(engine: PostgresEngine, tenant: str) -> None:
    """Indexes all messages of a tenant.

    A message that cannot be decoded or keeps changing stays in the queue, where searches read it.
    """
    async with engine.filling:
        for _ in range(_SWEEPS):
            if not await sweep(engine, tenant, LONG_PASS):
                break
            await asyncio.sleep(_PAUSE)


async def sweep(engine: PostgresEngine, tenant: str, size: int) -> int:
    """Runs one pass after another over the whole queue; returns how many messages were not indexed."""
    left = 0
    place: Place | None = FIRST
    while place is not None:
        passed = await index_some(engine, tenant, place, size)
        left, place = left + passed.left, passed.last
    return left


async def index_some(
    engine: PostgresEngine, tenant: str, after: Place, limit: int, conversations: Sequence[str] | None = None
) -> IndexPass:
    """Runs one pass over the queue after a position."""
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
        done += await engine.write_once(tenant, lambda link: link.run("delete_queued", tenant, *rows.columns(gone, 3)))
    if len(there) + len(gone) < len(found):
        # The rest exceeded the limit: it comes next.
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
    """Returns rows of the index. A message that cannot be decoded stays in the queue, where a search reports it."""
    made: list[Row] = []
    for row in found:
        segment, seq, *_, created_at, _, conversation, mark, user_id = row
        try:
            message = rows.message_of(row, conversation)
        except Corrupt:
            continue
        vector = lexemes.vector_of(message, lexemes.owners(tenant, conversation, user_id))
        made.append((conversation, segment, seq, mark, user_id, created_at, vector.loose, vector.text, vector.words))
    return made


# Rebuilding


async def rebuild(engine: PostgresEngine) -> AsyncIterator[int]:
    """Rebuilds page by page: messages removed from the index wait in the queue, where searches find them.

    Other processes and the index task of this one take from the same queue. An index of another version is unusable
    until all of it is rebuilt; until then searches are refused.
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
    """Rebuilds an index that an older version built, or whose rebuild was interrupted."""
    state = await engine.read(None, lambda link: link.one("search_state", "", 0))
    if state is None or state[0] < VERSION:
        async for _ in rebuild(engine):
            pass


async def _start_rebuild(work: Work) -> None:
    state = await work.link.one("search_state", "", 0)
    version = VERSION if state is not None and state[0] == VERSION else 0
    await work.link.run("save_search_state", version, VERSION)


async def _queue_page(work: Work, after: str) -> tuple[str | None, int]:
    """Returns the last conversation of the page, None if there was none; and the number of messages in the page."""
    page: list[str] = [id for (id,) in await work.link.all("lock_conversations_after", work.tenant, after, _PAGE)]
    row = await work.link.one("queue_conversations", work.tenant, page) if page else None
    return (page[-1], row[0]) if row else (None, 0)


async def _drop_strays(work: Work, after: tuple[str, str]) -> tuple[str, str] | None:
    """Removes strays of the next conversations; returns the last of them, None if there was none."""
    row = await work.link.one("delete_strays", *after, _PAGE)
    return (row[0], row[1]) if row else None


async def _finish(work: Work) -> None:
    await work.link.run("save_search_state", VERSION, VERSION)


# Checking


async def count_unindexed(link: PostgresConnection, tenant: str | None) -> int:
    """Returns how many messages wait to be indexed, of a tenant or of all, up to a bound."""
    if tenant is None:
        row = await link.one("count_queued", _COUNTED)
        return row[0] if row else 0
    row = await link.one("search_state", tenant, _COUNTED)
    return row[1] if row else 0


async def find_fault(link: PostgresConnection) -> Problem | None:
    """Returns why the index cannot be used at all."""
    state = await link.one("search_state", "", 0)
    if state is None or state[0] != VERSION:
        return Problem("search index", "it was built by another version: run `hansard reindex`")
    return None


async def find_strays(link: PostgresConnection, tenant: str | None) -> Problem | None:
    """Returns a problem if the index has messages of conversations that do not exist."""
    gone, after = 0, (tenant or "", "")
    while row := await link.one("count_strays", *after, _PAGE, tenant):
        gone, after = gone + row[2], (row[0], row[1])
    return Problem("search index", f"{gone} messages in it are gone: run `hansard reindex`") if gone else None


async def check_conversation(
    link: PostgresConnection, tenant: str, id: str, user_id: str | None, stored: Sequence[StoredRow]
) -> list[Problem]:
    """Checks that index and queue have each message of a conversation once, and the index with its terms."""
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
    vectors = {place: lexemes.vector_of(message, belongs_to) for place, message in there.items() if known.get(place)}
    expected = [
        (*place, to_micros(there[place].created_at), vector.text, vector.words) for place, vector in vectors.items()
    ]
    for segment, seq in await link.all("other_terms", tenant, id, *rows.columns(expected, 5)) if expected else []:
        what = f"the search index has other words than message {there[segment, seq].id!r}: run `hansard reindex`"
        problems.append(Problem(where, what))
    return problems
