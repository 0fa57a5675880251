"""Google ADK: the database of `SqliteSessionService` or `DatabaseSessionService`, in SQLite or PostgreSQL.

Events become messages of the format `adk`, and sessions go on under Hansard's session service, with their state and
that of their app and user. Tables of the first generation keep the actions of an event as Python pickles, which are not
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import count, items, mapping, text, time
from hansard.model import NOT_YET, Message, Participant, Usage
from hansard.store.records import Put

_FIRST_GENERATION = ("id", "session_id", "author", "content")
_COLUMNS = {
    **{name: name for name in ("invocation_id", "author", "branch", "error_code", "error_message")},
    **{name: name for name in ("content", "grounding_metadata", "custom_metadata", "usage_metadata")},
    **{name: name for name in ("citation_metadata", "input_transcription", "output_transcription")},
    **{name: name for name in ("partial", "turn_complete", "interrupted")},
    "long_running_tool_ids_json": "long_running_tool_ids",
}
"""Columns of the first generation, and the fields of an event that they hold."""
_FLAGS = ("partial", "turn_complete", "interrupted")
_SESSIONS = "adk-sessions"
_APP_STATE = "adk-app-state"
_USER_STATE = "adk-user-state"

States = dict[tuple[str, ...], dict[str, Any]]
"""The states of apps, and of users of an app, that no session has taken along yet."""


class AdkDatabase:
    name = "adk"
    title = "Google ADK: the database of its session service"

    def recognises(self, source: ImportSource) -> bool:
        with source.tables() as database:
            if database is None or not {"app_name", "user_id", "state"} <= database.columns("sessions"):
                return False
            columns = database.columns("events")
            return "event_data" in columns or set(_FIRST_GENERATION) <= columns

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            states = _shared_states(database)
            is_first = "event_data" not in database.columns("events")
            query = "SELECT app_name, user_id, id, state, create_time FROM sessions ORDER BY create_time, id"
            used: set[str] = set()
            for row in list(database.rows(query)):
                session = _session(database, row, used, report, is_first=is_first)
                yield _with_shared_states(session, states, *row[:2])
            for place in states:
                report.lose("state of an app or of a user without any session", "/".join(place))


def _shared_states(database: ForeignDatabase) -> States:
    states: States = {}
    for table, names in (("app_states", ("app_name",)), ("user_states", ("app_name", "user_id"))):
        if database.columns(table):
            for *place, state in database.rows(f"SELECT {', '.join(names)}, state FROM {table}"):
                states[tuple(map(str, place))] = mapping(json_of(state))
    return {place: state for place, state in states.items() if state}


def _with_shared_states(session: ForeignConversation, states: States, app: str, user: str) -> ForeignConversation:
    """The first session of an app, and of a user, brings what all of them share."""
    of_app, of_user = states.pop((app,), None), states.pop((app, user), None)
    return structs.replace(
        session,
        records=[*session.records, *([Put((_APP_STATE,), app, of_app)] if of_app else [])],
        user_records=[Put((_USER_STATE,), app, of_user)] if of_user else [],
    )


def _session(
    database: ForeignDatabase, row: Sequence[Any], used: set[str], report: ImportReport, *, is_first: bool
) -> ForeignConversation:
    app, user, id, state, created_at = row
    conversation_id = id if id not in used else f"{app}/{user}/{id}"
    used.add(conversation_id)
    place = (app, user, id)
    found = [*(_old_events if is_first else _events)(database, place, report)]
    parents = [None, *(message.id for message in found)]
    record = {"conversation_id": conversation_id, "state": mapping(json_of(state)), "applied": len(found), "said": {}}
    return ForeignConversation(
        id=conversation_id,
        messages=[ForeignMessage(message, parent) for message, parent in zip(found, parents, strict=False)],
        created_at=time(created_at),
        user_id=user,
        agent_id=app,
        metadata={"imported_from": "adk", "adk_app": app},
        records=[Put((_SESSIONS, app, user), id, record, conversation_id=conversation_id)],
    )


def _events(database: ForeignDatabase, place: Sequence[str], report: ImportReport) -> Iterator[Message]:
    query = (
        "SELECT id, event_data, timestamp FROM events WHERE app_name = ? AND user_id = ? AND session_id = ? "
        "ORDER BY timestamp, id"
    )
    for id, body, at in database.rows(query, *place):
        event = json_of(body)
        if isinstance(event, dict):
            yield _message(id, {"id": id} | event, at)
        else:
            report.complain(f"session {place[2]!r}, event {id!r}", "its data are not a JSON object")


def _old_events(database: ForeignDatabase, place: Sequence[str], report: ImportReport) -> Iterator[Message]:
    known = database.columns("events")
    names = [name for name in _COLUMNS if name in known]
    query = (
        f"SELECT id, timestamp, {', '.join(names)} FROM events "
        "WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, id"
    )
    for id, at, *values in database.rows(query, *place):
        found = {_COLUMNS[name]: _decoded(name, value) for name, value in zip(names, values, strict=True)}
        event = {name: value for name, value in found.items() if value is not None}
        report.lose("actions of an event, which are a Python pickle", f"session {place[2]!r}, event {id!r}")
        yield _message(id, {"id": id, "timestamp": _seconds(at)} | event, at)


def _decoded(name: str, value: Any) -> Any:
    """A value of a column. Some are JSON."""
    if name in _FLAGS:
        return None if value is None else bool(value)
    found = json_of(value)
    return found if isinstance(found, dict | list) else value


def _message(id: str, event: dict[str, Any], at: object) -> Message:
    author = text(event.get("author"))
    parts = [mapping(part) for part in items(mapping(event.get("content")).get("parts"))]
    answers = any("function_response" in part or "functionResponse" in part for part in parts)
    calls = any("function_call" in part or "functionCall" in part for part in parts)
    role = "tool" if answers and not calls else "user" if author == "user" else "assistant"
    spent = mapping(event.get("usage_metadata")) or mapping(event.get("usageMetadata"))
    return Message(
        role,
        event,
        id,
        format="adk",
        participant=Participant("agent", author) if author not in ("", "user") else None,
        created_at=time(event.get("timestamp")) or time(at) or NOT_YET,
        usage=Usage(
            model=text(event.get("model_version")) or None,
            input_tokens=count(spent.get("prompt_token_count")),
            output_tokens=count(spent.get("candidates_token_count")),
            cached_tokens=count(spent.get("cached_content_token_count")),
            reasoning_tokens=count(spent.get("thoughts_token_count")),
        )
        if spent
        else None,
    )


def _seconds(value: object) -> float | None:
    found = time(value)
    return None if found is None else found.timestamp()
