"""The only place where PostgreSQL's errors become ours.

A statement that the server refuses was not applied. If the connection is lost, only a commit in progress may have been
applied.
"""

from __future__ import annotations

from collections.abc import Callable

import asyncpg

from hansard.errors import (
    Corrupt,
    Denied,
    FormatMismatch,
    HansardError,
    Outcome,
    TimedOut,
    Unavailable,
    ValidationError,
)

DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What the driver raises. asyncpg's own time-outs are TimeoutError; an unreachable server is an OSError."""

_LOST = {"25P03", "57P01", "57P02", "57P03", "57P05"}
_AGAIN = {"40001", "40P01", "0A000"}
"""Serialization failure, deadlock, and a plan that a schema change has outdated: the transaction runs again."""


class Raced(Exception):
    """Another writer created the same row first: the transaction runs again, and finds it."""


def is_lost(error: BaseException) -> bool:
    """Returns whether the connection is lost or unusable."""
    state = _state(error)
    if state is not None:
        return state in _LOST or state.startswith("08")
    return isinstance(error, OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)


def may_run_again(error: BaseException) -> bool:
    """Returns whether an uncommitted transaction may simply run again."""
    if isinstance(error, Raced) or _state(error) in _AGAIN:
        return True
    # A server that answers too slowly is not asked twice.
    return is_lost(error) and not isinstance(error, TimeoutError)


def is_read_only(error: BaseException) -> bool:
    """Returns whether the server accepts no writes: it may have been the primary, and another one may be it now."""
    return _state(error) == "25006"


def leaves_usable(error: BaseException) -> bool:
    """Returns whether the connection can still be used after this error."""
    is_known = isinstance(error, HansardError | Raced | asyncpg.PostgresError)
    return is_known and not is_lost(error) and not is_read_only(error)


def was_cancelled(error: BaseException) -> bool:
    """Returns whether the server cancelled the statement because it took too long."""
    return _state(error.__cause__ or error) == "57014"


def was_refused_by_driver(error: BaseException) -> bool:
    """Returns whether the driver has sent nothing, because its connection was just being closed."""
    return isinstance(error, asyncpg.InternalClientError) and "cannot switch to state" in str(error)


def is_bad_value(error: BaseException) -> bool:
    """Returns whether the server refuses the value of one caller, which does not concern the others."""
    return (_state(error) or "")[:2] in ("22", "54")


def translate(error: BaseException, where: str, outcome: Outcome = "not_applied") -> HansardError:
    """Translates by SQLSTATE, else by its class (the first two characters). `outcome` is for a lost connection."""
    if isinstance(error, HansardError):
        return error
    if isinstance(error, TimeoutError):
        return TimedOut(f"{where} did not answer in time", outcome=outcome)
    if is_lost(error):
        return Unavailable(f"the connection to {where} was lost: {error}", outcome=outcome)
    state = _state(error) or ""
    return (_STATES.get(state) or _STATES.get(state[:2]) or _other)(error, where)


def _state(error: BaseException) -> str | None:
    return error.sqlstate if isinstance(error, asyncpg.PostgresError) else None


def _timed_out(error: BaseException, where: str) -> HansardError:
    return TimedOut(
        f"{where} cancelled the statement: {error} (raise statement_timeout=… in the URL)", outcome="not_applied"
    )


def _read_only(error: BaseException, where: str) -> HansardError:
    return Denied(f"{where} accepts no writes: it is a replica, or set to read only ({error})")


def _no_rights(error: BaseException, where: str) -> HansardError:
    return Denied(f"{where}: {error}: GRANT the rights to the user in the URL, or connect as another user")


def _no_login(error: BaseException, where: str) -> HansardError:
    return Denied(f"{where} refuses the login: {error} (check the user and password in the URL, or PGPASSWORD)")


def _no_database(error: BaseException, where: str) -> HansardError:
    return ValidationError(f"{where}: {error}: create it, for example with `createdb`, or name another in the URL")


def _no_room(error: BaseException, where: str) -> HansardError:
    return Unavailable(f"{where} is out of disk space, and wrote nothing: {error}")


def _not_ours(error: BaseException, where: str) -> HansardError:
    return FormatMismatch(
        f"{where} does not have the schema that Hansard created: {error} (was its schema dropped or changed?)"
    )


def _damaged(error: BaseException, where: str) -> HansardError:
    return Corrupt(f"{where} is damaged: {error}", where=where)


def _bad_value(error: BaseException, where: str) -> HansardError:
    return ValidationError(f"PostgreSQL cannot store a value: {error}")


def _again(error: BaseException, where: str) -> HansardError:
    return Unavailable(f"{where} had too many concurrent writers of the same row: {error}")


def _other(error: BaseException, where: str) -> HansardError:
    if isinstance(error, Raced):
        return _again(error, where)
    return Unavailable(f"{where}: {error}", retryable=False)


_STATES: dict[str, Callable[[BaseException, str], HansardError]] = {
    "22": _bad_value,
    "54": _bad_value,
    "25006": _read_only,
    "28": _no_login,
    "3D": _no_database,
    "3F": _not_ours,
    "40": _again,
    "42501": _no_rights,
    "42": _not_ours,
    "53": _no_room,
    "55P03": _timed_out,
    "57014": _timed_out,
    "58": _no_room,
    "XX001": _damaged,
    "XX002": _damaged,
}
