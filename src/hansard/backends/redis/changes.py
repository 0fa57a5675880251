"""Turns `Changes` into a `WriteBatch`. Nothing here reads from the server, and nothing decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from hansard import codec
from hansard.analysis import searchable
from hansard.backends.redis import rows
from hansard.backends.redis.batch import WriteBatch
from hansard.backends.redis.keys import list_members, list_roots, pair_member
from hansard.backends.redis.rows import StoredState, state_changes
from hansard.contract.storage import Changes, Placed, Update
from hansard.contract.types import Context, ConversationState, Draft
from hansard.model import Conversation, Message, UsageRow, to_micros

_NEVER = "-inf"


class Removals(Struct, kw_only=True):
    """The stored data that a write removes, as it must be known to remove it."""

    messages: Sequence[Placed] = ()
    """The messages of `Changes.remove` and `Changes.remove_runs`."""
    counts: Mapping[str, int] = {}
    """For each blob that these messages, or the updated one, refer to: how many messages do so now."""
    blobs: Sequence[str] = ()
    """All blobs of the conversation, for `Changes.wipes`, like the fields below up to `summaries`."""
    records: Sequence[tuple[str, bytes]] = ()
    """Owner and name."""
    bound: str = ""
    """The head's field `bound` when these records were read: it changes when another one is bound."""
    participants: Sequence[str] = ()
    summaries: int = 0
    left_summaries: Sequence[bytes] = ()
    """The summaries that are left without `Changes.lost_summaries`, as stored."""


NOTHING_LEAVES = Removals()


def removes_anything(changes: Changes) -> bool:
    return bool(
        changes.wipes != "nothing"
        or changes.remove
        or changes.remove_runs
        or changes.lost_summaries
        or (changes.update and changes.update.before.blobs)
    )


def fill(
    batch: WriteBatch, context: Context, before: StoredState | None, changes: Changes, leaving: Removals
) -> StoredState | None:
    """Adds all changes to the batch. Returns the conversation after it, or None if it is deleted."""
    coming = [message for _, fresh in changes.insert for message, _ in fresh]
    if changes.update is not None:
        coming.append(changes.update.after)
    users = {who.id for message in coming if (who := message.participant) and who.kind == "user"} if coming else set()
    counts = references(coming) if coming else {}
    batch.uses = counts.keys()
    if before is not None and changes.wipes != "nothing":
        _wipe(batch, context, before, leaving)
        if changes.wipes == "everything":
            _remove_conversation(batch, context, before, leaving, users)
            before = None
    if changes.blobs or counts:
        _use_blobs(batch, changes.blobs, counts)
    if leaving.messages or (changes.update is not None and changes.update.before.blobs):
        _remove(batch, context, changes, leaving)
    for segment, fresh in changes.insert:
        _insert(batch, segment, fresh)
    if users:
        _add_participants(batch, users)
    if changes.update is not None:
        _update(batch, changes.update)
    if changes.lost_summaries or changes.new_summary is not None:
        _change_summaries(batch, changes, leaving)
    if changes.tombstones:
        _add_tombstones(batch, context, changes.tombstones)
    if changes.usage:
        _add_usage(batch, changes.usage)
    return _save(batch, before, changes.state, _largest(changes)) if changes.state else None


def _largest(changes: Changes) -> int:
    """Returns the size of the largest new body."""
    if changes.update is not None:
        return changes.update.draft.size if changes.update.draft else 0
    return max([draft.size for _, fresh in changes.insert for _, draft in fresh], default=0) if changes.insert else 0


# The head, and the conversation's position in every list


