"""Making conversations, appending to them, changing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from hansard import codec, rules
from hansard.backends.redis import coding, saving
from hansard.backends.redis.batch import Batch
from hansard.backends.redis.coding import Entry
from hansard.backends.redis.heads import Tomb
from hansard.backends.redis.writer import Duplicate, Write, Writer, needed, visible
from hansard.backends.values import own_conversation
from hansard.contract.types import Append, Context, ConversationChange, Draft, Head, Restore, RestoredRow
from hansard.errors import Conflict
from hansard.model import NOT_YET, Appended, Conversation, Message, Receipt, from_micros

_HOPEFUL = 10_000
"""Messages of a batch up to which the script checks each id. More of them would leave no room for what they bring."""


async def make(writer: Writer, context: Context, id: str, found: Entry | Tomb) -> Batch:
    """A batch that may store a new conversation where there is none, or where one has expired."""
    batch = writer.begin(context, id, found)
    if isinstance(found, Entry):
        expires = found.head.conversation.expires_at
        if expires is None or expires > context.now:
            # Behind the wall of a user's view: it must look as if it were not there.
            raise rules.not_found(id)
        await drop(writer, context, batch, found, bury=False)
    return batch


async def drop(writer: Writer, context: Context, batch: Batch, entry: Entry, *, bury: bool) -> Receipt:
    """Removes a conversation with everything that belongs to it; what goes elsewhere is counted by the commit."""
    asks = [("HKEYS", "blobs"), ("SMEMBERS", "records"), ("SMEMBERS", "participants"), ("LLEN", "summaries")]
    blobs, links, users, summaries = await writer.look(context, batch.id, entry, *asks)
    parts: dict[str, list[Any]] = {
        "blobs": [each.decode() for each in blobs],
        "records": [_owner_and_name(each) for each in links],
        "participants": [each.decode() for each in users],
    }
    saving.remove_everything(context, batch, entry, parts, bury=bury)
    return Receipt(
        conversations=1,
        messages=entry.head.conversation.message_count,
        branches=len(entry.head.lanes),
        summaries=summaries,
        at=context.now,
    )


def linked(owner: str, name: bytes) -> bytes:
    """A member of a conversation's set of records: whose record, and its name."""
    return codec.pack_namespace((owner,)) + name


def _owner_and_name(member: bytes) -> tuple[str, bytes]:
    # The owner ends at the first NUL that is not an escaped one; a name begins with a byte of 0 or 1.
    at = member.index(b"\0")
    while member[at + 1 : at + 2] == b"\xff":
        at = member.index(b"\0", at + 1)
    (owner,) = codec.unpack_namespace(member[: at + 1])
    return owner, member[at + 1 :]


# Conversations


async def create_conversation(writer: Writer, context: Context, given: Conversation) -> Conversation:
    async def plan(found: Entry | Tomb) -> Write[Conversation]:
        if visible(found, context) is not None:
            raise Conflict(f"conversation {given.id!r} exists already")
        batch = await make(writer, context, given.id, found)
        entry = saving.save(batch, None, rules.created(context, given, 1))
        return Write(batch, entry, lambda _: own_conversation(entry.head.conversation))

    return await writer.change(context, given.id, plan)


async def update_conversation(writer: Writer, context: Context, id: str, change: ConversationChange) -> Conversation:
    async def plan(found: Entry | Tomb) -> Write[Conversation]:
        entry = needed(found, context, id)
        batch = writer.begin(context, id, entry)
        after = saving.save(batch, entry, rules.plan_change(context, entry.head, change))
        return Write(batch, after, lambda _: own_conversation(after.head.conversation))

    return await writer.change(context, id, plan)


async def delete_conversation(
    writer: Writer, context: Context, id: str, expected_version: int | None = None
) -> Receipt:
    async def plan(found: Entry | Tomb) -> Write[Receipt]:
        entry = visible(found, context)
        if entry is None:
            return Write(None, None, lambda _: Receipt(at=context.now))
        rules.check_version(entry.head.conversation, expected_version)
        return await dropping(writer, context, id, entry, bury=True)

    return await writer.change(context, id, plan)


async def dropping(writer: Writer, context: Context, id: str, entry: Entry, *, bury: bool) -> Write[Receipt]:
    batch = writer.begin(context, id, entry)
    receipt = await drop(writer, context, batch, entry, bury=bury)
    return Write(batch, None, lambda gone: structs.replace(receipt, blobs=gone.blobs, records=gone.records))


# Appending


async def append(writer: Writer, context: Context, id: str, append: Append) -> Appended:
    """First in the hope that all is new and nothing was deleted, which the script checks; else with a look."""

    async def hopeful(found: Entry | Tomb) -> Write[Appended]:
        write = await _planned(writer, context, id, append, found, {})
        if write.batch is not None:
            _hope(context, write.batch, append, found)
        return write

    async def careful(found: Entry | Tomb) -> Write[Appended]:
        entry = visible(found, context)
        given = [draft.message.id for draft in append.drafts if draft.given_id]
        there = await find(writer, context, entry, given) if entry else []
        stored = {message.id: message for _, message in there}
        if not append.revive:
            new = [draft for draft in append.drafts if draft.message.id not in stored]
            head = entry.head if entry else _new_head(context, id, append)
            await refuse_deleted(writer, context, found, head, new)
        return await _planned(writer, context, id, append, found, stored)

    if len(append.drafts) > _HOPEFUL:
        return await writer.change(context, id, careful)
    try:
        return await writer.change(context, id, hopeful, hold=False)
    except (Duplicate, Conflict):
        # A retry of what is stored may look like a conflict: only who knows what is stored can tell.
        return await writer.change(context, id, careful)


