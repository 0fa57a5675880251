"""What is recorded of a turn: an `Inbound` message before, a `Reply` after.

Agents take and return all kinds of values. Those with a known shape are read here; for others, users pass functions of
their own. Nothing here fails: a value that cannot be understood becomes text, or nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from hansard.agents.capture import sdk_replies
from hansard.agents.capture.sdk_replies import field_of
from hansard.model import NOT_YET, Message, MessageScope, Participant, Source, Status, Usage

FACTS = ("conversation_id", "message_id", "user_id", "participant", "mentions", "scope", "metadata", "branch")
"""Keyword arguments of a call that describe its message. An agent receives those that it has a parameter for."""

_PRIVATE = ("im", "private", "dm")


class Inbound(Struct, frozen=True, kw_only=True):
    """A message to an agent, and where it belongs."""

    conversation_id: str | int
    content: Any
    id: str | int | None = None
    """Two captures of the same id record it once."""
    role: str = "user"
    format: str = ""
    participant: Participant | Mapping[str, Any] | None = None
    mentions: Sequence[str] = ()
    scope: MessageScope | None = None
    metadata: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    user_id: str | int | None = None
    """The owner of the conversation."""
    branch: str | None = None


class Reply(Struct, frozen=True, kw_only=True):
    """An agent's answer. An agent may return one, or end its stream with one, to report more than text."""

    content: Any = None
    """None, at the end of a stream: the text that was streamed."""
    format: str = ""
    sources: Sequence[Source | Mapping[str, Any]] = ()
    usage: Usage | Mapping[str, Any] | None = None
    trace_id: str | None = None
    status: Status = "complete"
    participant: Participant | Mapping[str, Any] | None = None
    mentions: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None


class Blocked(Exception):
    """Raised by an agent when its answer must not be shown. What was streamed of it is recorded as blocked."""


ReadInbound = Callable[..., Inbound | None]
ReadReply = Callable[[Any], Reply | None]
ReadChunk = Callable[[Any], "str | Reply | None"]


# Messages to an agent


def parameters_of(agent: Callable[..., Any]) -> frozenset[str] | None:
    """Returns the names that an agent takes by keyword; None if it takes any."""
    try:
        found = inspect.signature(agent).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in found):
        return None
    return frozenset(each.name for each in found)


def inbound_of(args: Sequence[Any], facts: Mapping[str, Any]) -> Inbound | None:
    """Returns the message of a call: its first argument, and the facts passed with it. None: nothing to record."""
    given = args[0] if args else None
    if isinstance(given, Inbound):
        return given
    # Text has no fields of its own.
    content, given = (given, None) if isinstance(given, str) else (_content_of(given), given)
    conversation = facts.get("conversation_id") or field_of(given, "conversation_id", "conversationId")
    if not conversation or content is None:
        return None

    def fact(name: str, *names: str) -> Any:
        return facts[name] if facts.get(name) is not None else field_of(given, *(names or (name,)))

    metadata = fact("metadata")
    format = field_of(given, "format")
    return Inbound(
        conversation_id=conversation,
        content=content,
        id=fact("message_id", "message_id", "messageId", "id") or None,
        role=field_of(given, "role") or "user",
        format=format if isinstance(format, str) else "",
        participant=_participant_of(fact("participant")),
        mentions=fact("mentions") or _mentions_of(metadata),
        scope=fact("scope") or _scope_of(metadata),
        metadata=metadata,
        created_at=_time_of(field_of(given, "created_at", "createdAt", "timestamp")),
        user_id=fact("user_id", "user_id", "userId"),
        branch=facts.get("branch"),
    )


def _content_of(given: Any) -> Any:
    return field_of(given, "content", "text", "message", "input")


def _time_of(value: Any) -> Any:
    return value if isinstance(value, str | datetime) and value is not NOT_YET else None


def _participant_of(value: Any) -> Any:
    return value if isinstance(value, Participant | Mapping) else _json(value) or value


def _mentions_of(metadata: Any) -> Sequence[str]:
    """As toolpack's channels write it."""
    found = metadata.get("mentions") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, list | tuple) else ()


def _scope_of(metadata: Any) -> MessageScope | None:
    """As toolpack's channels write it."""
    if not isinstance(metadata, Mapping):
        return None
    if metadata.get("channelType") in _PRIVATE:
        return "dm"
    if metadata.get("threadId"):
        return "thread"
    return "channel" if metadata.get("channelType") else None


def id_text(value: Any) -> str:
    """Returns an id as text, such as a number or a UUID. Other values stay as they are, for the store to refuse."""
    is_none = isinstance(value, str | bytes | bool | Mapping | Sequence | set)
    return value if is_none else str(value)


def as_message(inbound: Inbound, id: str) -> Message:
    return Message(
        inbound.role,
        inbound.content,
        id=id,
        format=inbound.format,
        # Mappings are converted where the store checks them.
        participant=inbound.participant,  # type: ignore[arg-type]
        mentions=inbound.mentions,  # type: ignore[arg-type]
        scope=inbound.scope,
        metadata=inbound.metadata,  # type: ignore[arg-type]
        created_at=inbound.created_at or NOT_YET,
    )


# Replies of an agent


def reply_of(result: Any) -> Reply | None:
    """Returns an agent's result as a reply. None for None: the agent did not answer."""
    if result is None or isinstance(result, Reply):
        return result
    if isinstance(result, str):
        return Reply(content=result)
    if isinstance(result, Message):
        return _of_message(result)
    if (found := sdk_replies.answer_of(result)) is not None:
        return Reply(content=found.content, format=found.format, usage=found.usage, status=found.status)
    content = field_of(result, "content", "output", "answer", "text")
    if content is None:
        return plain_reply(result)
    return Reply(
        content=_json(content),
        sources=_json(field_of(result, "sources")) or (),
        usage=sdk_replies.usage_of(field_of(result, "usage")),
        trace_id=field_of(result, "trace_id", "traceId"),
        metadata=_mapping(field_of(result, "metadata")),
    )


def _of_message(message: Message) -> Reply:
    return Reply(
        content=message.content,
        format=message.format,
        sources=message.sources,
        usage=message.usage,
        trace_id=message.trace_id,
        status=message.status,
        participant=message.participant,
        mentions=message.mentions,
        metadata=message.metadata,
    )


def with_reply(message: Message, reply: Reply) -> Message:
    """Returns the message that a reply becomes."""
    return structs.replace(
        message,
        content=reply.content,
        format=reply.format,
        status=reply.status,
        sources=reply.sources,
        usage=reply.usage,
        trace_id=reply.trace_id or message.trace_id,
        participant=reply.participant or message.participant,
        mentions=reply.mentions,
        metadata=reply.metadata,
    )


def plain_reply(value: Any) -> Reply:
    """Returns any JSON value as it is; anything else as its text, with the name of its type."""
    plain = _json(value)
    if plain is not None or value is None:
        return Reply(content=plain)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    try:
        text = str(value)
    except Exception:  # any object of the agent's, which must not make it fail
        text = f"<{kind}>"
    return Reply(content=text, metadata={"reply_type": kind})


def _json(value: Any) -> Any:
    """Returns the value as JSON; None if JSON cannot represent it."""
    if isinstance(value, str) or value is None:
        return value
    try:
        dump = getattr(value, "model_dump", None)
        return msgspec.to_builtins(dump(mode="json") if callable(dump) else value)
    except Exception:  # of an unknown type
        return None


def _mapping(value: Any) -> Mapping[str, Any] | None:
    plain = _json(value)
    return plain if isinstance(plain, dict) else None
