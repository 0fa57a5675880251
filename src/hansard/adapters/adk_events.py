"""ADK's events as messages of the history, and back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from google.adk.events import Event
from google.adk.sessions import State
from google.genai import types
from pydantic_core import to_jsonable_python

from hansard.adapters.history import reading_of
from hansard.formats import registry
from hansard.model import Message, Participant, Usage

FORMAT = "adk"
USER = "user"

Delta = dict[str, Any]


def row_of(event: Event) -> Message:
    """The event for the history: its very JSON."""
    content = msgspec.json.decode(event.model_dump_json(exclude_none=True))
    return Message(
        _role(event),
        content,
        id=event.id,
        format=FORMAT,
        participant=Participant("agent", event.author) if event.author not in ("", USER) else None,
        created_at=datetime.fromtimestamp(event.timestamp, UTC),
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


def events_of(messages: Iterable[Message], agent: str) -> list[Event]:
    """The events that messages of any format become; what other frameworks' assistants said is said by `agent`."""
    events: list[Event] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.format == FORMAT and isinstance(message.content, dict):
            events.append(Event.model_validate_json(msgspec.json.encode(message.content)))
            if events[-1].author != USER:
                agent = events[-1].author
        else:
            events += _foreign(message, agent, names)
    return events


def _foreign(message: Message, agent: str, names: dict[str, str]) -> list[Event]:
    """A message of another format. Results are named by their calls, which Gemini wants and others do not say."""
    is_assistant = message.role in ("assistant", "agent")
    said = registry.write(reading_of(message), "gemini", message)
    # Gemini's dialogues begin with a user: a message by itself gets one that nobody said.
    said = [each for each in said if not is_assistant or each["role"] == "model"]
    events = []
    for number, each in enumerate(said):
        content = types.Content.model_validate_json(msgspec.json.encode(each))
        for part in content.parts or []:
            if part.function_call and part.function_call.id:
                names[part.function_call.id] = part.function_call.name or ""
            if part.function_response and part.function_response.id in names:
                part.function_response.name = names[part.function_response.id]
        events.append(
            Event(
                id=message.id if len(said) == 1 else f"{message.id}.{number}",
                invocation_id=message.id,
                author=agent if is_assistant or message.role == "tool" else USER,
                content=content,
                timestamp=message.created_at.timestamp(),
            )
        )
    return events


def delta_of(message: Message) -> Delta:
    """What an event changes in the state, with the prefixes of its keys."""
    if message.format != FORMAT or not isinstance(message.content, dict):
        return {}
    delta = message.content.get("actions", {}).get("state_delta")
    return delta if isinstance(delta, dict) else {}


def said_in(message: Message) -> str:
    """What an event says, as an agent with an `output_key` puts it into the state too."""
    content = message.content.get("content") if isinstance(message.content, dict) else None
    parts = content.get("parts") if isinstance(content, dict) else None
    return "".join(part.get("text") or "" for part in parts or [] if not part.get("thought"))


class Scoped(msgspec.Struct):
    """A state by whose it is, without prefixes."""

    session: Delta = {}
    user: Delta = {}
    app: Delta = {}


def scoped(state: Delta) -> Scoped:
    """The state by its prefixes; what is temporary is left out."""
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
    """The state as a session shows it."""
    return {
        **session,
        **{State.USER_PREFIX + key: value for key, value in user.items()},
        **{State.APP_PREFIX + key: value for key, value in app.items()},
    }


def plain(state: Delta) -> Delta:
    """The state as JSON; what is no JSON by its text, as in ADK's own services."""
    made: Delta = to_jsonable_python(state, fallback=str)
    return made
