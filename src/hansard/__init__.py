"""Hansard: the conversation store for AI agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.connect import connect
from hansard.contract.backend import Backend, Capabilities
from hansard.errors import (
    Closed,
    Conflict,
    ConversationNotFound,
    Corrupt,
    Denied,
    FormatMismatch,
    HansardError,
    MessageNotFound,
    NotFound,
    QuotaExceeded,
    RateLimited,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
    ValidationError,
)
from hansard.ids import new_id
from hansard.limits import Limits
from hansard.model import (
    Appended,
    Blob,
    BlobRef,
    Branch,
    Conversation,
    Message,
    Messages,
    Page,
    Participant,
    Problem,
    Rating,
    Receipt,
    Record,
    RecordPage,
    Report,
    Share,
    SharedConversation,
    Source,
    Stats,
    Summary,
    Usage,
    UsageRow,
    Vacuumed,
)
from hansard.search import Hit, Hits, Snippet
from hansard.store import Delete, Put, Store
from hansard.version import VERSION

if TYPE_CHECKING:
    from hansard.assembly.explanation import AnswerPrompt, Decision, Prompt
    from hansard.chat import Chat

__version__ = VERSION

__all__ = [
    "AnswerPrompt",
    "Appended",
    "Backend",
    "Blob",
    "BlobRef",
    "Branch",
    "Capabilities",
    "Chat",
    "Closed",
    "Conflict",
    "Conversation",
    "ConversationNotFound",
    "Corrupt",
    "Decision",
    "Delete",
    "Denied",
    "FormatMismatch",
    "HansardError",
    "Hit",
    "Hits",
    "Limits",
    "Message",
    "MessageNotFound",
    "Messages",
    "NotFound",
    "Page",
    "Participant",
    "Problem",
    "Prompt",
    "Put",
    "QuotaExceeded",
    "RateLimited",
    "Rating",
    "Receipt",
    "Record",
    "RecordPage",
    "Report",
    "Share",
    "SharedConversation",
    "Snippet",
    "Source",
    "Stats",
    "Store",
    "Summary",
    "TimedOut",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "Usage",
    "UsageRow",
    "Vacuumed",
    "ValidationError",
    "connect",
    "new_id",
]


def __getattr__(name: str) -> Any:
    # Rarely used: imported on first use.
    if name in ("AnswerPrompt", "Decision", "Prompt"):
        from hansard.assembly import explanation

        return getattr(explanation, name)
    if name == "Chat":
        from hansard.chat import Chat

        return Chat
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
