"""The jobs that make conversations and append to them under a lock, and what others share.

Most appends take the short way of `appending`; they come here when it does not serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hansard import codec, rules
from hansard.backends.postgres import heads, rows
from hansard.backends.postgres.engine import Work
from hansard.backends.postgres.errors import Raced
from hansard.backends.postgres.heads import Entry, new_stamp
from hansard.backends.values import own_conversation
from hansard.contract.types import Append, Context, ConversationChange, Draft, Head, Restore
from hansard.errors import Conflict
from hansard.model import NOT_YET, Appended, Conversation, Message, Receipt, UsageRow, from_micros, to_micros

Place = tuple[int, int]
"""The line and seq of a message."""

_MOST_BYTES = 32_000_000
"""Bodies that one statement takes: the server refuses a message of more than a gigabyte."""


# Conversations


async def make(work: Work, context: Context, head: Head, *, largest: int = 0, line: int = 1) -> Entry:
    """A place for a conversation that does not exist, or has expired."""
    id = head.conversation.id
    old = await heads.load(work, id)
    if old is not None:
        if rules.is_visible(old.head.conversation, context):
            raise Raced(f"conversation {id!r} was made by somebody else at the same moment")
        expires = old.head.conversation.expires_at
        if expires is None or expires > context.now:
            # Behind the wall of a user's view: it must look as if it were not there.
            raise rules.not_found(id)
        await drop(work, context, old)
    entry = Entry(head, largest, line, new_stamp())
    await heads.insert(work, entry)
    return entry


async def create_conversation(work: Work, context: Context, conversation: Conversation) -> Conversation:
    if await heads.find(work, context, conversation.id) is not None:
        raise Conflict(f"conversation {conversation.id!r} exists already")
    entry = await make(work, context, rules.created(context, conversation, 1))
    return own_conversation(entry.head.conversation)


async def update_conversation(work: Work, context: Context, id: str, change: ConversationChange) -> Conversation:
    entry = await heads.need(work, context, id)
    head = rules.plan_change(context, entry.head, change)
    await heads.save(work, entry, head)
    return own_conversation(head.conversation)


async def delete_conversation(work: Work, context: Context, id: str, expected_version: int | None) -> Receipt:
    entry = await heads.find(work, context, id)
    if entry is None:
        return Receipt(at=context.now)
    rules.check_version(entry.head.conversation, expected_version)
    await work.link.run("bury", work.tenant, rules.graves(entry.head.conversation), to_micros(context.now))
    return await drop(work, context, entry)


async def drop(work: Work, context: Context, entry: Entry) -> Receipt:
    """Removes a conversation with everything that belongs to it."""
    link, key = work.link, (work.tenant, entry.head.conversation.id)
    used = [sha256 for (sha256,) in await link.all("release_all_blobs", *key)]
    messages = await link.run("delete_all_messages", *key)
    branches = await link.run("delete_branches", *key)
    summaries = await link.run("delete_all_summaries", *key)
    records = await link.run("delete_records_of", *key)
    await link.run("delete_conversation", *key)
    work.changed[key[1]] = None
    return Receipt(
        conversations=1,
        messages=messages,
        branches=branches,
        summaries=summaries,
        records=records,
        blobs=await drop_blobs(work, context, used),
        at=context.now,
    )


# Appending


async def append(work: Work, context: Context, id: str, append: Append) -> Appended:
    entry = await heads.find(work, context, id)
    if entry is None:
        return await _append_first(work, context, id, append)
    head = entry.head
    stored = await find_stored(work, id, append.drafts)
    if not append.revive:
        await refuse_deleted(work, context, head, [each for each in append.drafts if each.message.id not in stored])
    plan = rules.plan_append(context, head, append, stored)
    if plan.head is not head:
        await heads.save(work, entry, plan.head, largest=_largest(plan.fresh))
    if plan.fresh:
        await insert(work, plan.head, plan.lane.line, plan.fresh, append.blobs, count=append.count_usage)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh))


async def _append_first(work: Work, context: Context, id: str, append: Append) -> Appended:
    """An append to a conversation that it has to make."""
    if append.new is None:
        raise rules.not_found(id)
    head = rules.new_head(context, id, append.new, 1)
    if not append.revive:
        await refuse_deleted(work, context, head, append.drafts)
    plan = rules.plan_append(context, head, append, {})
    await make(work, context, plan.head, largest=_largest(plan.fresh))
    await insert(work, plan.head, plan.lane.line, plan.fresh, append.blobs, count=append.count_usage)
    return Appended(plan.result, plan.head.conversation.version, len(plan.fresh), created=True)


def _largest(fresh: Iterable[tuple[Message, Draft]]) -> int:
    return max((draft.size for _, draft in fresh), default=0)


async def find_stored(work: Work, id: str, drafts: Iterable[Draft]) -> dict[str, Message]:
    """Those of the drafts whose ids were given and are there already."""
    given = [draft.message.id for draft in drafts if draft.given_id]
    if not given:
        return {}
    found = await work.link.all("find_messages", work.tenant, id, given)
    return {message.id: message for message in rows.messages_of(found, id)}


async def refuse_deleted(work: Work, context: Context, head: Head, drafts: Sequence[Draft]) -> None:
    """Finds the tombstones that the rule may ask for."""
    id = head.conversation.id
    digests = [codec.digest(id, each.message.id) for each in drafts if each.given_id] if head.buried else []
    if any(is_dated(draft) for draft in drafts):
        digests.append(rules.grave(context, id))
    found = await work.link.all("find_tombstones", work.tenant, digests) if digests else []
    rules.refuse_deleted(context, head, drafts, {row[0]: from_micros(row[1]) for row in found}.get)


def is_dated(draft: Draft) -> bool:
    """Its writer says when it was written: that may have been before a deletion."""
    return draft.message.created_at is not NOT_YET


async def insert(
    work: Work,
    head: Head,
    line: int,
    fresh: Sequence[tuple[Message, Draft]],
    blobs: Mapping[str, bytes],
    *,
    count: bool = True,
) -> None:
    """Inserts messages on a line, with their blobs and usage."""
    id = head.conversation.id
    for piece in _pieces(fresh):
        made = [rows.message_row(id, line, message, draft) for message, draft in piece]
        await work.link.run("insert_messages", work.tenant, *rows.columns(made, rows.MESSAGE_WIDTH))
    messages = [message for message, _ in fresh]
    await use_blobs(work, id, line, messages, blobs)
    if count:
        await add_usage(work, usage_of(head, messages))


def _pieces(fresh: Sequence[tuple[Message, Draft]]) -> Iterator[list[tuple[Message, Draft]]]:
    piece: list[tuple[Message, Draft]] = []
    size = 0
    for pair in fresh:
        if piece and size + pair[1].size > _MOST_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(pair)
        size += pair[1].size
    if piece:
        yield piece


def usage_of(head: Head, messages: Iterable[Message]) -> list[UsageRow]:
    """What new messages add to the usage rows."""
    return [
        row
        for message in messages
        if message.usage is not None
        for _, row in rules.usage_change(head.conversation, message, None, message.usage)
    ]


async def add_usage(work: Work, added: Sequence[UsageRow]) -> None:
    if added:
        made = [rows.usage_row(row) for row in added]
        await work.link.run("add_usage", work.tenant, *rows.columns(made, len(made[0])))


# Blobs


async def keep_blobs(work: Work, blobs: Mapping[str, bytes], keep_until: int = 0) -> None:
    """Bytes that come with a message need no keeping time: the message refers to them at once."""
    for sha256, data in sorted(blobs.items()):
        await work.link.run("keep_blobs", work.tenant, [sha256], [data], keep_until)


async def use_blobs(work: Work, id: str, line: int, messages: Iterable[Message], blobs: Mapping[str, bytes]) -> None:
    """Messages on a line refer to their blobs. A blob is locked first: nobody drops it at the same moment."""
    uses = [(id, line, message.seq, ref.sha256) for message in messages for ref in message.blobs]
    if not uses:
        return
    await keep_blobs(work, blobs)
    await work.link.all("lock_blobs", work.tenant, sorted({use[3] for use in uses}))
    await work.link.run("use_blobs", work.tenant, *rows.columns(uses, 4))


async def drop_blobs(work: Work, context: Context, candidates: Iterable[str]) -> int:
    """Drops those of these blobs that nothing refers to any longer.

    The lock comes first, in a statement of its own: the next one sees the uses of whoever held it before.
    """
    digests = sorted(set(candidates))
    if not digests:
        return 0
    await work.link.all("lock_blobs", work.tenant, digests)
    return await work.link.run("drop_blobs", work.tenant, digests, to_micros(context.now))


# Copying


async def restore(work: Work, context: Context, restore: Restore) -> int:
    image = restore.image
    entry = await heads.find(work, context, image.conversation.id)
    if entry is None:
        line = max(line for lane in image.lanes for line, _ in rules.segments(lane))
        entry = await make(work, context, rules.restoring(image, image.lanes), line=line)
    fresh = [row for row in restore.rows if row.draft.message.seq > entry.head.seq]
    ids = [row.draft.message.id for row in fresh]
    stored = {row[0] for row in await work.link.all("find_ids", work.tenant, image.conversation.id, ids)}
    head = rules.restored(entry.head, restore, fresh, stored)
    await keep_blobs(work, restore.blobs)
    for line in dict.fromkeys(row.line for row in fresh):
        own = [(row.draft.message, row.draft) for row in fresh if row.line == line]
        await insert(work, entry.head, line, own, {})
    await heads.save(work, entry, head, largest=_largest((row.draft.message, row.draft) for row in fresh))
    return head.seq
