"""Hansard: the conversation store for AI agents.

A name is imported when it is first used, so that a program which needs none of them, such as `hansard --version`,
starts fast. Type checkers read the imports below, Python reads the table; a test compares the two.
"""

from __future__ import annotations

from hansard.version import VERSION

TYPE_CHECKING = False  # what type checkers look for; importing `typing` would take longer than everything else here

if TYPE_CHECKING:
    from hansard.assembly.explanation import AnswerPrompt, Decision, Prompt
    from hansard.chat import Chat
    from hansard.connection import connect
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

_NAMES = {
    "hansard.assembly.explanation": "AnswerPrompt Decision Prompt",
    "hansard.chat": "Chat",
    "hansard.connection": "connect",
    "hansard.contract.backend": "Backend Capabilities",
    "hansard.errors": (
        "Closed Conflict ConversationNotFound Corrupt Denied FormatMismatch HansardError MessageNotFound "
        "NotFound QuotaExceeded RateLimited TimedOut Unauthenticated Unavailable Unsupported ValidationError"
    ),
    "hansard.ids": "new_id",
    "hansard.limits": "Limits",
    "hansard.model": (
        "Appended Blob BlobRef Branch Conversation Message Messages Page Participant Problem Rating Receipt "
        "Record RecordPage Report Share SharedConversation Source Stats Summary Usage UsageRow Vacuumed"
    ),
    "hansard.search": "Hit Hits Snippet",
    "hansard.store": "Delete Put Store",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name):
        from importlib import import_module

        if name in _MODULES:
            value = globals()[name] = getattr(import_module(_MODULES[name]), name)
            return value
        # For type checkers, the imports above also make attributes of these modules.
        if any(module.split(".")[1] == name for module in _NAMES):
            return import_module(f"hansard.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
