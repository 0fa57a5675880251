"""The meaning of record writes: revisions, expiry and visibility."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from hansard import codec
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordWrite
from hansard.errors import Conflict
from hansard.model import Record


def plan_record(context: Context, write: RecordWrite, current: Record | None) -> Record | None:
    """Returns the record after a write; None if it is deleted. `current` is None if it is missing or has expired."""
    actual = current.revision if current else 0
    if write.expected_revision is not None and write.expected_revision != actual:
        raise Conflict(
            f"record {write.key!r} in {write.namespace!r} is at revision {actual}, not {write.expected_revision}",
            expected=write.expected_revision,
            actual=actual,
        )
    if write.delete:
        return None
    if write.exact is not None:
        return write.exact
    return Record(
        namespace=write.namespace,
        key=write.key,
        value=write.value,
        revision=actual + 1,
        created_at=current.created_at if current else context.now,
        updated_at=context.now,
        expires_at=write.expires_at,
        conversation_id=write.conversation_id,
    )


def plan_records(
    context: Context, writes: Iterable[RecordWrite], current: Mapping[RecordKey, Record]
) -> tuple[list[RecordChange], list[Record | None]]:
    """Plans all writes of one call: the records to store by key, and the result of each write.

    `current` holds the records that exist and have not expired. A later write builds on an earlier one of the same key.
    """
    planned: dict[RecordKey, Record | None] = {}
    results: list[Record | None] = []
    for write in writes:
        key = (write.namespace, write.key)
        before = planned[key] if key in planned else current.get(key)
        planned[key] = plan_record(context, write, before)
        results.append(before if write.delete else planned[key])
    revisions = {key: record.revision for key, record in current.items()}
    return [RecordChange(key, revisions.get(key, 0), record) for key, record in planned.items()], results


def unwritten(writes: Sequence[RecordWrite], current: Mapping[RecordKey, Record]) -> list[RecordWrite]:
    """Returns the writes without those whose record already has the result: for a repeated call."""
    last = {(write.namespace, write.key): write for write in writes}
    done = {key for key, write in last.items() if _is_written(write, current.get(key))}
    return [write for write in writes if (write.namespace, write.key) not in done]


def _is_written(write: RecordWrite, current: Record | None) -> bool:
    if write.delete or current is None:
        return write.delete and current is None
    if (current.expires_at, current.conversation_id) != (write.expires_at, write.conversation_id):
        return False
    if isinstance(write.value, bytes) or isinstance(current.value, bytes):
        return type(write.value) is type(current.value) and bool(write.value == current.value)
    return codec.encode(write.value) == codec.encode(current.value)


def is_alive(record: Record, now: datetime) -> bool:
    return record.expires_at is None or record.expires_at > now
