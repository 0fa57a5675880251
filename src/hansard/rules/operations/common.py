"""Helpers of operations: visibility, creation, runs and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from msgspec import structs

from hansard.contract.storage import Placed, Run, Transaction, Wipe
from hansard.contract.types import ConversationState, StoredBranch
from hansard.model import Conversation, Message, Summary, Usage, UsageRow
from hansard.rules.branches import NO_END, segments
from hansard.rules.state import check_owner, is_visible, not_found

Place = tuple[int, int]
"""The segment and seq of a message."""


def visible(tx: Transaction) -> ConversationState | None:
    """Returns the state, if the context may see the conversation."""
    state = tx.state
    return state if state is not None and is_visible(state.conversation, tx.context) else None


def require(tx: Transaction) -> ConversationState:
    """Returns the state, for a write that only the owner may make, or a caller without a user."""
    state = require_visible(tx)
    check_owner(state.conversation, tx.context)
    return state


def require_visible(tx: Transaction) -> ConversationState:
    """Returns the state, for a write that members may make, too."""
    state = visible(tx)
    if state is None:
        raise not_found(tx.id)
    return state


def wiped_by_creation(tx: Transaction) -> Wipe:
    """Returns what must be removed before a conversation is created: an expired one that the context does not see.

    A conversation of another owner must look as if it did not exist, and its id cannot be used.
    """
    if tx.state is None:
        return "nothing"
    expires = tx.state.conversation.expires_at
    if expires is None or expires > tx.context.now:
        raise not_found(tx.id)
    return "everything"


def runs_of(branch: StoredBranch) -> list[Run]:
    """Returns all runs that a branch reads, oldest first."""
    return [Run(segment, 0, upto) for segment, upto in segments(branch)]


def runs_beyond(unreachable: Iterable[Place]) -> list[Run]:
    return [Run(segment, seq, NO_END) for segment, seq in unreachable]


def places_of(placed: Iterable[Placed]) -> list[Place]:
    return [(segment, message.seq) for segment, message in placed]


def is_beyond(place: Place, unreachable: Sequence[Place]) -> bool:
    """Returns whether a message is on one of these segments after its seq."""
    return any(place[0] == segment and place[1] > seq for segment, seq in unreachable)


def with_text(state: ConversationState, text: str | None) -> ConversationState:
    """Returns the state with the text of its newest summary."""
    if state.conversation.summary == text:
        return state
    return structs.replace(state, conversation=structs.replace(state.conversation, summary=text))


def without_summaries(state: ConversationState, summaries: Sequence[Summary], lost: Sequence[int]) -> ConversationState:
    """Returns the state without the summaries at these positions."""
    if not lost:
        return state
    left = [summary for position, summary in enumerate(summaries) if position not in lost]
    return with_text(state, left[-1].text if left else None)


def usage_of(conversation: Conversation, messages: Iterable[Message]) -> list[UsageRow]:
    """Returns the usage that new messages add, each day and model once."""
    used: dict[tuple[date, str | None], list[Usage]] = {}
    for message in messages:
        if (usage := message.usage) is not None:
            used.setdefault((message.created_at.date(), usage.model or None), []).append(usage)
    if not used:
        return []
    return [
        UsageRow(
            day.isoformat(),
            conversation.user_id,
            conversation.agent_id,
            model,
            len(each),
            sum([usage.input_tokens for usage in each]),
            sum([usage.output_tokens for usage in each]),
            sum([usage.cached_tokens for usage in each]),
            sum([usage.reasoning_tokens for usage in each]),
            sum([usage.cost for usage in each]),
        )
        for (day, model), each in used.items()
    ]
