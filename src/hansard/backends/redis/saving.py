"""What every write is made of: the head and its stands in the lists, messages, blobs, graves, and the end of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hansard import codec, rules
from hansard.backends.redis.batch import Batch
from hansard.backends.redis.coding import Entry, head_changes, micros_of
from hansard.backends.redis.documents import usage_field
from hansard.backends.redis.keys import shelves, stands, whom
from hansard.contract.types import Context, Head
from hansard.model import Conversation, Message, UsageRow, to_micros

_NEVER = "-inf"


def save(batch: Batch, before: Entry | None, head: Head, largest: int = 0) -> Entry:
    """The head, and the conversation's place in every list."""
    old = before.head if before else None
    birth = before.birth if before else batch.n
    largest = max(largest, before.largest if before else 0)
    fields, gone = head_changes(old, head, largest)
    if before is None:
        fields += ["birth", birth]
    batch.do_many("HSET", "head", ["n", batch.n, *fields])
    if gone:
        batch.do_many("HDEL", "head", gone)
    move(batch, old.conversation if old else None, head.conversation)
    return Entry(batch.n, birth, head, largest)


def move(batch: Batch, before: Conversation | None, after: Conversation | None) -> None:
    """From its stands in the lists to its new ones; None for nowhere."""
    keys, tenant = batch.keys, batch.tenant
    leaves = shelves(keys, tenant, before) if before else []
    enters = leaves if _same_owners(before, after) else shelves(keys, tenant, after) if after else []
    old, new = stands(before) if before else {}, stands(after) if after else {}
    for shelf in dict.fromkeys([*leaves, *enters]):
        for sort in old or new:
            was = old.get(sort, b"") if shelf in leaves else b""
            will_be = new.get(sort, b"") if shelf in enters else b""
            if was != will_be:
                batch.then(shelf).add("move", f"{shelf}:{sort}", was, will_be)
    _move_expiry(batch, before, after)
    if before is None:
        # Before, so that the tenant is known when it holds something; then, lest it be forgotten in between.
        batch.first(keys.tenants).add("SADD", keys.tenants, tenant)
        batch.then(keys.all).add("SADD", keys.tenants, tenant)


def _same_owners(one: Conversation | None, other: Conversation | None) -> bool:
    return one is not None and other is not None and (one.user_id, one.agent_id) == (other.user_id, other.agent_id)


def _move_expiry(batch: Batch, before: Conversation | None, after: Conversation | None) -> None:
    was, will_be = before and micros_of(before.expires_at), after and micros_of(after.expires_at)
    if was == will_be:
        return
    everywhere = batch.then(batch.keys.all)
    member = whom(batch.tenant, batch.id)
    if will_be is None:
        everywhere.add("ZREM", batch.keys.expiring, member)
    else:
        everywhere.add("ZADD", batch.keys.expiring, will_be, member)


# Messages


def insert(batch: Batch, line: int, placed: Sequence[tuple[Message, bytes]]) -> None:
    """Messages on a line, with what finds them: by id, by participant."""
    rows: list[Any] = []
    places: list[str] = []
    for message, data in placed:
        rows += (message.seq, data)
        places += (message.id, f"{line} {message.seq}")
    batch.do_many("ZADD", f"messages:{line}", rows)
    batch.do_many("HSET", "ids", places)
    for message, _ in placed:
        if message.pinned:
            pin(batch, line, message)
    users = {who.id for message, _ in placed if (who := message.participant) and who.kind == "user"}
    for user in sorted(users):
        mark = batch.keys.participant(batch.tenant, user)
        batch.first(mark).add("HSET", mark, batch.id, batch.n)
    batch.do_many("SADD", "participants", sorted(users))


def pin(batch: Batch, line: int, message: Message) -> None:
    """Notes whether a message is pinned, so that the pinned ones are found without a walk."""
    if message.pinned:
        batch.do("ZADD", f"pinned:{line}", message.seq, message.seq)
    else:
        batch.do("ZREM", f"pinned:{line}", message.seq)


def keep_blobs(batch: Batch, blobs: Mapping[str, bytes]) -> None:
    """Bytes that come with a message need no keeping time: the message refers to them at once."""
    for sha256, data in blobs.items():
        bucket = batch.keys.bucket(batch.tenant, sha256)
        batch.first(bucket).add("keep", bucket, sha256, data, _NEVER)


