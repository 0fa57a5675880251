"""ADK's events as messages of the history, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec
from google.adk.events import Event
from google.adk.sessions import State
from google.genai import types
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hansard.adapters.history import reading_of
from hansard.cache import Cache
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.model import Message, Participant, Usage

FORMAT = "adk"
USER = "user"

Delta = dict[str, Any]
Maker = Callable[[], Any]

_KEPT_BYTES = 32_000_000
"""Bytes of JSON. Events may hold files."""
_LEAST_BYTES = 6_400
"""A small event counts as this many bytes, so that at most 5,000 are cached."""
_PLAIN = frozenset((str, int, float, bool, bytes, type(None)))
_new = object.__new__
_set_fields, _set_given, _set_extra, _set_private = (
    vars(BaseModel)[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def row_of(event: Event) -> Message:
    """Returns the message for an event: its JSON, unchanged."""
    try:
        content = msgspec.json.decode(event.model_dump_json(exclude_none=True))
        created_at = datetime.fromtimestamp(event.timestamp, UTC)
    except PydanticSerializationError as error:
        raise ValidationError(f"event {event.id!r} is not JSON: {error}") from error
    except (OverflowError, ValueError, OSError) as error:
        raise ValidationError(f"event {event.id!r} has the timestamp {event.timestamp}: {error}") from error
    return Message(
        _role(event),
        content,
        id=event.id,
        format=FORMAT,
        participant=Participant("agent", event.author) if event.author not in ("", USER) else None,
        created_at=created_at,
        usage=_usage(event),
    )


def _role(event: Event) -> str:
    if event.get_function_responses() and not event.get_function_calls():
        return "tool"
    return USER if event.author == USER else "assistant"


def _usage(event: Event) -> Usage | None:
    spent = event.usage_metadata
    if spent is None:
        return None
    return Usage(
        spent.prompt_token_count or 0,
        spent.candidates_token_count or 0,
        spent.cached_content_token_count or 0,
        spent.thoughts_token_count or 0,
        model=event.model_version or "",
    )


class Made(NamedTuple):
    stamp: tuple[int, datetime, datetime | None]
    size: int
    make: Maker


class Events:
    """Recently created events, by their messages. Creating one with ADK costs more than reading and copying ten."""

    def __init__(self) -> None:
        self._made: Cache[tuple[str, str], Made] = Cache(_KEPT_BYTES, weigh=lambda made: max(made.size, _LEAST_BYTES))

    def event_of(self, message: Message) -> Event:
        """Returns the event of a message in ADK's format. Callers may change it."""
        key = (message.conversation_id, message.id)
        # A changed message has another time of change, one that was stored again another seq, and one of a conversation
        # that was created again another time: nothing older than a deletion is stored after it.
        stamp = (message.seq, message.created_at, message.updated_at)
        made = self._made.peek(key)
        if made is None or made.stamp != stamp:
            data = msgspec.json.encode(message.content)
            made = Made(stamp, len(data), _model_maker(Event.model_validate_json(data)))
            self._made.put(key, made)
        return cast(Event, made.make())


def maker(value: Any) -> Maker | None:
    """Returns a function that makes copies of a value sharing nothing mutable; None for an immutable value.

    Each model is inspected once, so a copy of a model with many fields costs only the mutable ones.
    """
    kind = type(value)
    if kind in _PLAIN:
        return None
    if kind is list:
        items = [maker(item) for item in value]
        if not any(items):
            return value.copy  # type: ignore[no-any-return]
        return lambda: [make() if make else item for make, item in zip(items, value, strict=True)]
    if kind is dict:
        named = {name: make for name, item in value.items() if (make := maker(item))}
        if not named:
            return value.copy  # type: ignore[no-any-return]
        return lambda: value | {name: make() for name, make in named.items()}
    if isinstance(value, BaseModel) and not value.__pydantic_private__:
        return _model_maker(value)
    return partial(deepcopy, value)


def _model_maker(model: BaseModel) -> Maker:
    kind, fields, given, private = (
        type(model),
        model.__dict__,
        model.__pydantic_fields_set__,
        model.__pydantic_private__,
    )
    named = [(name, found) for name, item in fields.items() if (found := maker(item))]
    extra = maker(model.__pydantic_extra__)

    def make() -> BaseModel:
        made = _new(kind)
        own = fields.copy()
        for name, make_item in named:
            own[name] = make_item()
        _set_fields(made, own)
        _set_extra(made, extra() if extra else None)
        _set_given(made, given.copy())
        _set_private(made, private)
        return made

    return make


def events_of(messages: Iterable[Message], agent: str, events_made: Events | None = None) -> list[Event]:
    """Returns the events of messages of any format. `agent` is the author of other frameworks' assistant messages."""
    made = events_made or Events()
    events: list[Event] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.format == FORMAT and isinstance(message.content, dict):
            events.append(made.event_of(message))
            if events[-1].author != USER:
                agent = events[-1].author
        else:
            events += _foreign(message, agent, names)
    return events


def _foreign(message: Message, agent: str, names: dict[str, str]) -> list[Event]:
    """Returns the events of a message in another format. Results are named by their calls, as Gemini requires."""
    is_assistant = message.role in ("assistant", "agent")
    contents = registry.write(reading_of(message), "gemini", message)
    # Gemini's dialogues begin with a user: drop the user turn that conversion adds to an assistant's message.
    contents = [each for each in contents if not is_assistant or each["role"] == "model"]
    events = []
    for number, each in enumerate(contents):
        content = types.Content.model_validate_json(msgspec.json.encode(each))
        for part in content.parts or []:
            if part.function_call and part.function_call.id:
                names[part.function_call.id] = part.function_call.name or ""
            if part.function_response and part.function_response.id in names:
                part.function_response.name = names[part.function_response.id]
        events.append(
            Event(
                id=message.id if len(contents) == 1 else f"{message.id}.{number}",
                invocation_id=message.id,
                author=agent if is_assistant or message.role == "tool" else USER,
                content=content,
                timestamp=message.created_at.timestamp(),
            )
        )
    return events


def delta_of(message: Message) -> Delta:
    """Returns what an event changes in the state, with the prefixes of its keys."""
    if message.format != FORMAT or not isinstance(message.content, dict):
        return {}
    delta = message.content.get("actions", {}).get("state_delta")
    return delta if isinstance(delta, dict) else {}


def text_in(message: Message) -> str:
    """Returns the text of an event, as an agent with an `output_key` also puts it into the state."""
    content = message.content.get("content") if isinstance(message.content, dict) else None
    parts = content.get("parts") if isinstance(content, dict) else None
    return "".join(part.get("text") or "" for part in parts or [] if not part.get("thought"))


class Scoped(msgspec.Struct):
    """A state by scope, without prefixes."""

    session: Delta = {}
    user: Delta = {}
    app: Delta = {}


def scoped(state: Delta) -> Scoped:
    """Splits the state by its prefixes; temporary keys are left out."""
    found = Scoped()
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            found.app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            found.user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            found.session[key] = value
    return found


def merged(session: Delta, user: Delta, app: Delta) -> Delta:
    """Returns the state as a session shows it."""
    return {
        **session,
        **{State.USER_PREFIX + key: value for key, value in user.items()},
        **{State.APP_PREFIX + key: value for key, value in app.items()},
    }


def plain(state: Delta) -> Delta:
    """Returns the state as JSON; a value that is not JSON becomes its text, as in ADK's own services."""
    made: Delta = to_jsonable_python(state, fallback=str)
    return made
