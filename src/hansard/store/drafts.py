"""Drafts of messages: checked, encoded once, with large base64 moved into blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from hansard import codec, ids
from hansard.contract.types import Draft
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import KINDS, NOT_YET, SCOPES, STATUSES, Message, Participant, Source, Usage
from hansard.store import checks, marks

_MOST_TOKENS = 10**15
_MOST_COST = 1e15
"""Limits a cost so that sums fit the integers of every storage."""


LONG = 1_000_000
"""Texts with more characters than this are long."""
_DEEP = 4
"""How deep in content to look for a long text: `[{"image_url": {"url": ...}}]`."""


class Drafts(Struct, frozen=True, gc=False):
    """Drafts, and the bytes of the blobs that they refer to."""

    drafts: tuple[Draft, ...]
    blobs: Mapping[str, bytes]
    has_ratings: bool = False


_FIELDS = frozenset(Message.__struct_fields__) - {"seq", "blobs"}
_OTHER_NAMES = {
    "message_id": "id",
    "messageId": "id",
    "conversationId": "conversation_id",
    "timestamp": "created_at",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "traceId": "trace_id",
}
"""The names of these fields in other stores."""


def as_message(value: object) -> Message:
    """Returns a message given as one, or as a mapping such as `{"role": "user", "content": "Hello"}`."""
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise ValidationError(f"a message must be a Message or a mapping, not a {type(value).__name__}")
    if not value.keys() <= _FIELDS:
        value = _with_our_names(value)
    if unknown := set(value) - _FIELDS:
        raise ValidationError(
            f"a message has unknown fields {sorted(map(str, unknown))}: put your own under 'metadata'"
        )
    for needed in ("role", "content"):
        if needed not in value:
            raise ValidationError(f"a message needs {needed!r}")
    if isinstance(value.get("created_at"), str):
        value = {**value, "created_at": checks.time_of(value["created_at"], "created_at")}
    return Message(**value)


def _with_our_names(value: Mapping[Any, Any]) -> dict[Any, Any]:
    named: dict[Any, Any] = {}
    for given, content in value.items():
        name = _OTHER_NAMES.get(given, given)
        if name in named or (name != given and name in value):
            raise ValidationError(f"a message says its {name!r} twice, once as {given!r}")
        named[name] = content
    return named


def as_messages(value: object) -> list[Message]:
    if type(value) is not list:
        if isinstance(value, Message | Mapping):
            return [as_message(value)]
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise ValidationError(f"messages must be a list of messages, not a {type(value).__name__}")
    return [item if type(item) is Message else as_message(item) for item in value]


def are_long(messages: Iterable[Message]) -> bool:
    """Whether any text is so long that checking it would block the event loop noticeably."""
    for message in messages:
        content = message.content
        if len(content) > LONG if type(content) is str else _is_long(content, _DEEP):
            return True
    return False


def _is_long(content: object, depth: int) -> bool:
    parts = content.values() if type(content) is dict else content if type(content) is list else ()
    for part in parts:  # noqa: SIM110  (a generator costs more than the loop, on every append)
        if len(part) > LONG if type(part) is str else depth and _is_long(part, depth - 1):
            return True
    return False


def make_drafts(messages: Iterable[Message], limits: Limits, *, are_parsed: bool = False) -> Drafts:
    """`are_parsed`: contents and metadata were decoded from JSON for this call, and nothing else refers to them."""
    blobs: dict[str, bytes] = {}
    drafts = tuple([make_draft(message, limits, blobs, is_parsed=are_parsed) for message in messages])
    return Drafts(drafts, blobs, _have_ratings(drafts))


def _have_ratings(drafts: Iterable[Draft]) -> bool:
    for draft in drafts:  # noqa: SIM110  (a generator costs more than the loop, on every append)
        if draft.message.ratings:
            return True
    return False


def make_draft(message: Message, limits: Limits, blobs: dict[str, bytes], *, is_parsed: bool = False) -> Draft:
    """Returns a checked draft, and adds the bytes that it moved out of the content to `blobs`."""
    if message.blobs:
        raise ValidationError("a message read with blobs='refs' lacks the content of its blobs: read it with 'inline'")
    given_id = message.id != ""
    format = format_of(message.content, message.format)
    body = codec.body_of(message.content, format, limits, is_parsed=is_parsed)
    if body.blobs:
        blobs.update(body.blobs)
    created_at, metadata = message.created_at, message.metadata
    checked = Message(
        checks.role(message.role),
        body.content,
        checks.message_id(message.id, limits) if given_id else ids.message_id(),
        format=format,
        created_at=NOT_YET if created_at is NOT_YET or created_at is None else checks.time(created_at, "created_at"),
        metadata=metadata if metadata is None or is_parsed else checks.metadata(metadata),
        blobs=body.refs,
    )
    if rare := _rare_fields(message, limits):
        checked = structs.replace(checked, **rare)
    return Draft(checked, body.text, body.size, given_id)


def format_of(content: Any, format: str | None) -> str:
    """Returns the format of the content: as given, else `text` for a string and `json` for anything else."""
    if not format:
        return "text" if isinstance(content, str) else "json"
    format = checks.text(format, "format")
    if format == "text" and not isinstance(content, str):
        raise ValidationError(f"content of the format 'text' must be text, not a {type(content).__name__}")
    return format


def _rare_fields(message: Message, limits: Limits) -> dict[str, Any]:
    """Returns the fields that most messages leave at their default, checked where they are not."""
    fields: dict[str, Any] = {}
    if message.participant is not None:
        fields["participant"] = participant(message.participant)
    if message.mentions:
        fields["mentions"] = checks.texts(message.mentions, "mentions")
    if message.scope is not None:
        fields["scope"] = checks.one_of(message.scope, SCOPES, "scope")
    if message.status != "complete":
        fields["status"] = checks.one_of(message.status, STATUSES, "status")
    if message.pinned:
        fields["pinned"] = checks.flag(message.pinned, "pinned")
    if message.trace_id is not None:
        fields["trace_id"] = checks.text(message.trace_id, "trace_id")
    if message.sources:
        fields["sources"] = sources(message.sources)
    if message.usage is not None:
        fields["usage"] = usage(message.usage)
    if message.labels:
        fields["labels"] = marks.checked_labels(message.labels, limits)
    if message.ratings:
        fields["ratings"] = marks.checked_ratings(message.ratings, limits)
    if message.prompt_id is not None:
        fields["prompt_id"] = prompt_id(message.prompt_id)
    return fields


def prompt_id(value: object) -> str:
    from hansard.assembly import prompt_ids  # imported late: it loads every format

    text = checks.text(value, "prompt_id")
    prompt_ids.decode(text)
    return text


def participant(value: object) -> Participant:
    if type(value) is Participant and value.metadata is None and value.kind in KINDS:
        # Nearly all are like this: nothing to convert, and nothing mutable.
        names = (value.kind, value.id, value.kind if value.display_name is None else value.display_name)
        if all(type(name) is str and name.isascii() for name in names):
            return value
    return checks.struct(value, Participant, "participant")


def sources(value: object) -> tuple[Source, ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ValidationError("sources must be a list of sources")
    return tuple(checks.struct(item, Source, "a source") for item in value)


def usage(value: object) -> Usage:
    if type(value) is Usage and _is_plain_usage(value):
        return value
    given = checks.struct(value, Usage, "usage")
    for name in ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
        checks.count(getattr(given, name), f"usage.{name}", _MOST_TOKENS, least=0)
    if not 0 <= given.cost <= _MOST_COST:
        raise ValidationError(f"usage.cost is {given.cost}: it must be between 0 and {_MOST_COST:g}")
    return given


def _is_plain_usage(value: Usage) -> bool:
    """Returns whether there is nothing to convert: most usages are like this."""
    counts = (value.input_tokens, value.output_tokens, value.cached_tokens, value.reasoning_tokens)
    if type(value.cost) is not float or not 0 <= value.cost <= _MOST_COST:
        return False
    for count in counts:
        if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
            return False
    return value.model is None or (type(value.model) is str and value.model.isascii())
