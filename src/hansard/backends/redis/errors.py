"""The only place where errors of Redis become ours."""

from __future__ import annotations

from redis import exceptions

from hansard.errors import Corrupt, Denied, FormatMismatch, HansardError, Outcome, TimedOut, Unavailable

# The driver removes the first word of a refusal and makes a class of it; if an older server lets a script report the
# refusal, the word may be anywhere in the text.
_Refusal = tuple[str, tuple[type[Exception], ...], str]
_REFUSED_WRITES: tuple[_Refusal, ...] = (
    ("OOM", (exceptions.OutOfMemoryError,), "is out of memory (maxmemory): make room, or raise the limit"),
    ("READONLY", (exceptions.ReadOnlyError,), "is a replica that only reads: connect to the primary"),
    ("MISCONF", (), "cannot write to its disk, and refuses writes until it can"),
    ("NOREPLICAS", (), "has fewer replicas than min-replicas-to-write asks for"),
)
_REFUSALS: tuple[_Refusal, ...] = (
    *_REFUSED_WRITES,
    ("LOADING", (exceptions.BusyLoadingError,), "is loading its data: try again in a moment"),
    ("MASTERDOWN", (exceptions.MasterDownError,), "is a replica that has lost its primary"),
    ("BUSY", (), "is busy running another script"),
    ("CLUSTERDOWN", (exceptions.ClusterDownError,), "is a cluster that does not serve all its slots"),
    ("TRYAGAIN", (exceptions.TryAgainError,), "is moving these keys to another node: try again in a moment"),
    (
        "Too many cursors",
        (),
        "has no cursor to spare for a search: try again in a moment, or raise search-index-cursor-limit",
    ),
    ("max number of clients", (), "has no connection to spare (maxclients)"),
)
_DENIED = (exceptions.AuthenticationError, exceptions.NoPermissionError)
_DENIALS = ("NOAUTH", "WRONGPASS", "NOPERM", "invalid username-password", "invalid password", "without any password")


def translate(error: Exception, where: str, *, outcome: Outcome = "not_applied") -> HansardError:
    """`outcome` says what became of a write if the connection, and not the server, failed."""
    if isinstance(error, _DENIED) or any(word in str(error) for word in _DENIALS):
        return Denied(f"{where} refuses the login: {error}")
    if is_answer(error):
        return _refused(error, where)
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return TimedOut(f"{where} did not answer in time: {error}", outcome=outcome)
    return Unavailable(f"{where} cannot be reached: {error}", outcome=outcome)


def is_answer(error: Exception) -> bool:
    """Returns whether the server itself refused a command, and so has not run it."""
    return isinstance(error, exceptions.ResponseError | exceptions.BusyLoadingError | exceptions.AuthenticationError)


def refuses_writes(error: Unavailable) -> bool:
    """Returns whether a server refused a write that it would refuse at any time in this state, but can be read."""
    return any(_is_meant(error.__cause__, each) for each in _REFUSED_WRITES)


def _is_meant(error: BaseException | None, refusal: _Refusal) -> bool:
    word, kinds, _ = refusal
    return isinstance(error, kinds) or word in str(error)


def _refused(error: Exception, where: str) -> HansardError:
    """Translates a refusal: the server answered, and has not run the command."""
    text = str(error)
    for each in _REFUSALS:
        if _is_meant(error, each):
            return Unavailable(f"{where} {each[2]} ({text})", outcome="not_applied")
    if "WRONGTYPE" in text:
        return Corrupt(f"{where} holds a value of another type than Hansard writes ({text})", where=where)
    if "unknown command" in text.lower():
        return FormatMismatch(f"{where} is not a server that Hansard can use: {text}", found="another server")
    return Unavailable(f"{where} refused: {text}", retryable=False, outcome="not_applied")
