"""What a tenant keeps beside conversations and records: usage, and who has said what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from hansard import rules
from hansard.backends.cassandra import read
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Row
from hansard.backends.cassandra.effects import BUCKETS
from hansard.backends.shared import documents, lists
from hansard.contract.types import Context, Participation
from hansard.model import UsageRow

_PIECE = 200
_FIRST, _LAST = "", "9999-99-99"


# Usage


async def _usage_rows(
    link: Link, catalog: NameCatalog, tenant: str, since: str, until: str
) -> AsyncGenerator[tuple[str, int, Row], None]:
    """Month, bucket, and the row."""
    for month in await catalog.names("month", tenant):
        if not since[:7] <= month <= until[:7]:
            continue
        asked = (link.read("read_usage", tenant, month, bucket, since, until) for bucket in range(BUCKETS))
        for bucket, found in enumerate(await asyncio.gather(*asked)):
            for row in found:
                yield month, bucket, row


async def usage(
    link: Link, catalog: NameCatalog, context: Context, since: str | None, until: str | None
) -> list[UsageRow]:
    found = [
        documents.decode(row[2], UsageRow, "a usage row")
        async for _, _, row in _usage_rows(link, catalog, context.tenant, since or _FIRST, until or _LAST)
    ]
    return lists.select_usage(lists.add_up_usage(found), context)


async def erase_usage(link: Link, catalog: NameCatalog, tenant: str, user_id: str | None) -> int:
    """Removes a user's rows, or all (None); returns how many different ones there were."""
    gone: set[rules.UsageKey] = set()
    async for month, bucket, (day, name, doc, n) in _usage_rows(link, catalog, tenant, _FIRST, _LAST):
        row = documents.decode(doc, UsageRow, "a usage row")
        if user_id is None or row.user_id == user_id:
            await link.put("delete_usage", n, link.prefix, tenant, month, bucket, day, name)
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
