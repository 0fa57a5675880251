"""The range that a summary may cover."""

from __future__ import annotations

from hansard.contract.types import ConversationState
from hansard.errors import ValidationError
from hansard.model import Summary


def check_summary(state: ConversationState, summary: Summary) -> None:
    """Checks that the branch exists, and that the range ends at or before the last message ever stored.

    A longer range would cover future messages, and hide them from every prompt.
    """
    state.branch(summary.branch)
    if not 1 <= summary.from_seq <= summary.to_seq:
        raise ValidationError(
            f"a summary from seq {summary.from_seq} to {summary.to_seq} covers nothing: begin at 1 or later, and "
            "end where it begins or later"
        )
    if summary.to_seq > state.seq:
        raise ValidationError(
            f"to_seq is {summary.to_seq}, but the last seq of conversation {summary.conversation_id!r} is {state.seq}: "
            "append the messages first, then the summary that covers them"
        )
