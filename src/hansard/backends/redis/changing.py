"""Changing and removing messages, branches and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from hansard import codec, rules
from hansard.backends.redis import coding, documents, saving
from hansard.backends.redis.batch import Batch
from hansard.backends.redis.coding import Entry, piece_of
from hansard.backends.redis.heads import Ask, Tomb
from hansard.backends.redis.saving import lines_of
from hansard.backends.redis.writer import Gone, Write, Writer, needed
from hansard.backends.redis.writing import find, refuse_deleted
from hansard.contract.types import Context, Draft, Head, Lane, MessageChange, NewBranch, Remove, Removed, Replace
from hansard.model import Appended, Branch, Message, Receipt, Summary, from_micros

Place = tuple[int, int]
"""The line and seq of a message."""


class Edit:
    """A change of one conversation that is being planned: what it looks at is all of the same moment."""

    def __init__(self, writer: Writer, context: Context, id: str, found: Entry | Tomb) -> None:
        self.entry = needed(found, context, id)
        self.head = self.entry.head
        self.context = context
        self.id = id
        self.writer = writer
        self.batch: Batch = writer.begin(context, id, self.entry)

    async def look(self, *asks: Ask) -> list[Any]:
        return await self.writer.look(self.context, self.id, self.entry, *asks)

    def fresh_line(self) -> int:
        return 1 + max(lines_of(self.head))

    async def between(self, parts: Sequence[tuple[int, int, int]]) -> list[tuple[int, Message]]:
        """The messages on these lines after one seq and up to another, with their lines."""
        found: list[tuple[int, Message]] = []
        step = piece_of(self.entry)
        if self.head.conversation.message_count <= step:
            asks = [("ZRANGEBYSCORE", f"messages:{line}", f"({low}", high) for line, low, high in parts]
            for (line, _, _), data in zip(parts, await self.look(*asks), strict=True):
                found += [(line, message) for message in coding.messages_of(data, self.id)]
            return found
        for line, low, high in parts:
            after, more = low, True
            while more:
                ask = ("ZRANGEBYSCORE", f"messages:{line}", f"({after}", high, "LIMIT", 0, step)
                (data,) = await self.look(ask)
                found += [(line, message) for message in coding.messages_of(data, self.id)]
                after, more = found[-1][1].seq if data else after, bool(data)
        return found

    async def beyond(self, doomed: Iterable[Place]) -> list[tuple[int, Message]]:
        """The messages on these lines after these seqs."""
        return await self.between([(line, seq, rules.NO_END) for line, seq in doomed])

    async def read(self, lane: Lane) -> list[tuple[int, Message]]:
        """All that a branch reads, with the line of each."""
        return await self.between([(line, 0, upto) for line, upto in rules.segments(lane)])

    async def newest(self, lane: Lane, count: int) -> list[tuple[int, Message]]:
        """The last messages of a branch, newest first."""
        found: list[tuple[int, Message]] = []
        for line, upto in reversed(rules.segments(lane)):
            asks = ("ZREVRANGEBYSCORE", f"messages:{line}", upto, "-inf", "LIMIT", 0, count - len(found))
            (answer,) = await self.look(asks)
            found += [(line, message) for message in coding.messages_of(answer, self.id)]
            if len(found) == count:
                break
        return found

    async def last_time(self, head: Head, gone: Iterable[Place]) -> datetime | None:
        """The time of the last message on any line of `head` when these are gone."""
        without: dict[int, set[int]] = {}
        for line, seq in gone:
            without.setdefault(line, set()).add(seq)
        lines = sorted(lines_of(head))
        asks = [("ZREVRANGE", f"messages:{line}", 0, len(without.get(line, ()))) for line in lines]
        last: coding.StoredMessage | None = None
        for line, answer in zip(lines, await self.look(*asks), strict=True):
            rows = (coding.row_of(data, self.id) for data in answer)
            row = next((row for row in rows if row.seq not in without.get(line, ())), None)
            last = row if row and (last is None or row.seq > last.seq) else last
        return from_micros(last.created_at) if last else None

    async def remove(self, gone: Sequence[tuple[int, Message]], runs: Iterable[Place] | None = None) -> None:
        """Messages, by their lines, with the blobs that only they refer to. `runs` says the same in fewer words."""
        for line, seq in runs or ():
            self.batch.do("ZREMRANGEBYSCORE", f"messages:{line}", f"({seq}", "+inf")
        for line, message in gone if runs is None else ():
            self.batch.do("ZREMRANGEBYSCORE", f"messages:{line}", message.seq, message.seq)
        for line, message in gone:
            if message.pinned:
                self.batch.do("ZREM", f"pinned:{line}", message.seq)
        self.batch.do_many("HDEL", "ids", (message.id for _, message in gone))
        await self.release(saving.references(message for _, message in gone))

    async def release(self, lost: Mapping[str, int]) -> None:
        if lost:
            found = await self.writer.look_up(self.context, self.id, self.entry, "blobs", sorted(lost))
            counts = {sha256: int(found.get(sha256, 0)) for sha256 in lost}
            saving.release_blobs(self.context, self.batch, lost, counts)

    # Summaries

    async def summaries(self) -> list[Summary]:
        (found,) = await self.look(("LRANGE", "summaries", 0, -1))
        return [documents.summary_of(data, self.id) for data in found]

    async def forget_summaries(self, gone: Iterable[Place], branch: str | None = None) -> int:
        """Drops what the loss of messages, or of a branch, takes along; gives how many that were."""
        found = await self.summaries()
        kept = [each for each in rules.surviving(self.head, found, gone) if each.branch != branch]
        lost = len(found) - len(kept)
        if lost:
            self.batch.do("DEL", "summaries")
            self.batch.do_many("RPUSH", "summaries", (documents.stored_summary(each) for each in kept))
            self.head = with_summary(self.head, kept[-1].text if kept else None)
        return lost

    def save(self, head: Head, largest: int = 0) -> Entry:
        return saving.save(self.batch, self.entry, head, largest)


def with_summary(head: Head, summary: str | None) -> Head:
    if head.conversation.summary == summary:
        return head
    return structs.replace(head, conversation=structs.replace(head.conversation, summary=summary))


class _Shrunk(Struct):
    after: Entry
    receipt: Receipt


# Messages


async def update_message(writer: Writer, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
    async def plan(found: Entry | Tomb) -> Write[Message]:
        edit = Edit(writer, context, id, found)
        there = await find(writer, context, edit.entry, [message_id])
        if not there:
            raise rules.no_message(id, message_id)
        ((line, before),) = there
        head, message = rules.plan_update(context, edit.head, before, change)
        body = change.draft.body if change.draft else _body(before)
        saving.keep_blobs(edit.batch, change.blobs)
        saving.use_blobs(edit.batch, [message])
        edit.batch.do("ZREMRANGEBYSCORE", f"messages:{line}", message.seq, message.seq)
        edit.batch.do("ZADD", f"messages:{line}", message.seq, coding.message_of(message, body))
        if message.pinned != before.pinned:
            saving.pin(edit.batch, line, message)
        await edit.release(saving.references([before]))
        saving.count_usage(edit.batch, head.conversation, [(message, before)])
        after = edit.save(head, change.draft.size if change.draft else 0)
        return Write(edit.batch, after, lambda _: message)

    return await writer.change(context, id, plan)


def _body(message: Message) -> str:
    return message.content if message.format == "text" else codec.encode(message.content)


async def remove_messages(writer: Writer, context: Context, id: str, remove: Remove) -> Removed:
    async def plan(found: Entry | Tomb) -> Write[Removed]:
        edit = Edit(writer, context, id, found)
        rules.check_version(edit.head.conversation, remove.expected_version)
        return await {"ids": _remove_ids, "last": _pop, "all": _clear}[remove.what](edit, remove)

    return await writer.change(context, id, plan)


def _nothing(edit: Edit) -> Write[Removed]:
    nothing = Removed([], Receipt(at=edit.context.now), edit.head.conversation.version)
    return Write(None, edit.entry, lambda _: nothing)


async def _remove_ids(edit: Edit, remove: Remove) -> Write[Removed]:
    gone = await find(edit.writer, edit.context, edit.entry, list(dict.fromkeys(remove.ids)))
    if not gone:
        return _nothing(edit)
    places = [(line, message.seq) for line, message in gone]
    await edit.remove(gone)
    saving.bury_messages(edit.context, edit.batch, (message.id for _, message in gone))
    summaries = await edit.forget_summaries(places)
    head = rules.without(edit.context, edit.head, places, await edit.last_time(edit.head, places))
    after = edit.save(structs.replace(head, buried=True))
    receipt = Receipt(messages=len(gone), summaries=summaries, at=edit.context.now)
    return _removed(edit, after, [message for _, message in gone], receipt)


def _removed(
    edit: Edit, after: Entry, messages: list[Message], receipt: Receipt, blobs: Mapping[str, bytes] | None = None
) -> Write[Removed]:
    version = after.head.conversation.version

    def answer(gone: Gone) -> Removed:
        return Removed(messages, structs.replace(receipt, blobs=gone.blobs), version, blobs or {})

    return Write(edit.batch, after, answer)


async def _pop(edit: Edit, remove: Remove) -> Write[Removed]:
    newest = await edit.newest(edit.head.lane(remove.branch), 2)
    if not newest:
        return _nothing(edit)
    places = [(line, message.seq) for line, message in newest]
    before = places[1] if len(places) > 1 else None
    after, doomed = rules.plan_pop(edit.head, remove, places[0], before, edit.fresh_line)
    popped = newest[0][1]
    blobs = await blobs_of(edit, popped)
    shrunk = await _shrink(edit, after, doomed)
    return _removed(edit, shrunk.after, [popped], shrunk.receipt, blobs)


async def blobs_of(edit: Edit, message: Message) -> dict[str, bytes]:
    keys, tenant = edit.writer.keys, edit.context.tenant
    found = {}
    for sha256 in {ref.sha256 for ref in message.blobs}:
        key = f"{keys.bucket(tenant, sha256)}:data:{sha256}"
        data = await edit.writer.nodes.ask(key, ("GET", key), write=True)
        if data is not None:
            found[sha256] = data
    return found


async def _shrink(edit: Edit, after: Head, doomed: list[Place], branch: str | None = None) -> _Shrunk:
    """Removes what no branch reads any longer, and saves the head."""
    gone = await edit.beyond(doomed)
    places = [(line, message.seq) for line, message in gone]
    await edit.remove(gone, doomed)
    summaries = await edit.forget_summaries(places, branch)
    after = with_summary(after, edit.head.conversation.summary)
    after = rules.shrunk(edit.context, after, len(gone), await edit.last_time(after, places))
    receipt = Receipt(messages=len(gone), branches=int(branch is not None), summaries=summaries, at=edit.context.now)
    return _Shrunk(edit.save(after), receipt)


async def _clear(edit: Edit, remove: Remove) -> Write[Removed]:
    head = edit.head
    blobs, summaries = await edit.look(("HKEYS", "blobs"), ("LLEN", "summaries"))
    for line in sorted(lines_of(head)):
        edit.batch.do("UNLINK", f"messages:{line}")
        edit.batch.do("UNLINK", f"pinned:{line}")
    for part in ("ids", "summaries", "blobs"):
        edit.batch.do("UNLINK", part)
    for sha256 in blobs:
        saving.release(edit.context, edit.batch, sha256.decode())
    after = edit.save(rules.cleared(edit.context, head))
    receipt = Receipt(
        messages=head.conversation.message_count,
        branches=len(head.lanes) - 1,
        summaries=summaries,
        at=edit.context.now,
    )
    return _removed(edit, after, [], receipt)


async def replace_messages(writer: Writer, context: Context, id: str, replace: Replace) -> Appended:
    async def plan(found: Entry | Tomb) -> Write[Appended]:
        edit = Edit(writer, context, id, found)
        current = await edit.read(edit.head.lane(replace.branch))
        planned = rules.plan_replace(context, edit.head, replace, current, edit.fresh_line)
        gone = await edit.beyond(planned.doomed)
        doomed = {message.id for _, message in gone}
        new = [draft for _, draft in planned.fresh if draft.message.id not in doomed]
        await _refuse_taken(edit, new)
        if not replace.revive:
            await refuse_deleted(writer, context, edit.entry, edit.head, new)
        rules.check_quota(edit.head.conversation, len(planned.fresh) - len(gone), replace.max_messages)
        places = [(line, message.seq) for line, message in gone]
        if gone:
            await edit.forget_summaries(places)
        saving.keep_blobs(edit.batch, replace.blobs)
        saving.use_blobs(edit.batch, (message for message, _ in planned.fresh))
        await edit.remove(gone, planned.doomed)
        saving.insert(edit.batch, planned.lane.line, coding.placed(planned.fresh))
        newest = await edit.last_time(planned.head, places)
        if planned.fresh:
            newest = planned.fresh[-1][0].created_at
        head = with_summary(rules.replaced(context, planned, len(gone), newest), edit.head.conversation.summary)
        saving.add_usage(edit.batch, (row for _, row in planned.usage))
        after = edit.save(head, max((draft.size for _, draft in planned.fresh), default=0))
        result = [*planned.kept, *(message for message, _ in planned.fresh)]
        appended = Appended(result, head.conversation.version, len(planned.fresh))
        return Write(edit.batch, after, lambda _: appended)

    return await writer.change(context, id, plan)


async def _refuse_taken(edit: Edit, new: Sequence[Draft]) -> None:
    ids = [draft.message.id for draft in new if draft.given_id]
    rules.used_elsewhere(message.id for _, message in await find(edit.writer, edit.context, edit.entry, ids))


# Branches and summaries


async def create_branch(writer: Writer, context: Context, id: str, new: NewBranch) -> Branch:
    async def plan(found: Entry | Tomb) -> Write[Branch]:
        edit = Edit(writer, context, id, found)
        head, lane = rules.plan_branch(context, edit.head, new, await _cut(edit, new), edit.fresh_line())
        after = edit.save(head)
        return Write(edit.batch, after, lambda _: rules.as_branch(lane, head.conversation))

    return await writer.change(context, id, plan)


async def _cut(edit: Edit, new: NewBranch) -> rules.Cut:
    """Where a new branch leaves its source, and how many messages it shares."""
    if new.empty:
        return rules.Cut()
    lane = edit.head.lane(new.source)
    wanted = new.at or new.before
    if wanted is None:
        newest = await edit.newest(lane, 1)
        return rules.Cut((newest[0][0], newest[0][1].seq), lane.count) if newest else rules.Cut()
    there = await find(edit.writer, edit.context, edit.entry, [wanted])
    if not there or not rules.sees(lane, there[0][0], there[0][1].seq):
        raise rules.no_message(edit.id, wanted)
    seq = there[0][1].seq
    upto = seq if new.at else seq - 1
    parts = [(line, min(end, upto)) for line, end in rules.segments(lane)]
    counts = await edit.look(*(("ZCOUNT", f"messages:{line}", "-inf", end) for line, end in parts))
    total = sum(counts)
    for (line, end), count in reversed(list(zip(parts, counts, strict=True))):
        if count:
            ask = ("ZREVRANGEBYSCORE", f"messages:{line}", end, "-inf", "LIMIT", 0, 1)
            ((data,),) = await edit.look(ask)
            return rules.Cut((line, coding.row_of(data, edit.id).seq), total)
    return rules.Cut()


async def delete_branch(
    writer: Writer, context: Context, id: str, branch: str, expected_version: int | None
) -> Receipt:
    async def plan(found: Entry | Tomb) -> Write[Receipt]:
        edit = Edit(writer, context, id, found)
        after, doomed = rules.plan_delete_branch(edit.head, branch, expected_version)
        shrunk = await _shrink(edit, after, doomed, branch)
        return Write(edit.batch, shrunk.after, lambda gone: structs.replace(shrunk.receipt, blobs=gone.blobs))

    return await writer.change(context, id, plan)


async def put_summary(writer: Writer, context: Context, summary: Summary) -> None:
    async def plan(found: Entry | Tomb) -> Write[None]:
        edit = Edit(writer, context, summary.conversation_id, found)
        rules.check_summary(edit.head, summary)
        edit.batch.do("RPUSH", "summaries", documents.stored_summary(summary))
        after = edit.save(with_summary(edit.head, summary.text))
        return Write(edit.batch, after, lambda _: None)

    await writer.change(context, summary.conversation_id, plan)
