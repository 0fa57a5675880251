"""Conversation states, and their visibility."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET, structs

from hansard import codec
from hansard.contract.types import (
    Context,
    ConversationChange,
    ConversationQuery,
    ConversationState,
    MessageQuery,
    NewConversation,
    StoredBranch,
)
from hansard.errors import Conflict, ConversationNotFound, Denied, MessageNotFound
from hansard.model import MAIN, NOT_YET, Conversation, Message, to_micros
from hansard.rules.marks import labelled

TOMBSTONE_LIFE = timedelta(days=90)
"""How long a deletion is remembered, so that a late replay cannot undo it."""

BLOB_GRACE = timedelta(hours=1)
"""How long a blob that was put by itself is kept without a reference."""


def is_visible(conversation: Conversation, context: Context) -> bool:
    """Returns whether it has not expired and is not behind the wall of a user's view."""
    expires = conversation.expires_at
    return (expires is None or expires > context.horizon) and (
        context.user in (None, conversation.user_id) or context.user in conversation.members
    )


def is_member_only(conversation: Conversation, context: Context) -> bool:
    """Returns whether the context is the view of a member, who does not own the conversation."""
    return context.user not in (None, conversation.user_id)


def check_owner(conversation: Conversation, context: Context) -> None:
    """Refuses what only the owner may do. The conversation must be visible."""
    if is_member_only(conversation, context):
        raise Denied(f"only the owner of conversation {conversation.id!r} may do that: a member reads and appends")


def not_found(id: str) -> ConversationNotFound:
    return ConversationNotFound(f"there is no conversation {id!r} here: create it first, or let an append create it")


def no_message(id: str, message_id: str) -> MessageNotFound:
    return MessageNotFound(f"conversation {id!r} has no message {message_id!r}")


def tombstone_digest(context: Context, id: str) -> str:
    """Returns the tombstone of a conversation for this context: a user's view has only its own deletions."""
    return codec.digest(id) if context.user is None else codec.digest(id, context.user, "owner")


def tombstone_digests(conversation: Conversation) -> list[str]:
    """Returns the tombstones that the deletion of a conversation leaves."""
    owner = conversation.user_id
    marks = [codec.digest(conversation.id)]
    return marks if owner is None else [*marks, codec.digest(conversation.id, owner, "owner")]


def check_version(conversation: Conversation, expected: int | None) -> None:
    if expected is not None and expected != conversation.version:
        raise Conflict(
            f"conversation {conversation.id!r} is at version {conversation.version}, not {expected}: read it again",
            expected=expected,
            actual=conversation.version,
        )


def matches(conversation: Conversation, query: ConversationQuery, context: Context) -> bool:
    """Returns whether a conversation belongs in a listing, regardless of its position."""
    return (
        is_visible(conversation, context)
        and (query.user_id is None or conversation.user_id == query.user_id)
        and (query.agent_id is None or conversation.agent_id == query.agent_id)
        and (query.archived is None or (conversation.archived_at is not None) == query.archived)
        and (not query.metadata or has_metadata(conversation, query.metadata))
    )


_MISSING = object()


def has_metadata(conversation: Conversation, wanted: Mapping[str, Any]) -> bool:
    return all(conversation.metadata.get(key, _MISSING) == value for key, value in wanted.items())


def is_wanted(message: Message, query: MessageQuery) -> bool:
    """Returns whether a message passes a query's filters, regardless of its position."""
    who = message.participant
    return (
        (query.roles is None or message.role in query.roles)
        and (query.participant_ids is None or (who is not None and who.id in query.participant_ids))
        and (query.scope is None or message.scope == query.scope)
        and (query.since is None or message.created_at >= query.since)
        and (query.until is None or message.created_at < query.until)
        and (query.pinned is None or message.pinned == query.pinned)
    )


def position(message: Message) -> tuple[int, int]:
    return to_micros(message.created_at), message.seq


def is_between(message: Message, query: MessageQuery) -> bool:
    """Returns whether a message is between the query's positions."""
    here = position(message) if query.sort == "time" else (0, message.seq)
    above = query.above if query.above is None or query.sort == "time" else (0, query.above[1])
    below = query.below if query.below is None or query.sort == "time" else (0, query.below[1])
    return (above is None or here > above) and (below is None or here < below)


def new_state(context: Context, id: str, new: NewConversation, segment: int) -> ConversationState:
    """Returns an empty conversation with one empty branch."""
    conversation = Conversation(
        id=id,
        user_id=context.user if context.user is not None else new.user_id,
        agent_id=new.agent_id,
        audit_id=new.audit_id,
        title=new.title,
        metadata=new.metadata,
        created_at=context.now,
        updated_at=context.now,
        expires_at=new.expires_at,
    )
    return empty_state(conversation, segment)


def empty_state(conversation: Conversation, segment: int) -> ConversationState:
    return ConversationState(conversation, 0, {MAIN: StoredBranch(MAIN, segment, created_at=conversation.created_at)})


def created(context: Context, given: Conversation, segment: int) -> ConversationState:
    """Returns the state of a conversation created by `create_conversation`."""
    conversation = structs.replace(
        given,
        user_id=context.user if context.user is not None else given.user_id,
        created_at=context.now if given.created_at is NOT_YET else given.created_at,
        updated_at=context.now if given.updated_at is NOT_YET else given.updated_at,
        summary=None,
        last_message_at=None,
        message_count=0,
        version=0,
        branch=MAIN,
    )
    return empty_state(conversation, segment)


def touched(conversation: Conversation, now: datetime, **changes: Any) -> Conversation:
    """Returns the conversation after a write: the version grows, the time of change never decreases."""
    return structs.replace(
        conversation,
        version=conversation.version + 1,
        updated_at=max(now, conversation.updated_at),
        **changes,
    )


def plan_change(context: Context, state: ConversationState, change: ConversationChange) -> ConversationState:
    """Returns the changed state: the same one if only labels or members were to change, and did not."""
    conversation = state.conversation
    if context.user is None or change != ConversationChange(removed_members=(context.user,)):  # a member may leave
        check_owner(conversation, context)
    check_version(conversation, change.expected_version)
    if change.branch is not UNSET:
        state.branch(change.branch)
    fields = ("title", "user_id", "agent_id", "audit_id", "expires_at", "archived_at", "branch")
    changes = {name: value for name in fields if (value := getattr(change, name)) is not UNSET}
    metadata = conversation.metadata
    if change.metadata:
        gone = {key for key, value in change.metadata.items() if value is None}
        merged = metadata | change.metadata
        changes["metadata"] = metadata = {key: value for key, value in merged.items() if key not in gone}
    if change.added_labels or change.removed_labels or change.added_members or change.removed_members:
        labels = labelled(metadata, change)
        if labels is metadata and not changes:
            return state
        changes["metadata"] = labels
    return structs.replace(state, conversation=touched(conversation, context.now, **changes))
