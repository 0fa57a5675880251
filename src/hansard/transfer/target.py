"""The store that a copy or an import writes to, the report about it, and the import of records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from hansard import rules
from hansard.contract.types import Context, Image, RecordWrite, Row
from hansard.errors import Conflict, ConversationNotFound, Denied
from hansard.model import OnConflict, Problem, Progress, Record, Report
from hansard.store import vector_records
from hansard.store.core import View
from hansard.transfer.format import encode, record_line

_KNOWN_BLOBS = 50_000
_KEEP = timedelta(days=1)


class TransferTarget:
    def __init__(self, view: View, on_conflict: OnConflict, progress: Progress | None, *, verify: bool) -> None:
        self.view = view
        self.backend = view.backend
        self.capabilities = view.backend.capabilities
        self.report = Report()
        # If ids change, the new ones are learned by reading back.
        self.reads_back = verify or self.capabilities.own_ids
        self._prefix = ""
        self._on_conflict = on_conflict
        self._progress = progress
        self._known_blobs: set[str] = set()

    # Reporting

    def share(self, report: Report, prefix: str) -> None:
        """Reports into a report that is shared with others."""
        self.report = report
        self._prefix = prefix

    def warn(self) -> None:
        """Reports at once what this kind of target will not do."""
        if not self.capabilities.keeps:
            self.lose("the target", f"{self.capabilities.name} stores nothing: nothing was stored", verified=False)

    def moved(self) -> None:
        if self._progress is not None:
            self._progress(self.report)

    def conflict(self, where: str, what: str) -> None:
        if self._on_conflict == "error":
            raise Conflict(f"{self._prefix}{where}: {what}")
        self.report.conflicts.append(Problem(self._prefix + where, what))

    def count_conversation(self, *, is_stored: bool) -> None:
        if is_stored:
            self.report.conversations += 1
        else:
            self.report.skipped += 1

    def lose(self, where: str, what: str, *, verified: bool = True) -> None:
        self.report.losses.append(Problem(self._prefix + where, what))
        self.report.verified = self.report.verified and verified

    def admit(self, image: Image) -> None:
        """Refuses other users' conversations through a user's view."""
        user = self.view.user
        if user is not None and image.conversation.user_id != user:
            id = image.conversation.id
            raise Denied(f"conversation {id!r} belongs to another user, and a user's view writes only for its own")

    async def remove(self, id: str) -> None:
        """Removes a conversation that this run created."""
        await self.backend.delete_conversation(self.view.context(), id)

    async def evictions(self) -> tuple[int, int]:
        if not self.capabilities.evicts:
            return 0, 0
        stats = await self.backend.stats(None)
        return stats.evicted_conversations, stats.evicted_messages

    async def note_evictions(self, before: tuple[int, int]) -> None:
        conversations, messages = (now - then for now, then in zip(await self.evictions(), before, strict=True))
        if conversations or messages:
            what = f"{self.capabilities.name} is full, and dropped {conversations} conversations, {messages} messages"
            self.lose("the target", what, verified=False)

    def renamed(self, id: str, old: str, new: str) -> None:
        """Records that the target gave a message an id of its own."""
        self.report.id_map.setdefault(self._prefix + id, {})[old] = new

    # Blobs

    def unknown_blobs(self, rows: Iterable[Row]) -> set[str]:
        """Returns the blobs that the rows refer to and that this run has not stored yet."""
        wanted = {ref.sha256 for row in rows for ref in row.message.blobs}
        return wanted - self._known_blobs

    def sent_blobs(self, digests: Iterable[str]) -> None:
        fresh = set(digests) - self._known_blobs
        self.report.blobs += len(fresh)
        if len(self._known_blobs) > _KNOWN_BLOBS:
            self._known_blobs.clear()
        self._known_blobs |= fresh

    async def put_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Stores blobs whose conversation was refused, for a later one."""
        for sha256, data in blobs.items():
            context = self.view.context()
            await self.backend.put_blob(context, sha256, data, context.now + _KEEP)

    async def missing_blobs(self, digests: Iterable[str]) -> list[str]:
        wanted = list(digests)
        found = await self.backend.get_blobs(self.view.context(), wanted) if wanted else {}
        return [each for each in wanted if hashlib.sha256(found.get(each, b"")).hexdigest() != each]


# Records: stored with their revisions and times, each only if there is none

_TRIES = 3


async def put_records(target: TransferTarget, owner: str | None, records: Sequence[Record]) -> None:
    """Stores records that the target lacks; equal ones are skipped, others are conflicts."""
    if target.view.user is not None and owner != target.view.user:
        raise Denied("these records belong to another user, and a user's view writes only the user's own")
    if not target.capabilities.keeps:
        return
    if not target.capabilities.records:
        target.lose(f"{len(records)} records", f"{target.capabilities.name} cannot store records")
        return
    await _put(Context(target.view.tenant, target.view.clock(), owner), target, records)
    target.moved()


async def _put(context: Context, target: TransferTarget, records: Sequence[Record]) -> None:
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
        # A target with its own embedder may have newer vectors.
        if theirs is not None and (vector_records.is_derived(record) or _text(theirs) == _text(record)):
            target.report.skipped_records += 1
        elif theirs is not None:
            target.conflict(_name(context, record), "the target holds another one")


async def _find(context: Context, target: TransferTarget, records: Sequence[Record]) -> list[Record | None]:
    return await target.backend.get_records(context, [(record.namespace, record.key) for record in records])


async def _write(context: Context, target: TransferTarget, records: list[Record]) -> bool:
    """False if one of them was written since it was read. Removes from `records` what cannot be stored."""
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


async def _drop_orphans(context: Context, target: TransferTarget, records: list[Record]) -> None:
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


async def _verify(context: Context, target: TransferTarget, records: Sequence[Record]) -> None:
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
    return encode(record_line(None, record))


def _name(context: Context, record: Record) -> str:
    place = f"record {record.key!r} in {record.namespace!r}"
    return place if context.user is None else f"{place} of user {context.user!r}"