def _save(batch: WriteBatch, before: StoredState | None, state: ConversationState, largest: int) -> StoredState:
    old = before.state if before else None
    birth = before.birth if before else batch.n
    largest = max(largest, before.largest if before else 0)
    segments = max(rows.segments_of(state) | {before.segments if before else 0})
    entry = StoredState(batch.n, batch.write, birth, state, largest, segments)
    fields, gone = state_changes(old, entry)
    if before is None:
        fields += ["birth", birth]
    batch.do_many("HSET", "head", ["n", batch.n, "write", batch.write, *fields])
    if gone:
        batch.do_many("HDEL", "head", gone)
    _move(batch, old.conversation if old else None, state.conversation)
    if old is not None and old.conversation.user_id != state.conversation.user_id:
        # The index knows the owner of each message.
        batch.index("queue_all", batch.keys.index_state(batch.tenant), batch.id, batch.n, f"{batch.root}:ids")
    return entry


def _move(batch: WriteBatch, before: Conversation | None, after: Conversation | None) -> None:
    """Moves the conversation from its positions in the lists to its new ones; None for no position."""
    keys, tenant = batch.keys, batch.tenant
    leaves = list_roots(keys, tenant, before) if before else []
    enters = leaves if _same_owners(before, after) else list_roots(keys, tenant, after) if after else []
    old, new = list_members(before) if before else {}, list_members(after) if after else {}
    for list_root in dict.fromkeys([*leaves, *enters]):
        for sort in old or new:
            was = old.get(sort, b"") if list_root in leaves else b""
            will_be = new.get(sort, b"") if list_root in enters else b""
            if was != will_be:
                batch.after_commit(list_root).add("move", f"{list_root}:{sort}", was, will_be)
    _move_expiry(batch, before, after)
    if before is None:
        # Before the commit, so that the tenant is known as soon as it holds data; and after, in case it was removed
        # meanwhile.
        batch.before_commit(keys.tenants).add("SADD", keys.tenants, tenant)
        batch.after_commit(keys.all).add("SADD", keys.tenants, tenant)


def _same_owners(one: Conversation | None, other: Conversation | None) -> bool:
    return one is not None and other is not None and (one.user_id, one.agent_id) == (other.user_id, other.agent_id)


def _move_expiry(batch: WriteBatch, before: Conversation | None, after: Conversation | None) -> None:
    was, will_be = before and to_micros(before.expires_at), after and to_micros(after.expires_at)
    if was == will_be:
        return
    everywhere = batch.after_commit(batch.keys.all)
    member = pair_member(batch.tenant, batch.id)
    if will_be is None:
        everywhere.add("ZREM", batch.keys.expiring, member)
    else:
        everywhere.add("ZADD", batch.keys.expiring, will_be, member)


# Messages


def _insert(batch: WriteBatch, segment: int, fresh: Sequence[tuple[Message, Draft]]) -> None:
    """Adds messages at the end of a segment, with the entries that find them by id."""
    stored: list[int | bytes] = []
    places: list[str] = []
    for message, draft in fresh:
        stored += (message.seq, rows.message_of(message, draft.body))
        places += (message.id, f"{segment} {message.seq}")
    batch.do_many("ZADD", f"messages:{segment}", stored)
    batch.do_many("HSET", "ids", places)
    _queue(batch, places[1::2])
    for message, _ in fresh:
        if message.pinned:
            _pin(batch, segment, message)


def _add_participants(batch: WriteBatch, users: Iterable[str]) -> None:
    for user in sorted(users):
        mark = batch.keys.participant(batch.tenant, user)
        # After the commit: a reader that finds the entry but no message removes the entry.
        batch.after_commit(mark).add("HSET", mark, batch.id, batch.n)
    batch.do_many("SADD", "participants", sorted(users))


def _pin(batch: WriteBatch, segment: int, message: Message) -> None:
    """Records whether a message is pinned, so that pinned messages are found without a walk."""
    if message.pinned:
        batch.do("ZADD", f"pinned:{segment}", message.seq, message.seq)
    else:
        batch.do("ZREM", f"pinned:{segment}", message.seq)


