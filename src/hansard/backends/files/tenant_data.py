"""Data outside the messages: records, participations, usage."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hansard import rules
from hansard.backends.files import names, tenant_log
from hansard.backends.files.entries import JournalEntry
from hansard.backends.files.records import key_of
from hansard.backends.files.tenant import Tenant
from hansard.backends.files.writer import ConversationWriter
from hansard.backends.shared.lists import select_usage
from hansard.contract.types import Context, Participation, RecordQuery, RecordWrite
from hansard.model import Receipt, Record, UsageRow

# --- records ----------------------------------------------------------------------------------------------------------


def get_records(tenant: Tenant, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
    space = tenant.records(context.user or "")
    places = [key_of(*key) for key in keys]
    return tenant.journals.retry_while_moving(lambda: space.get(context, places, tenant.conversation_exists(context)))


def scan_records(tenant: Tenant, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
    space = tenant.records(context.user or "")
    return tenant.journals.retry_while_moving(lambda: space.scan(context, query, tenant.conversation_exists(context)))


def write_records(tenant: Tenant, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
    return tenant.journals.retry_while_moving(lambda: _write_records(tenant, context, writes))


def _write_records(tenant: Tenant, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
    """Writes records while holding the locks of their conversations, so that none of these is deleted meanwhile."""
    owner = context.user or ""
    ids = {write.conversation_id for write in writes if write.conversation_id is not None and not write.delete}
    with contextlib.ExitStack() as stack:
        stack.enter_context(tenant.lock_shared(create=True))
        tenant.log.create_if_missing()
        # Lock in one order, to avoid deadlocks.
        ordered = sorted(ids, key=names.escape)
        writers = [_require(stack.enter_context(tenant.writing(id)), context, id) for id in ordered]
        space = tenant.records(owner)
        journal = stack.enter_context(space.writing())
        line, results = space.plan(journal, context, writes, tenant.conversation_exists(context))
        for writer in writers:
            if owner not in writer.state.rest.owners:
                writer.commit(JournalEntry(what="records", at=context.now, owners=[owner]))
        if line.records or line.deleted:
            space.commit(journal, line)
        return results


def _require(writer: ConversationWriter | None, context: Context, id: str) -> ConversationWriter:
    journal = writer.journal if writer else None
    if writer is None or journal is None or not rules.is_visible(journal.conversation_state.conversation, context):
        raise rules.not_found(id)
    return writer


def record_owners(tenant: Tenant) -> list[str]:
    return [space.owner for space in tenant.spaces() if space.owner and space.count()]


# --- users ------------------------------------------------------------------------------------------------------------


def participations(tenant: Tenant, context: Context, participant_id: str, limit: int) -> list[Participation]:
    return tenant.catalog().participations(context, participant_id, limit)


def erase_user_data(tenant: Tenant, context: Context, user_id: str) -> Receipt:
    with tenant.lock_shared() as exists:
        return _erase(tenant, context, user_id) if exists else Receipt(at=context.now)


def _erase(tenant: Tenant, context: Context, user_id: str) -> Receipt:
    records = tenant.records(user_id).erase()
    rows = [key for key in _usage(tenant) if key[1] == user_id]
    found = tenant.catalog().usage()
    ids = [id for id, _, usage in found if any(row.user_id == user_id for row in usage)]
    for id in ids:
        with tenant.writing(id) as writer:
            if writer is not None and writer.journal is not None:
                writer.commit(JournalEntry(what="erase", at=context.now, erased=user_id), whole=True)
    tenant.log.erase(user_id)
    # The tenant's records that belonged to the user's conversations and messages, including vectors.
    tenant.records("").compact_if_wasteful()
    tenant.index.scrub(whole=True)
    return Receipt(records=records, usage_rows=len(rows), at=context.now)


# --- usage ------------------------------------------------------------------------------------------------------------


def _usage(tenant: Tenant) -> tenant_log.UsageRows:
    """Returns the usage rows of existing and deleted conversations."""
    # In this order: usage of a conversation that is deleted in between is in both, and is counted once.
    found = tenant.catalog().usage()
    rows, taken = tenant.log.usage()
    for _, journal, usage in found:
        if journal not in taken:
            tenant_log.add_usage_rows(rows, usage)
    return rows


def count_usage(tenant: Tenant) -> int:
    return len(_usage(tenant))


def usage(tenant: Tenant, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
    return select_usage(_usage(tenant).values(), context, since, until)
