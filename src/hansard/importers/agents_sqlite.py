"""Databases of agent frameworks that keep messages as JSON: OpenAI Agents' `SQLiteSession`, LangChain's SQL history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError, json

from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import mapping, text, time
from hansard.model import NOT_YET, Message

_ITEM_ROLES = {"function_call_output": "tool", "custom_tool_call_output": "tool", "computer_call_output": "tool"}
_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool"}


class SqliteSession:
    name = "openai-agents"
    title = "OpenAI Agents SDK: a database of SQLiteSession"

    def recognises(self, source: ImportSource) -> bool:
        return _has_columns(source, "agent_messages", {"session_id", "message_data"})

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        query = "SELECT id, session_id, message_data, created_at FROM agent_messages ORDER BY session_id, id"
        yield from _sessions(source, query, self._message, report, self.name)

    def _message(self, id: str, given: dict[str, Any], at: object) -> Message:
        role = text(given.get("role")) or _ITEM_ROLES.get(text(given.get("type")), "assistant")
        role = "system" if role == "developer" else role
        return Message(role, [given], id, format="openai.responses", created_at=time(at) or NOT_YET)


class LangChainSql:
    name = "langchain"
    title = "LangChain: a SQLite database of SQLChatMessageHistory"

    def recognises(self, source: ImportSource) -> bool:
        return _has_columns(source, "message_store", {"session_id", "message"})

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        query = "SELECT id, session_id, message, NULL FROM message_store ORDER BY session_id, id"
        yield from _sessions(source, query, self._message, report, self.name)

    def _message(self, id: str, given: dict[str, Any], at: object) -> Message:
        kind = text(given.get("type")) or text(mapping(given.get("data")).get("type"))
        return Message(_LANGCHAIN_ROLES.get(kind, kind or "user"), given, id, format="langchain")


def _has_columns(source: ImportSource, table: str, columns: set[str]) -> bool:
    names = source.names()
    if len(names) != 1 or not source.is_database(names[0]):
        return False
    with source.database(names[0]) as database:
        return columns <= {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _sessions(
    source: ImportSource, query: str, message: Any, report: ImportReport, name: str
) -> Iterator[ForeignConversation]:
    """Rows in the order of sessions, one conversation each."""
    with source.database(source.names()[0]) as database:
        session: str | None = None
        found: list[ForeignMessage] = []
        for id, its_session, body, at in database.execute(query):
            if session is not None and its_session != session:
                yield _conversation(session, found, name)
                found = []
            session = str(its_session)
            given = _object(body)
            if given is None:
                report.complain(f"session {session!r}, row {id}", "its message is not a JSON object")
                continue
            before = found[-1].message.id if found else None
            found.append(ForeignMessage(message(str(id), given, at), before))
        if session is not None:
            yield _conversation(session, found, name)


def _object(body: object) -> dict[str, Any] | None:
    try:
        given = json.decode(body) if isinstance(body, str | bytes) else None
    except DecodeError:
        return None
    return given if isinstance(given, dict) else None


def _conversation(session: str, messages: list[ForeignMessage], name: str) -> ForeignConversation:
    first = messages[0].message.created_at if messages else NOT_YET
    return ForeignConversation(
        id=session,
        messages=messages,
        created_at=None if first is NOT_YET else first,
        metadata={"imported_from": name},
    )


__all__ = ["LangChainSql", "SqliteSession"]
