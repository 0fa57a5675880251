"""What a tenant keeps beside conversations and records: usage, and who has said what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from hansard import rules
from hansard.backends.cassandra import read, rows
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Row
from hansard.backends.cassandra.effects import BUCKETS
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
        rows.decode(row[2], UsageRow, "a usage row")
        async for _, _, row in _usage_rows(link, catalog, context.tenant, since or _FIRST, until or _LAST)
    ]
    wanted = [row for row in _added(found) if rules.counts_anything(row) and context.user in (None, row.user_id)]
    return sorted(wanted, key=lambda row: (row.day, row.user_id or "", row.agent_id or "", row.model or ""))


async def erase_usage(link: Link, catalog: NameCatalog, tenant: str, user_id: str | None) -> int:
    """Removes a user's rows, or all (None); returns how many different ones there were."""
    gone: set[rules.UsageKey] = set()
    async for month, bucket, (day, name, doc, n) in _usage_rows(link, catalog, tenant, _FIRST, _LAST):
        row = rows.decode(doc, UsageRow, "a usage row")
        if user_id is None or row.user_id == user_id:
            await link.put("delete_usage", n, link.prefix, tenant, month, bucket, day, name)
            gone.add(rows.usage_key(row))
    if user_id is None:
        for month in await catalog.names("month", tenant):
            await catalog.remove("month", tenant, month)
    return len(gone)


def _added(found: Iterable[UsageRow]) -> list[UsageRow]:
    """Rows of the same key added up."""
    total: dict[rules.UsageKey, UsageRow] = {}
    for row in found:
        key = rows.usage_key(row)
        total[key] = rules.add_usage(total[key], row) if key in total else row
    return list(total.values())


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
