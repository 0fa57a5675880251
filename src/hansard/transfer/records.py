"""Records on their way into a target: stored with their revisions and times, each only where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from hansard import rules
from hansard.contract.types import Context, RecordWrite
from hansard.errors import Conflict, ConversationNotFound, Denied
from hansard.model import Record
from hansard.store import vectoring
from hansard.transfer import lines
from hansard.transfer.target import Target

_TRIES = 3


async def put(target: Target, owner: str | None, records: Sequence[Record]) -> None:
    """Stores those that the target lacks; those that are the same are passed over, others are conflicts."""
    if target.view.user is not None and owner != target.view.user:
        raise Denied("these records lie in another space than the user's, and a user's view writes only there")
    if not target.capabilities.keeps:
        return
    if not target.capabilities.records:
        target.lose(f"{len(records)} records", f"{target.capabilities.name} keeps no records")
        return
    await _put(Context(target.view.tenant, target.view.clock(), owner), target, records)
    target.moved()


async def _put(context: Context, target: Target, records: Sequence[Record]) -> None:
    alive = [record for record in records if rules.is_alive(record, context.now)]
    for _ in range(_TRIES):
        there = await _find(context, target, alive)
        fresh = [record for record, theirs in zip(alive, there, strict=True) if theirs is None]
        if await _write(context, target, fresh):
            break
    else:
        raise Conflict("records of the target are changing while they are compared: try again")
    await _verify(context, target, fresh)
    for record, theirs in zip(alive, there, strict=True):
        # A target that embeds by itself may be further.
        if theirs is not None and (vectoring.is_derived(record) or _text(theirs) == _text(record)):
            target.report.skipped_records += 1
        elif theirs is not None:
            target.conflict(_name(context, record), "the target holds another one")


async def _find(context: Context, target: Target, records: Sequence[Record]) -> list[Record | None]:
    return await target.backend.get_records(context, [(record.namespace, record.key) for record in records])


async def _write(context: Context, target: Target, records: list[Record]) -> bool:
    """False when somebody wrote one of them since it was looked for. Drops from `records` what cannot be stored."""
    try:
        if records:
            await target.backend.write_records(context, [_as_write(record) for record in records])
    except Conflict:
        return False
    except ConversationNotFound:
        await _drop_orphans(context, target, records)
        return await _write(context, target, records)
    target.report.records += len(records)
    return True


async def _drop_orphans(context: Context, target: Target, records: list[Record]) -> None:
    orphans = [
        record
        for record in records
        if record.conversation_id is not None
        and await target.backend.get_conversation(context, record.conversation_id) is None
    ]
    if not orphans:
        raise Conflict("conversations of the target are being deleted while records are copied: try again")
    for record in orphans:
        records.remove(record)
        target.lose(_name(context, record), f"its conversation {record.conversation_id!r} is not in the target")


async def _verify(context: Context, target: Target, records: Sequence[Record]) -> None:
    for record, theirs in zip(records, await _find(context, target, records), strict=True):
        if theirs is None or _text(theirs) != _text(record):
            target.lose(_name(context, record), "what was stored differs", verified=False)


def _as_write(record: Record) -> RecordWrite:
    return RecordWrite(
        record.namespace,
        record.key,
        record.value,
        expected_revision=0,
        expires_at=record.expires_at,
        conversation_id=record.conversation_id,
        exact=record,
    )


def _text(record: Record) -> bytes:
    return lines.encode(lines.record_line(None, record))


def _name(context: Context, record: Record) -> str:
    place = f"record {record.key!r} in {record.namespace!r}"
    return place if context.user is None else f"{place} of user {context.user!r}"
