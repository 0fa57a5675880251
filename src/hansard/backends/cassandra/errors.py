"""The one place where errors of the driver become ours."""

from __future__ import annotations

import cassandra
from cassandra.cluster import NoHostAvailable

from hansard.errors import Denied, HansardError, Outcome, QuotaExceeded, TimedOut, Unavailable

_TIMEOUTS = (cassandra.OperationTimedOut, cassandra.Timeout)
_TOO_LARGE = ("too large", "exceeds maximum", "exceeds allowed maximum")
_FAILURES = (cassandra.WriteFailure, cassandra.ReadFailure)


def translate(error: Exception, where: str, *, outcome: Outcome = "not_applied") -> HansardError:
    """`outcome` says what became of a write if the cluster itself does not know."""
    if isinstance(error, HansardError):
        return error
    if isinstance(error, NoHostAvailable):
        return _no_host(error, where, outcome)
    if isinstance(error, cassandra.AuthenticationFailed | cassandra.Unauthorized):
        return _denied(error, where)
    if isinstance(error, (*_TIMEOUTS, *_FAILURES, cassandra.Unavailable)):
        return _unanswered(error, where, outcome)
    if any(words in str(error) for words in _TOO_LARGE):
        return QuotaExceeded(f"{where} takes no request of this size: send less at once ({error})")
    if isinstance(error, cassandra.RequestValidationException):
        return Unavailable(f"{where} refused: {error}", retryable=False, outcome="not_applied")
    return Unavailable(f"{where} cannot be reached: {error}", outcome=outcome)


def _denied(error: Exception, where: str) -> Denied:
    if isinstance(error, cassandra.Unauthorized):
        return Denied(f"{where}: the role lacks a right: {error}")
    return Denied(f"{where} does not let us in: check the name and password in the URL ({error})")


def _unanswered(error: Exception, where: str, outcome: Outcome) -> HansardError:
    """Too few replicas have answered, or none in time."""
    if isinstance(error, _TIMEOUTS):
        return TimedOut(f"{where} did not answer in time: {error}", outcome=outcome)
    if isinstance(error, _FAILURES):
        return Unavailable(f"{where}: a replica has failed: {error}", outcome=outcome)
    return Unavailable(f"{where} has too few replicas that are alive: {error}", outcome="not_applied")


def _no_host(error: NoHostAvailable, where: str, outcome: Outcome) -> HansardError:
    """No node has answered; each says why."""
    reasons = list(error.errors.values()) if isinstance(error.errors, dict) else []
    for reason in reasons:
        if isinstance(reason, cassandra.AuthenticationFailed | cassandra.Unauthorized):
            return _denied(reason, where)
    if reasons and all(isinstance(reason, Exception) for reason in reasons):
        first = reasons[0]
        if not isinstance(first, NoHostAvailable | OSError | cassandra.OperationTimedOut):
            return translate(first, where, outcome=outcome)
    said = "; ".join(dict.fromkeys(str(reason) for reason in reasons)) or str(error)
    return Unavailable(f"{where} cannot be reached: {said}", outcome=outcome)
