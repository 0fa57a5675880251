"""OpenAI Agents' `SQLiteSession` and `SQLAlchemySession`: a table with an item of OpenAI's Responses a row."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation
from hansard.importers.report import ImportReport
from hansard.importers.session_rows import SessionRow, sessions
from hansard.importers.source import ImportSource
from hansard.importers.values import text, time
from hansard.model import NOT_YET, Message

_TOOLS = ("function_call_output", "custom_tool_call_output", "computer_call_output")


class AgentsSession:
    name = "openai-agents"
    title = "OpenAI Agents SDK: the database of SQLiteSession or SQLAlchemySession"

    def recognises(self, source: ImportSource) -> bool:
        return source.has_table("agent_messages", "session_id", "message_data")

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            yield from sessions(_rows(database), _message, report, self.name)


def _rows(database: ForeignDatabase) -> Iterator[SessionRow]:
    query = "SELECT id, session_id, message_data, created_at FROM agent_messages ORDER BY session_id, id"
    for id, session, body, created_at in database.rows(query):
        yield SessionRow(str(id), str(session), json_of(body), created_at)


def _message(row: SessionRow) -> Message:
    given = row.body
    role = text(given.get("role")) or ("tool" if given.get("type") in _TOOLS else "assistant")
    role = "system" if role == "developer" else role
    return Message(role, [given], row.id, format="openai.responses", created_at=time(row.created_at) or NOT_YET)
