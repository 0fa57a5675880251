"""The meaning of an append: duplicates, owner, version, quota, seq and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from hansard import codec
from hansard.contract.types import Append, Context, ConversationState, Draft, StoredBranch
from hansard.errors import Conflict, QuotaExceeded
from hansard.model import NOT_YET, Conversation, Message, Participant
from hansard.rules.state import check_version, tombstone_digest, touched


class Plan(Struct, frozen=True, gc=False):
    """The messages that an append stores, and its result."""

    state: ConversationState
    branch: StoredBranch
    fresh: list[tuple[Message, Draft]]
    """The messages to insert on `branch.segment`, in order."""
    result: list[Message]


def plan_append(context: Context, state: ConversationState, append: Append, stored: Mapping[str, Message]) -> Plan:
    """Decides an append: duplicates, owner, version, quota, then seq and time for new messages.

    `stored` holds those of the drafts' ids that the conversation has already, on any branch. The first write of an id
    wins. A call without new messages succeeds whatever its expected version, so that a retry is always safe.
    """
    conversation = state.conversation
    owner = conversation.user_id
    writer = append.user_id or context.user
    if writer is not None and writer != owner:
        if writer in conversation.members:
            append = _by_member(append, writer)
        else:
            owner = _new_owner(conversation, writer)
    fresh = _fresh_drafts(append, stored)
    if append.expected_version is not None and (fresh or not _all_same(append.drafts, stored)):
        check_version(conversation, append.expected_version)
    branch = state.branch(append.branch)
    if not fresh:
        # A retry may still name the owner of a conversation that has none.
        if owner != conversation.user_id:
            state = structs.replace(state, conversation=touched(conversation, context.now, user_id=owner))
        return Plan(state, branch, [], [stored[draft.message.id] for draft in append.drafts])
    count = len(fresh)
    if conversation.message_count + count > append.max_messages:
        check_quota(conversation, count, append.max_messages)
    placed, seq, last = place(context, conversation, branch.id, state.seq, fresh)
    branch = structs.replace(branch, count=branch.count + count)
    conversation = structs.replace(
        conversation,
        user_id=owner,
        version=conversation.version + 1,
        updated_at=max(context.now, conversation.updated_at),
        message_count=conversation.message_count + count,
        last_message_at=last,
    )
    state = ConversationState(conversation, seq, {**state.branches, branch.id: branch}, state.has_tombstones)
    if count == len(append.drafts):
        return Plan(state, branch, placed, [message for message, _ in placed])
    by_id = {message.id: message for message, _ in placed}
    return Plan(
        state, branch, placed, [by_id.get(each.message.id) or stored[each.message.id] for each in append.drafts]
    )


def _by_member(append: Append, member: str) -> Append:
    """Returns the append with the member as the author of user messages that name none, so that erasure finds them."""
    who = Participant("user", member)
    drafts = tuple(
        structs.replace(draft, message=structs.replace(draft.message, participant=who))
        if draft.message.role == "user" and draft.message.participant is None
        else draft
        for draft in append.drafts
    )
    return structs.replace(append, drafts=drafts)


def _new_owner(conversation: Conversation, user_id: str) -> str:
    """Returns the owner: the first user who is named owns a conversation without an owner."""
    if conversation.user_id is None:
        return user_id
    raise Conflict(
        f"conversation {conversation.id!r} belongs to another user than {user_id!r}: "
        "update_conversation(user_id=…) changes the owner"
    )


def _all_same(drafts: Iterable[Draft], stored: Mapping[str, Message]) -> bool:
    return all(same_body(draft, stored[draft.message.id]) for draft in drafts)


def _fresh_drafts(append: Append, stored: Mapping[str, Message]) -> Sequence[Draft]:
    if not stored and (len(append.drafts) == 1 or not any(draft.given_id for draft in append.drafts)):
        return append.drafts
    fresh: dict[str, Draft] = {}
    for draft in append.drafts:
        id = draft.message.id
        first = stored.get(id) or (fresh[id].message if id in fresh else None)
        if first is None:
            fresh[id] = draft
        elif append.on_duplicate == "error" and not same_body(draft, first):
            raise Conflict(f"message {id!r} is stored already with another body")
    return list(fresh.values())


_BODY = (
    "role",
    "content",
    "format",
    "participant",
    "mentions",
    "scope",
    "status",
    "pinned",
    "trace_id",
    "sources",
    "usage",
    "metadata",
    "blobs",
)


def same_body(draft: Draft, stored: Message) -> bool:
    """Returns whether a draft equals the stored message in everything that its writer decides, including its time."""
    message = draft.message
    return (
        all(getattr(message, name) == getattr(stored, name) for name in _BODY)
        and (message.created_at is NOT_YET or message.created_at == stored.created_at)
        and _is_verbatim(message.content, stored.content)
        and _is_verbatim(message.metadata, stored.metadata)
    )


def _is_verbatim(one: Any, other: Any) -> bool:
    """Returns whether equal values are also identical JSON: Python treats 1, 1.0 and True as equal."""
    return isinstance(one, str) or one is None or codec.encode(one) == codec.encode(other)


def check_quota(conversation: Conversation, more: int, limit: int) -> None:
    total = conversation.message_count + more
    if total > limit:
        raise QuotaExceeded(
            f"conversation {conversation.id!r} would hold {total:,} messages; the limit is {limit:,} (Limits.messages)",
            limit=limit,
            value=total,
        )


def place(
    context: Context, conversation: Conversation, branch: str, seq: int, drafts: Iterable[Draft]
) -> tuple[list[tuple[Message, Draft]], int, datetime]:
    """Assigns each draft its seq and, if it has no time, one that is not before the conversation's last."""
    id, now = conversation.id, context.now
    last = conversation.last_message_at or NOT_YET
    placed = []
    for draft in drafts:
        seq += 1
        given = draft.message.created_at
        if given is not NOT_YET:
            last = given
        elif last < now:
            last = now
        message = structs.replace(draft.message, conversation_id=id, seq=seq, branch=branch, created_at=last)
        placed.append((message, draft))
    return placed, seq, last


