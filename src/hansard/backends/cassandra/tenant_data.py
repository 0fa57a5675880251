"""What a tenant keeps beside conversations and records: usage, and who has said what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

from msgspec import Struct

from hansard import rules
from hansard.backends.cassandra import effects, read
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.effects import BUCKETS
from hansard.backends.shared import documents, lists
from hansard.contract.types import Context, Participation
from hansard.model import UsageRow

_PIECE = 200
_FIRST, _LAST = "", "9999-99-99"


class _UsageName(Struct, array_like=True, frozen=True):
    user_id: str | None
    agent_id: str | None
    model: str | None
    conversation_id: str
    since: int
    """The number of the write that began the sum."""


# Usage


class _UsageRow(NamedTuple):
    """What a conversation has used on a day."""

    month: str
    bucket: int
    name: str
    n: int
    row: UsageRow


async def _usage_rows(
    link: Link, catalog: NameCatalog, tenant: str, user_id: str | None, since: str, until: str
) -> AsyncGenerator[_UsageRow, None]:
    """The rows of a user, or all (None)."""
    for month in await catalog.names("month", tenant):
        if not since[:7] <= month <= until[:7]:
            continue
        if user_id is not None:
            asked = [link.read("read_usage_of_user", tenant, user_id, month, since, until)]
        else:
            asked = [link.read("read_usage", tenant, month, bucket, since, until) for bucket in range(BUCKETS)]
        for found in await asyncio.gather(*asked):
            for _, name, doc, n in found:
                id = documents.decode(name.encode(), _UsageName, "the name of a usage row").conversation_id
                row = documents.decode(doc, UsageRow, "a usage row")
                yield _UsageRow(month, effects.bucket_of(id), name, n, row)


async def usage(
    link: Link, catalog: NameCatalog, context: Context, since: str | None, until: str | None
) -> list[UsageRow]:
    found = [
        each.row
        async for each in _usage_rows(link, catalog, context.tenant, context.user, since or _FIRST, until or _LAST)
    ]
    return lists.select_usage(lists.add_up_usage(found), context)


async def erase_usage(link: Link, catalog: NameCatalog, tenant: str, user_id: str | None) -> int:
    """Removes a user's rows, or all (None); returns how many different ones there were."""
    gone: set[rules.UsageKey] = set()
    async for month, bucket, name, n, row in _usage_rows(link, catalog, tenant, user_id, _FIRST, _LAST):
        await link.put("delete_usage", n, link.prefix, tenant, month, bucket, row.day, name)
        if row.user_id is not None:
            # This one last: an erasure that is repeated finds the rows by it.
            await link.put("delete_usage_of_user", n, link.prefix, tenant, row.user_id, month, row.day, name)
        gone.add(lists.usage_key(row))
    if user_id is None:
        for month in await catalog.names("month", tenant):
            await catalog.remove("month", tenant, month)
    return len(gone)


# Participants


async def participations(link: Link, context: Context, participant_id: str, limit: int) -> list[Participation]:
    found: dict[str, list[str]] = {}
    seen: dict[str, bool] = {}
    after = ("", "")
    while limit > 0:
        page = await link.read("read_participant", context.tenant, participant_id, *after, _PIECE)
        for id, message_id in page:
            if id not in seen:
                head = await read.load(link, (context.tenant, id))
                state = head.state if head else None
                seen[id] = state is not None and rules.is_visible(state.conversation, context)
            if seen[id] and limit > 0:
                found.setdefault(id, []).append(message_id)
                limit -= 1
        if len(page) < _PIECE:
            break
        after = page[-1]
    return [Participation(id, ids) for id, ids in found.items()]