def _hope(context: Context, batch: Batch, append: Append, found: Entry | Tomb) -> None:
    """Checks for the script: that ids are new, and that nothing says it was deleted."""
    given = [draft.message.id for draft in append.drafts if draft.given_id]
    if isinstance(found, Entry):
        for id in given:
            batch.check("ids", id, "")
    if append.revive:
        return
    if isinstance(found, Entry) and found.head.buried:
        for id in given:
            batch.check("graves", codec.digest(batch.id, id), "")
    if any(draft.message.created_at is not NOT_YET for draft in append.drafts):
        batch.check("graves", rules.grave(context, batch.id), "")


async def _planned(
    writer: Writer, context: Context, id: str, append: Append, found: Entry | Tomb, stored: dict[str, Message]
) -> Write[Appended]:
    entry = visible(found, context)
    head = entry.head if entry else _new_head(context, id, append)
    plan = rules.plan_append(context, head, append, stored)
    result = Appended(plan.result, plan.head.conversation.version, len(plan.fresh), entry is None)
    if plan.head is head:
        return Write(None, entry, lambda _: result)
    batch = writer.begin(context, id, entry) if entry else await make(writer, context, id, found)
    if plan.fresh:
        saving.keep_blobs(batch, append.blobs)
        add(batch, plan.head, plan.lane.line, plan.fresh, count=append.count_usage)
    after = saving.save(batch, entry, plan.head, max((draft.size for _, draft in plan.fresh), default=0))
    return Write(batch, after, lambda _: result)


def _new_head(context: Context, id: str, append: Append) -> Head:
    if append.new is None:
        raise rules.not_found(id)
    return rules.new_head(context, id, append.new, 1)


def add(batch: Batch, head: Head, line: int, fresh: Iterable[tuple[Message, Draft]], *, count: bool = True) -> None:
    """New messages on a line, with their blobs and usage."""
    placed = coding.placed(fresh)
    saving.insert(batch, line, placed)
    messages = [message for message, _ in placed]
    saving.use_blobs(batch, messages)
    if count:
        saving.count_usage(batch, head.conversation, ((message, None) for message in messages))


async def find(writer: Writer, context: Context, entry: Entry, ids: list[str]) -> list[tuple[int, Message]]:
    """Those messages that exist, with their lines, in the order asked for."""
    id = entry.head.conversation.id
    found: list[tuple[int, Message]] = []
    for start in range(0, len(ids), 500):
        (answer,) = await writer.look(context, id, entry, ("find", "", *ids[start : start + 500]))
        found += found_of(answer, id)
    return found


def found_of(answer: list[bytes | None], id: str) -> list[tuple[int, Message]]:
    """From the answer of `find`: see scripts/read.lua."""
    pairs = zip(answer[::2], answer[1::2], strict=True)
    return [
        (int(place.split()[0]), coding.message_from(coding.row_of(data, id), id))
        for place, data in pairs
        if place is not None and data is not None
    ]


async def refuse_deleted(
    writer: Writer, context: Context, found: Entry | Tomb, head: Head, drafts: Sequence[Draft]
) -> None:
    """See `rules.refuse_deleted`. `drafts` are those that are not stored."""
    id = head.conversation.id
    digests = [rules.grave(context, id)]
    if head.buried:
        digests += [codec.digest(id, draft.message.id) for draft in drafts if draft.given_id]
    times = await writer.look_up(context, id, found, "graves", digests)
    graves = {digest: from_micros(int(at)) for digest, at in times.items()}
    rules.refuse_deleted(context, head, drafts, graves.get)


# Copying


async def restore(writer: Writer, context: Context, restore: Restore) -> int:
    id = restore.image.conversation.id

    async def plan(found: Entry | Tomb) -> Write[int]:
        entry = visible(found, context)
        head = entry.head if entry else rules.restoring(restore.image, restore.image.lanes)
        rows = [row for row in restore.rows if row.draft.message.seq > head.seq]
        ids = [row.draft.message.id for row in rows]
        stored = await writer.look_up(context, id, entry, "ids", ids) if entry else {}
        after_head = rules.restored(head, restore, rows, stored)
        batch = writer.begin(context, id, found) if entry else await make(writer, context, id, found)
        saving.keep_blobs(batch, restore.blobs)
        after_head = structs.replace(after_head, conversation=own_conversation(after_head.conversation))
        for line in dict.fromkeys(row.line for row in rows):
            add(batch, head, line, _on(line, rows))
        after = saving.save(batch, entry, after_head, max((row.draft.size for row in rows), default=0))
        return Write(batch, after, lambda _: after.head.seq)

    return await writer.change(context, id, plan)


def _on(line: int, rows: Iterable[RestoredRow]) -> list[tuple[Message, Draft]]:
    return [(row.draft.message, row.draft) for row in rows if row.line == line]