def _update(batch: WriteBatch, update: Update) -> None:
    segment, message, before = update.segment, update.after, update.before
    if _keeps_text(before, message):
        _queue(batch, [f"{segment} {message.seq}"])
    else:
        _replace(batch, f"{segment} {message.seq}")
    body = update.draft.body if update.draft else _body(before)
    batch.do("ZREMRANGEBYSCORE", f"messages:{segment}", message.seq, message.seq)
    batch.do("ZADD", f"messages:{segment}", message.seq, rows.message_of(message, body))
    if message.pinned != before.pinned:
        _pin(batch, segment, message)


def _body(message: Message) -> str:
    return message.content if message.format == "text" else codec.encode(message.content)


def _remove(batch: WriteBatch, context: Context, changes: Changes, leaving: Removals) -> None:
    for run in changes.remove_runs:
        batch.do("ZREMRANGEBYSCORE", f"messages:{run.segment}", f"({run.after}", run.upto)
    for segment, message in changes.remove:
        batch.do("ZREMRANGEBYSCORE", f"messages:{segment}", message.seq, message.seq)
    for segment, message in leaving.messages:
        if message.pinned:
            batch.do("ZREM", f"pinned:{segment}", message.seq)
    batch.do_many("HDEL", "ids", (message.id for _, message in leaving.messages))
    _unindex(batch, leaving.messages)
    _release_blobs(batch, context, released(changes, leaving.messages), leaving.counts)


def _change_summaries(batch: WriteBatch, changes: Changes, leaving: Removals) -> None:
    if changes.lost_summaries:
        batch.do("DEL", "summaries")
        batch.do_many("RPUSH", "summaries", leaving.left_summaries)
    if changes.new_summary is not None:
        batch.do("RPUSH", "summaries", rows.stored_summary(changes.new_summary))


# The search index: see `index.py`


def _queue(batch: WriteBatch, places: Sequence[str]) -> None:
    batch.index("queue", batch.keys.index_state(batch.tenant), batch.id, batch.n, places=places)


def _keeps_text(before: Message, after: Message) -> bool:
    """Returns whether all that the index knows of a message is still true, as after each part of a stream.

    Then searches that have begun may find it as it was; others let it be indexed first.
    """
    was, will_be = ((each.role, each.participant, each.created_at) for each in (before, after))
    return was == will_be and searchable(after).startswith(searchable(before))


def _replace(batch: WriteBatch, place: str) -> None:
    state, entries = batch.keys.index_state(batch.tenant), batch.keys.index_entries(batch.tenant, batch.id)
    batch.index("replace", state, entries, batch.id, batch.n, places=[place])


def _unindex(batch: WriteBatch, messages: Iterable[Placed]) -> None:
    entries = batch.keys.index_entries(batch.tenant, batch.id)
    batch.index("unindex", entries, batch.id, places=[f"{segment} {message.seq}" for segment, message in messages])


# Blobs and usage


def references(messages: Iterable[Message]) -> Mapping[str, int]:
    """Counts how many messages refer to each blob."""
    messages = [message for message in messages if message.blobs]
    return (
        {}
        if not messages
        else Counter(sha256 for message in messages for sha256 in {ref.sha256 for ref in message.blobs})
    )


def released(changes: Changes, removed: Iterable[Placed]) -> Mapping[str, int]:
    """Counts the references to each blob that go with these messages and with the old body of the updated one."""
    old = [changes.update.before] if changes.update else []
    return references([*(message for _, message in removed), *old])


def _use_blobs(batch: WriteBatch, blobs: Mapping[str, bytes], counts: Mapping[str, int]) -> None:
    for sha256, data in blobs.items():
        # Blobs that come with a message need no keeping time: the message refers to them at once.
        bucket = batch.keys.bucket(batch.tenant, sha256)
        batch.before_commit(bucket).add("keep", bucket, sha256, data, _NEVER)
    for sha256, count in sorted(counts.items()):
        bucket = batch.keys.bucket(batch.tenant, sha256)
        batch.before_commit(bucket).add("use", bucket, sha256, batch.id, batch.n)
        batch.do("HINCRBY", "blobs", sha256, count)


