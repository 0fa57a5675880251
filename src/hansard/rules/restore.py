"""What it means to restore a copied conversation, and what must hold for any stored one."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import structs

from hansard.contract.types import Head, Image, Lane, Restore, RestoredRow
from hansard.errors import Conflict
from hansard.model import Message, Problem
from hansard.rules.branches import sees, segments


def restoring(image: Image, lanes: Sequence[Lane]) -> Head:
    """The head of a conversation that a copy begins to fill. `lanes` may carry the backend's own line numbers."""
    conversation = structs.replace(image.conversation, message_count=0, last_message_at=None, summary=None)
    return Head(conversation, 0, {lane.id: structs.replace(lane, count=0) for lane in lanes})


def restored(head: Head, restore: Restore, rows: Sequence[RestoredRow], stored: Container[str] = ()) -> Head:
    """The head after these rows were stored; the last piece gives the conversation its own times and version back.

    One that was written to meanwhile keeps the higher version that it has: a version says the same for ever.
    Ids are unique in a conversation, whoever wrote the copy. `stored` holds those that are there already; a storage
    that notices by itself raises `repeated`.
    """
    seen: set[str] = set()
    for row in rows:
        if row.draft.message.id in seen or row.draft.message.id in stored:
            raise repeated(head.conversation.id, row.draft.message.id)
        seen.add(row.draft.message.id)
    seqs: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        seqs[row.line].append(row.draft.message.seq)
    lanes = {id: structs.replace(lane, count=lane.count + _seen(lane, seqs)) for id, lane in head.lanes.items()}
    last = rows[-1].draft.message if rows else None
    conversation = structs.replace(
        restore.image.conversation if restore.done else head.conversation,
        version=max(head.conversation.version, restore.image.conversation.version),
        message_count=head.conversation.message_count + len(rows),
        last_message_at=last.created_at if last else head.conversation.last_message_at,
        summary=head.conversation.summary,
    )
    seq = max(last.seq if last else head.seq, restore.image.seq if restore.done else 0)
    return structs.replace(head, conversation=conversation, seq=seq, lanes=lanes)


def repeated(id: str, message_id: str) -> Conflict:
    return Conflict(f"message id {message_id!r} comes twice in the copy of conversation {id!r}: it is not stored")


def _seen(lane: Lane, seqs: Mapping[int, Sequence[int]]) -> int:
    """How many of the messages at these seqs, by line, the branch reads. A large copy asks this of every message."""
    return sum(bisect_right(seqs[line], upto) for line, upto in dict(segments(lane)).items() if line in seqs)


def audit(where: str, head: Head, rows: Sequence[tuple[int, Message]]) -> Iterator[Problem]:
    """What is wrong with a stored conversation; `rows` are all its messages with their lines, in the order of seq."""
    conversation = head.conversation
    if conversation.message_count != len(rows):
        yield Problem(where, f"message_count is {conversation.message_count}, but {len(rows)} messages are stored")
    newest = rows[-1][1].created_at if rows else None
    if conversation.last_message_at != newest:
        yield Problem(
            where, f"last_message_at is {conversation.last_message_at}, but the newest message is of {newest}"
        )
    if rows and rows[-1][1].seq > head.seq:
        yield Problem(where, f"the last seq is {head.seq}, but a message has {rows[-1][1].seq}")
    yield from _audit_order(where, rows)
    for lane in head.lanes.values():
        count = sum(sees(lane, line, message.seq) for line, message in rows)
        if count != lane.count:
            yield Problem(where, f"branch {lane.id!r} counts {lane.count} messages, but reads {count}")
    if conversation.branch not in head.lanes:
        yield Problem(where, f"the active branch {conversation.branch!r} does not exist")


def _audit_order(where: str, rows: Sequence[tuple[int, Message]]) -> Iterator[Problem]:
    seen: set[str] = set()
    last = 0
    for _, message in rows:
        if message.seq <= last:
            yield Problem(where, f"seq {message.seq} of message {message.id!r} does not follow {last}")
        if message.id in seen:
            yield Problem(where, f"message id {message.id!r} is stored twice")
        last = message.seq
        seen.add(message.id)
