"""Operations on the whole store or a whole tenant: sweep, measure, check, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from hansard import rules
from hansard.backends.postgres import index, read, tenant_data
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.engine import PostgresEngine, Work
from hansard.backends.postgres.errors import DRIVER, translate
from hansard.backends.postgres.hosts import direct_hosts
from hansard.backends.postgres.options import PostgresOptions
from hansard.backends.postgres.schema import TABLES
from hansard.backends.postgres.state_cache import stamped_state_of
from hansard.backends.postgres.transaction import PostgresTransaction
from hansard.contract.types import Context, Swept
from hansard.errors import Corrupt
from hansard.model import Problem, Receipt, Stats, to_micros
from hansard.rules import operations

_PAGE = 200
_TENANT_PAGE = 500
_ALL = 1 << 40
_VACUUM_SECONDS = 86_400.0


# Sweeping: bounded steps, each complete in itself


async def sweep(engine: PostgresEngine, context: Context, limit: int) -> Swept:
    """Removes a bounded amount of data that has expired or is no longer needed."""
    now = to_micros(context.now)
    total = Receipt(at=context.now)
    expired = await engine.read(None, lambda link: link.all("expired_conversations", now, limit))
    for tenant, id in expired:
        here = Context(tenant, context.now)
        total += await engine.write(tenant, partial(_drop_expired, context=here, id=id))
    records = await engine.write(None, lambda work: work.link.run("delete_expired_records", now, limit))
    unused = await engine.read(None, lambda link: link.all("unused_blobs", now, limit))
    by_tenant: dict[str, list[str]] = {}
    for tenant, sha256 in unused:
        by_tenant.setdefault(tenant, []).append(sha256)
    for tenant, digests in by_tenant.items():
        drop = partial(tenant_data.drop_blobs, context=context, candidates=digests)
        total += Receipt(blobs=await engine.write(tenant, drop), at=context.now)
    old = to_micros(context.now - rules.TOMBSTONE_LIFE)
    tombstones = await engine.write(None, lambda work: work.link.run("delete_old_tombstones", old))
    total += Receipt(records=records, at=context.now)
    return Swept(receipt=total, tombstones=tombstones, more=limit in (len(expired), records, len(unused)))


async def _drop_expired(work: Work, context: Context, id: str) -> Receipt:
    # It may have been removed or extended since it was found.
    transaction = await PostgresTransaction.begin(work, context, id)
    return await operations.drop_conversation(transaction, if_expired=True)


# Measuring and checking


async def stats(link: PostgresConnection, tenant: str | None) -> Stats:
    days = await link.all("count_by_days", tenant)
    if tenant is None:
        row = await link.one("count_all")
        tenants = len(await link.all("list_tenants"))
    else:
        row = await link.one("count_tenant", tenant)
        tenants = int(bool(row and (days or row[0] or row[1])))
    assert row is not None
    return Stats(
        backend="postgres",
        tenants=tenants,
        conversations=sum(conversations for *_, conversations in days),
        messages=sum(messages * conversations for *_, messages, conversations in days),
        records=row[0],
        blobs=row[1],
        blob_bytes=row[2],
        bytes=row[3] if tenant is None else None,
        unindexed=await index.count_unindexed(link, tenant),
        active=rules.spread(tuple(row) for row in days),
    )


async def check(engine: PostgresEngine, tenant: str | None) -> AsyncIterator[Problem | int]:
    """Checks every conversation: counts, order, branches, bodies, blobs, and its entries in the search index."""
    fault = await engine.read(tenant, index.find_fault)
    strays = None if fault else await engine.read(tenant, partial(index.find_strays, tenant=tenant))
    for found in (fault, strays):
        if found is not None:
            yield found
    for name, sha256 in await engine.read(tenant, lambda link: link.all("damaged_blobs", tenant)):
        yield Problem(name, f"blob {sha256} is damaged: its bytes have another hash")
    after, seen = ("", ""), 0
    while True:
        page = await engine.read(tenant, partial(_page_after, tenant=tenant, after=after))
        for name, id in page:
            look = partial(_check, tenant=name, id=id, search=fault is None)
            for problem in await engine.read(name, look, snapshot=True):
                yield problem
        if not page:
            return
        after, seen = page[-1], seen + len(page)
        yield seen


async def _page_after(link: PostgresConnection, tenant: str | None, after: tuple[str, str]) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in await link.all("conversations_after", tenant, *after, _PAGE)]


async def _check(link: PostgresConnection, tenant: str, id: str, *, search: bool) -> list[Problem]:
    where = f"{tenant}/{id}"
    found = await link.all("find_heads", tenant, [id])
    if not found:
        return []  # deleted since the page was read
    try:
        entry = stamped_state_of(found[0], found[0][-1], tenant)
        stored = await read.rows_of(link, tenant, entry, 0, _ALL, _ALL)
    except Corrupt as error:
        return [Problem(where, str(error))]
    problems = list(rules.audit(where, entry.state, [(row.segment, row.message) for row in stored]))
    digests = sorted({ref.sha256 for row in stored for ref in row.message.blobs})
    lost = await link.all("missing_blobs", tenant, digests) if digests else []
    if search:
        owner = entry.state.conversation.user_id
        problems += await index.check_conversation(link, tenant, id, owner, stored)
    return [*problems, *(Problem(where, f"blob {sha256} is missing") for (sha256,) in lost)]


# A whole tenant


async def delete_tenant(engine: PostgresEngine, context: Context) -> Receipt:
    receipt = await engine.write(context.tenant, partial(_delete_tenant, context=context))
    engine.states.drop_tenant(context.tenant)
    return receipt


async def _delete_tenant(work: Work, context: Context) -> Receipt:
    """Deletes conversations page by page: only locked ones, so that one created meanwhile stays complete.

    It never returns to earlier pages: others lock in the same order, and new conversations could keep it busy forever.
    """
    link, tenant = work.link, work.tenant
    total = Receipt(at=context.now)
    after, more = "", True
    while more:
        page = [id for (id,) in await link.all("lock_conversations_after", tenant, after, _TENANT_PAGE)]
        more = len(page) == _TENANT_PAGE
        after = page[-1] if page else after
        await link.run("delete_tenant_blob_uses", tenant, page)
        total += Receipt(
            messages=await link.run("delete_tenant_messages", tenant, page),
            branches=await link.run("delete_tenant_branches", tenant, page),
            summaries=await link.run("delete_tenant_summaries", tenant, page),
            conversations=await link.run("delete_tenant_conversations", tenant, page),
            at=context.now,
        )
        work.changed.update(dict.fromkeys(page))
    records = await link.run("delete_tenant_records", tenant)
    digests = [sha256 for (sha256,) in await link.all("lock_tenant_blobs", tenant)]
    blobs = await link.run("drop_blobs", tenant, digests, _ALL << 20)
    usage_rows = await link.run("delete_tenant_usage", tenant)
    await link.run("delete_tenant_tombstones", tenant)
    return total + Receipt(records=records, blobs=blobs, usage_rows=usage_rows, at=context.now)


async def vacuum(options: PostgresOptions) -> None:
    """Runs VACUUM on a separate connection: it cannot run inside a transaction, and may take long."""
    try:
        link = await direct_hosts(options).connect({})
        try:
            await link.script("SET statement_timeout = 0")
            for table in (*TABLES, "search_state"):
                await link.connection.execute(link.in_schema(f"VACUUM hansard.{table}"), timeout=_VACUUM_SECONDS)
        finally:
            await link.close()
    except DRIVER as error:
        raise translate(error, options.where) from error
