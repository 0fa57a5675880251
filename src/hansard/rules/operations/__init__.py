"""The write operations on a conversation, written once for every storage.

An operation gets a `Transaction`, reads from it at most twice, decides by the pure functions of `hansard.rules`, and
applies one `Changes`. It awaits nothing else, so it never suspends if the storage does not, and it may run again: see
`hansard.contract.storage`.
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
