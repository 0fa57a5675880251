"""The fields of a captured message: values that the store would refuse are moved to the metadata, as text.

An invalid field must not lose a message. The content is the message itself, and is left to the store to check.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import structs

from hansard import codec
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import NOT_YET, SCOPES, STATUSES, Message, Participant, Source
from hansard.store import checks, drafts

logger = logging.getLogger("hansard.capture")

UNREADABLE = "unreadable"
"""The key of a message's metadata that holds invalid values, by the name of their field."""
_LONGEST = 1000


def readable(message: Message, limits: Limits) -> Message:
    """Returns the message as the store accepts it. `metadata["unreadable"]` holds the values that it would refuse."""
    odd: dict[str, Any] = {}
    metadata = _metadata(message.metadata, odd)
    changes: dict[str, Any] = {
        "id": _id(message.id, limits, odd),
        "participant": _participant(message.participant, odd),
        "sources": tuple(_items(message.sources, "sources", _source, odd)),
        "mentions": tuple(_items(message.mentions, "mentions", _mention, odd)),
    }
    for name, (check, default) in _CHECKS.items():
        value = getattr(message, name)
        changes[name] = value if value is default else _checked(value, name, check, default, odd)
    if message.format:
        read = partial(drafts.format_of, message.content)
        changes["format"] = _checked(message.format, "format", read, "", odd)
    if odd:
        logger.warning("message %r is stored without the unreadable part of its %s", changes["id"], ", ".join(odd))
        metadata = {**(metadata or {}), UNREADABLE: odd}
    return structs.replace(message, metadata=metadata, **changes)


def _source(value: object) -> Source:
    return drafts.sources([value])[0]


def _mention(value: object) -> str:
    return checks.text(value, "a mention")


_CHECKS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "role": (checks.role, "user"),
    "scope": (lambda value: checks.one_of(value, SCOPES, "scope"), None),
    "status": (lambda value: checks.one_of(value, STATUSES, "status"), "complete"),
    "created_at": (lambda value: checks.time_of(value, "created_at"), NOT_YET),
    "trace_id": (lambda value: checks.text(value, "trace_id"), None),
    "usage": (drafts.usage, None),
}


def _checked(value: Any, name: str, check: Callable[[Any], Any], default: Any, odd: dict[str, Any]) -> Any:
    try:
        return check(value)
    except ValidationError:
        odd[name] = _plain(value)
        return default


def _id(id: Any, limits: Limits, odd: dict[str, Any]) -> str:
    try:
        return checks.message_id(id, limits)
    except ValidationError:
        odd["id"] = _plain(id)
    # Equal ids get equal replacements, so the message is still recorded once.
    return "msg_" + codec.digest(ascii(odd["id"]))[:40]


def _participant(value: Any, odd: dict[str, Any]) -> Participant | None:
    if value is None:
        return None
    try:
        return drafts.participant(value)
    except ValidationError:
        known = value if isinstance(value, Mapping) else {}
    try:
        who = drafts.participant({name: each for name, each in known.items() if name in _PARTICIPANT})
    except ValidationError:
        odd["participant"] = _plain(value)
        return None
    odd["participant"] = _plain({name: each for name, each in known.items() if name not in _PARTICIPANT})
    return who


_PARTICIPANT = {"kind", "id", "display_name", "displayName", "metadata"}


def _items(values: Any, name: str, check: Callable[[Any], Any], odd: dict[str, Any]) -> list[Any]:
    """Returns the elements that can be read."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        if values:
            odd[name] = _plain(values)
        return []
    kept, others = [], []
    for value in values:
        try:
            kept.append(check(value))
        except ValidationError:
            others.append(_plain(value))
    if others:
        odd[name] = others
    return kept


def _metadata(value: Any, odd: dict[str, Any]) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return checks.metadata(value)
    except ValidationError:
        pass
    if not isinstance(value, Mapping):
        odd["metadata"] = _plain(value)
        return None
    kept: dict[str, Any] = {}
    for key, each in value.items():
        try:
            kept |= checks.metadata({key: each})
        except ValidationError:
            odd.setdefault("metadata", {})[ascii(key)] = _plain(each)
    return kept


def _plain(value: Any) -> Any:
    """Returns the value as JSON or, if JSON cannot represent it, as text."""
    try:
        return codec.snapshot(value, "it")[1]
    except ValidationError:
        pass
    try:
        return ascii(value)[:_LONGEST]
    except Exception:  # a custom object that fails when it is inspected
        return f"<{type(value).__qualname__}>"