def digests_to_check(context: Context, state: ConversationState, drafts: Sequence[Draft]) -> list[str]:
    """Returns the tombstones that `refuse_deleted` may need."""
    id = state.conversation.id
    digests = [codec.digest(id, draft.message.id) for draft in drafts if draft.given_id] if state.has_tombstones else []
    for draft in drafts:
        if draft.message.created_at is not NOT_YET:
            digests.append(tombstone_digest(context, id))
            break
    return digests


def refuse_deleted(
    context: Context, state: ConversationState, drafts: Sequence[Draft], tombstone: Callable[[str], datetime | None]
) -> None:
    """Refuses to restore deleted data by a replay, unless the call revives it.

    That is: a message that was deleted by its id and, in a conversation that was deleted and created again, messages
    written before the deletion. `drafts` are those that are not stored; `tombstone` returns the time of a deletion by
    its digest.
    """
    id = state.conversation.id
    if state.has_tombstones:
        for draft in drafts:
            if draft.given_id and tombstone(codec.digest(id, draft.message.id)) is not None:
                what = f"message {draft.message.id!r} of conversation {id!r}"
                raise Conflict(f"{what} was deleted: pass revive=True to store it anyway")
    dated = [draft.message for draft in drafts if draft.message.created_at is not NOT_YET]
    deleted_at = tombstone(tombstone_digest(context, id)) if dated else None
    for message in dated:
        if deleted_at is not None and message.created_at <= deleted_at:
            raise Conflict(
                f"conversation {id!r} was deleted at {deleted_at.isoformat()}, after message {message.id!r} was "
                "written: pass revive=True to store it anyway"
            )
