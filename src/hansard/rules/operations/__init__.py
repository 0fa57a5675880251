"""What each write to a conversation does, written once for every storage.

An operation gets a `Transaction`, asks it at most twice for what it must know, decides by the pure functions of
`hansard.rules`, and hands over one `Changes`. It awaits nothing else, so it never suspends where the storage does not,
and it may be run again: see `hansard.contract.storage`.
"""

from __future__ import annotations

from hansard.rules.operations.branches import create_branch, delete_branch, put_summary
from hansard.rules.operations.conversations import (
    create_conversation,
    delete_conversation,
    drop_conversation,
    restore,
    update_conversation,
)
from hansard.rules.operations.messages import append, replace_messages, update_message
from hansard.rules.operations.removal import remove_messages

__all__ = [
    "append",
    "create_branch",
    "create_conversation",
    "delete_branch",
    "delete_conversation",
    "drop_conversation",
    "put_summary",
    "remove_messages",
    "replace_messages",
    "restore",
    "update_conversation",
    "update_message",
]
