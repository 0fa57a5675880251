"""Restores copied conversations, and audits stored ones."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec import structs

from hansard.contract.types import ConversationState, Image, Restore, RestoredRow, StoredBranch
from hansard.errors import Conflict
from hansard.model import Message, Problem
from hansard.rules.branches import sees, segments


def restoring(image: Image, branches: Sequence[StoredBranch]) -> ConversationState:
    """Returns the state of a conversation that a copy begins to fill.

    `branches` may have the backend's segment numbers.
    """
    conversation = structs.replace(image.conversation, message_count=0, last_message_at=None, summary=None)
    return ConversationState(conversation, 0, {branch.id: structs.replace(branch, count=0) for branch in branches})


def restored(
    state: ConversationState, restore: Restore, rows: Sequence[RestoredRow], stored: Container[str] = ()
) -> ConversationState:
    """Returns the state after these rows were stored; the last piece restores the conversation's times and version.

    A conversation that was written to meanwhile keeps its higher version: a version never changes its meaning. Ids are
    unique in a conversation, even in a foreign copy. `stored` holds those that exist already; a storage that detects
    duplicates itself raises `repeated`.
    """
    seen: set[str] = set()
    for row in rows:
        if row.draft.message.id in seen or row.draft.message.id in stored:
            raise repeated(state.conversation.id, row.draft.message.id)
        seen.add(row.draft.message.id)
    seqs: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        seqs[row.segment].append(row.draft.message.seq)
    branches = {
        id: structs.replace(branch, count=branch.count + _seen(branch, seqs)) for id, branch in state.branches.items()
    }
    last = rows[-1].draft.message if rows else None
    conversation = structs.replace(
        restore.image.conversation if restore.done else state.conversation,
        version=max(state.conversation.version, restore.image.conversation.version),
        message_count=state.conversation.message_count + len(rows),
        last_message_at=last.created_at if last else state.conversation.last_message_at,
        summary=state.conversation.summary,
    )
    seq = max(last.seq if last else state.seq, restore.image.seq if restore.done else 0)
    return structs.replace(state, conversation=conversation, seq=seq, branches=branches)


def repeated(id: str, message_id: str) -> Conflict:
    return Conflict(f"message id {message_id!r} occurs twice in the copy of conversation {id!r}: it is not stored")


def _seen(branch: StoredBranch, seqs: Mapping[int, Sequence[int]]) -> int:
    """Counts the messages at these seqs, by segment, that the branch reads.

    Called for every message of a large copy.
    """
    return sum(bisect_right(seqs[segment], upto) for segment, upto in dict(segments(branch)).items() if segment in seqs)


def audit(where: str, state: ConversationState, rows: Sequence[tuple[int, Message]]) -> Iterator[Problem]:
    """Yields the problems of a stored conversation; `rows` are all its messages with their segments, ordered by seq."""
    conversation = state.conversation
    if conversation.message_count != len(rows):
        yield Problem(where, f"message_count is {conversation.message_count}, but {len(rows)} messages are stored")
    newest = rows[-1][1].created_at if rows else None
    if conversation.last_message_at != newest:
        yield Problem(
            where, f"last_message_at is {conversation.last_message_at}, but the newest message is of {newest}"
        )
    if rows and rows[-1][1].seq > state.seq:
        yield Problem(where, f"the last seq is {state.seq}, but a message has {rows[-1][1].seq}")
    yield from _audit_order(where, rows)
    for branch in state.branches.values():
        count = sum(sees(branch, segment, message.seq) for segment, message in rows)
        if count != branch.count:
            yield Problem(where, f"branch {branch.id!r} counts {branch.count} messages, but reads {count}")
    if conversation.branch not in state.branches:
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
