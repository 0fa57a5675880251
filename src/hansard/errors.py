"""Every error that Hansard raises, in one tree and one table.

HansardError
├── ValidationError          the call itself is wrong; nothing was written
│   └── QuotaExceeded        a limit would be passed; nothing was written
├── NotFound
│   ├── ConversationNotFound
│   └── MessageNotFound
├── Conflict                 another writer was first; nothing was written
├── Corrupt                  stored data cannot be read
├── FormatMismatch           the store was written by another version
├── Unsupported              this backend cannot do that
├── Denied                   this view or key may not do that
│   └── Unauthenticated      the server does not know the caller
├── Closed                   the store was closed
└── Unavailable              the storage did not answer
    ├── TimedOut
    └── RateLimited          too many requests; nothing was written

`code` is stable: the HTTP body, the CLI's exit code and the Python class come from this one table. Errors are
picklable, and their facts are attributes, so that callers need not parse the message.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

Outcome = Literal["not_applied", "unknown"]


class HansardError(Exception):
    """Base of every error that Hansard raises."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    @property
    def details(self) -> dict[str, Any]:
        """The error's facts, as the wire carries them."""
        return dict(self.__dict__)


class ValidationError(HansardError, ValueError):
    """An argument is wrong. Nothing was written: correct the call and repeat it."""

    code, status, exit_code = "invalid", 400, 2


class QuotaExceeded(ValidationError):
    """A limit would be passed. Nothing was written: raise the limit in `Limits`, or send less."""

    code, status, exit_code = "quota_exceeded", 422, 3

    def __init__(self, message: str, *, limit: int | None = None, value: int | None = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.value = value


class NotFound(HansardError, LookupError):
    """The item does not exist, has expired, or is behind a wall."""

    code, status, exit_code = "not_found", 404, 4


class ConversationNotFound(NotFound):
    """There is no such conversation here. Create it, or append with `create=True`."""

    code = "conversation_not_found"


class MessageNotFound(NotFound):
    """The message does not exist in this conversation. `message.cursor` outlives its message; an id does not."""

    code = "message_not_found"


class Conflict(HansardError):
    """Another writer was first. Nothing was written: read again, decide again, repeat."""

    code, status, exit_code = "conflict", 409, 5

    def __init__(self, message: str, *, expected: int | None = None, actual: int | None = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class Corrupt(HansardError):
    """Stored data cannot be read. It is reported, never skipped: run `hansard check`, restore a backup."""

    code, status, exit_code = "corrupt", 500, 6

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.where = where


class FormatMismatch(HansardError):
    """The store was written by another version of Hansard. Older: `hansard upgrade`. Newer: install that version."""

    code, status, exit_code = "format_mismatch", 500, 7

    def __init__(self, message: str, *, found: str | None = None, wanted: str | None = None) -> None:
        super().__init__(message)
        self.found = found
        self.wanted = wanted


class Unsupported(HansardError):
    """This backend's `Capabilities` do not include the operation."""

    code, status, exit_code = "unsupported", 501, 8

    def __init__(self, message: str, *, capability: str | None = None) -> None:
        super().__init__(message)
        self.capability = capability


class Denied(HansardError):
    """This view, key or file may not do that."""

    code, status, exit_code = "denied", 403, 9


class Unauthenticated(Denied):
    """The server does not know the caller. Send `Authorization: Bearer` with a valid key."""

    code, status = "unauthenticated", 401


class Closed(HansardError):
    """The store was closed. Open a new one."""

    code, status, exit_code = "closed", 503, 10


class Unavailable(HansardError):
    """The storage did not answer. `outcome` says whether a write may be applied; appends with ids are safe to retry."""

    code, status, exit_code = "unavailable", 503, 11

    def __init__(self, message: str, *, retryable: bool = True, outcome: Outcome = "not_applied") -> None:
        super().__init__(message)
        self.retryable = retryable
        self.outcome: Outcome = outcome


class TimedOut(Unavailable):
    """The storage did not answer in time. `outcome` says whether a write may be applied."""

    code, status, exit_code = "timed_out", 504, 12


class RateLimited(Unavailable):
    """This key sends too many requests. Nothing was written: wait `retry_after` seconds, then repeat the call."""

    code, status = "rate_limited", 429

    def __init__(
        self, message: str, *, retry_after: int = 1, retryable: bool = True, outcome: Outcome = "not_applied"
    ) -> None:
        super().__init__(message, retryable=retryable, outcome=outcome)
        self.retry_after = retry_after


def _tree(root: type[HansardError]) -> dict[str, type[HansardError]]:
    table = {root.code: root}
    for child in root.__subclasses__():
        table |= _tree(child)
    return table


TABLE: dict[str, type[HansardError]] = _tree(HansardError)
"""Code → class: how the `http` backend raises the same class as the server."""