def _release_blobs(batch: WriteBatch, context: Context, gone: Mapping[str, int], counts: Mapping[str, int]) -> None:
    """Releases references: `gone` counts the removed ones, `counts` those before. The last one removes the blob."""
    for sha256, count in sorted(gone.items()):
        if counts[sha256] > count or sha256 in batch.uses:
            batch.do("HINCRBY", "blobs", sha256, -count)
        else:
            batch.do("HDEL", "blobs", sha256)
            _release(batch, context, sha256)


def _release(batch: WriteBatch, context: Context, sha256: str) -> None:
    bucket = batch.keys.bucket(batch.tenant, sha256)
    batch.after_commit(bucket).add("release", bucket, sha256, batch.id, batch.n, to_micros(context.now))


def _add_usage(batch: WriteBatch, usage: Iterable[UsageRow]) -> None:
    root = batch.keys.usage(batch.tenant)
    for row in usage:
        numbers = (row.messages, row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
        place = batch.after_commit(root)
        place.add("ZADD", f"{root}:days", 0, row.day)
        place.add("count", f"{root}:{row.day}", rows.usage_field(row), *numbers, repr(float(row.cost)))


# Deletion


def _wipe(batch: WriteBatch, context: Context, before: StoredState, leaving: Removals) -> None:
    """Removes all messages and summaries. A blob that new messages refer to stays in use."""
    entries = batch.keys.index_entries(batch.tenant, batch.id)
    batch.index("unindex_all", entries, batch.id, f"{batch.root}:ids")
    for segment in sorted(rows.segments_of(before.state)):
        batch.do("UNLINK", f"messages:{segment}")
        batch.do("UNLINK", f"pinned:{segment}")
    for part in ("ids", "summaries", "blobs"):
        batch.do("UNLINK", part)
    for sha256 in leaving.blobs:
        if sha256 not in batch.uses:
            _release(batch, context, sha256)


def _remove_conversation(
    batch: WriteBatch, context: Context, before: StoredState, leaving: Removals, users: Iterable[str]
) -> None:
    """Removes the conversation and its data at other places. `users` take part in the conversation that replaces it."""
    for part in ("head", "records", "participants"):
        batch.do("UNLINK", part)
    _move(batch, before.state.conversation, None)
    batch.do("HSET", "graves", "n", batch.n)
    _schedule_tombstone_sweep(batch, to_micros(context.now))
    for owner, name in leaving.records:
        space = batch.keys.records(batch.tenant, owner)
        batch.after_commit(space).add("drop", space, name, birth_link(batch.id, before.birth))
    for user in set(leaving.participants).difference(users):
        mark = batch.keys.participant(batch.tenant, user)
        batch.after_commit(mark).add("forget", mark, batch.id, batch.n)


def _add_tombstones(batch: WriteBatch, context: Context, digests: Sequence[str]) -> None:
    at = to_micros(context.now)
    batch.do_many("bury", "graves", (each for digest in digests for each in (digest, at)))
    _schedule_tombstone_sweep(batch, at)


def _schedule_tombstone_sweep(batch: WriteBatch, at: int) -> None:
    """Lets a sweep find the tombstones when they are too old."""
    batch.after_commit(batch.keys.all).add("ZADD", batch.keys.deleted, "LT", at, pair_member(batch.tenant, batch.id))


def birth_link(id: str, birth: int) -> str:
    """Ties a record to one conversation, and to no later one of the same id."""
    return f"{birth} {id}"


def linked(owner: str, name: bytes) -> bytes:
    """A member of a conversation's set of records: the owner and name of a record."""
    return codec.pack_namespace((owner,)) + name


def owner_and_name(member: bytes) -> tuple[str, bytes]:
    # The owner ends at the first NUL that is not an escaped one; a name begins with a byte of 0 or 1.
    at = member.index(b"\0")
    while member[at + 1 : at + 2] == b"\xff":
        at = member.index(b"\0", at + 1)
    (owner,) = codec.unpack_namespace(member[: at + 1])
    return owner, member[at + 1 :]
