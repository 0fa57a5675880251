"""Leases of messages in progress: how long a streaming writer is presumed alive.

`metadata["lease_until"]` of a message in progress is a time, which its writer extends while it lives. A message whose
lease has lapsed was left by a writer that died: it reads as interrupted, without another write. A message without a
lease stays in progress until a writer ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from hansard.model import Message

LEASE = "lease_until"


def leased(metadata: Mapping[str, Any] | None, until: datetime) -> dict[str, Any]:
    """Returns the metadata of a message in progress, with a lease."""
    return {**(metadata or {}), LEASE: until.astimezone(UTC).isoformat()}


def released(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the metadata of a message that has ended."""
    return {key: value for key, value in (metadata or {}).items() if key != LEASE} or None


def is_lapsed(message: Message, now: datetime) -> bool:
    if message.status != "in_progress" or not message.metadata:
        return False
    until = message.metadata.get(LEASE)
    try:
        return isinstance(until, str) and datetime.fromisoformat(until) < now
    except (ValueError, TypeError):  # not a time, or one without a time zone: no lease
        return False


def time_left(message: Message, now: datetime) -> timedelta | None:
    """Returns how long the lease of a message still runs; None if it has none that runs."""
    if message.status != "in_progress" or not message.metadata or is_lapsed(message, now):
        return None
    try:
        return datetime.fromisoformat(message.metadata[LEASE]) - now
    except (KeyError, ValueError, TypeError):
        return None


def end_lapsed(messages: list[Message], now: datetime) -> list[Message]:
    """Returns the messages as readers see them: those whose lease has lapsed are interrupted."""
    for message in messages:
        if message.status == "in_progress":
            return [_end_if_lapsed(each, now) for each in messages]
    return messages


def _end_if_lapsed(message: Message, now: datetime) -> Message:
    return structs.replace(message, status="interrupted") if is_lapsed(message, now) else message