def use_blobs(batch: Batch, messages: Iterable[Message]) -> None:
    for sha256, count in sorted(references(messages).items()):
        bucket = batch.keys.bucket(batch.tenant, sha256)
        batch.first(bucket).add("use", bucket, sha256, batch.id, batch.n)
        batch.do("HINCRBY", "blobs", sha256, count)
        batch.uses.add(sha256)


def release_blobs(context: Context, batch: Batch, gone: Mapping[str, int], counts: Mapping[str, int]) -> None:
    """`gone` says how many references went, `counts` how many there were. The last one takes the blob along."""
    for sha256, count in sorted(gone.items()):
        left = counts[sha256] - count
        if left > 0 or sha256 in batch.uses:
            batch.do("HINCRBY", "blobs", sha256, -count)
            continue
        batch.do("HDEL", "blobs", sha256)
        release(context, batch, sha256)


def release(context: Context, batch: Batch, sha256: str) -> None:
    bucket = batch.keys.bucket(batch.tenant, sha256)
    batch.then(bucket).add("release", bucket, sha256, batch.id, batch.n, to_micros(context.now))


def references(messages: Iterable[Message]) -> Counter[str]:
    """How many messages refer to each blob."""
    messages = [message for message in messages if message.blobs]
    if not messages:
        return Counter()
    return Counter(sha256 for message in messages for sha256 in {ref.sha256 for ref in message.blobs})


def count_usage(batch: Batch, conversation: Conversation, changes: Iterable[tuple[Message, Message | None]]) -> None:
    """What messages add to usage, each given with what it was before: one operation a row, however many add to it."""
    rows: dict[rules.UsageKey, UsageRow] = {}
    for message, before in changes:
        old = before.usage if before else None
        if old != message.usage:
            for key, row in rules.usage_change(conversation, message, old, message.usage):
                rows[key] = rules.add_usage(rows[key], row) if key in rows else row
    add_usage(batch, rows.values())


def add_usage(batch: Batch, rows: Iterable[UsageRow]) -> None:
    root = batch.keys.usage(batch.tenant)
    for row in rows:
        numbers = (row.messages, row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
        usage = batch.then(root)
        usage.add("ZADD", f"{root}:days", 0, row.day)
        usage.add("count", f"{root}:{row.day}", usage_field(row), *numbers, repr(float(row.cost)))


# Deleting


def bury_messages(context: Context, batch: Batch, ids: Iterable[str]) -> None:
    at = to_micros(context.now)
    batch.do_many("HSET", "graves", (each for id in ids for each in (codec.digest(batch.id, id), at)))
    _remember_graves(batch, at)


def _remember_graves(batch: Batch, at: int) -> None:
    """So that a sweep finds them when their time is over."""
    batch.then(batch.keys.all).add("ZADD", batch.keys.deleted, "LT", at, whom(batch.tenant, batch.id))


def remove_everything(
    context: Context, batch: Batch, entry: Entry, parts: Mapping[str, Sequence[Any]], *, bury: bool
) -> None:
    """A conversation with all that belongs to it. `parts` are its blobs, records and participants."""
    head = entry.head
    for line in sorted(lines_of(head)):
        batch.do("UNLINK", f"messages:{line}")
        batch.do("UNLINK", f"pinned:{line}")
    for part in ("head", "ids", "summaries", "blobs", "records", "participants"):
        batch.do("UNLINK", part)
    move(batch, head.conversation, None)
    at = to_micros(context.now)
    marks = rules.graves(head.conversation) if bury else []
    batch.do("HSET", "graves", "n", batch.n, *(each for mark in marks for each in (mark, at)))
    _remember_graves(batch, at)
    for sha256 in parts["blobs"]:
        release(context, batch, sha256)
    for owner, name in parts["records"]:
        space = batch.keys.records(batch.tenant, owner)
        batch.then(space).add("drop", space, name, link(batch.id, entry.birth))
    for user in parts["participants"]:
        mark = batch.keys.participant(batch.tenant, user)
        batch.then(mark).add("forget", mark, batch.id, batch.n)


def link(id: str, birth: int) -> str:
    """What ties a record to one conversation, and to no later one of the same id."""
    return f"{birth} {id}"


def lines_of(head: Head) -> set[int]:
    return {line for lane in head.lanes.values() for line, _ in rules.segments(lane)}
