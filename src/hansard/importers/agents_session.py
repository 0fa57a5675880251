"""OpenAI Agents' sessions in a database: a table with an item of OpenAI's Responses a row.

`SQLiteSession`, `SQLAlchemySession` and `AdvancedSQLiteSession` share that table, whatever it is called. The last one
keeps branches in `message_structure`, and usage a turn. Items of an `EncryptedSession` cannot be read without its key.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.session_rows import SessionRow, sessions
from hansard.importers.source import ImportSource
from hansard.importers.values import count, mapping, role_of, text, time
from hansard.model import NOT_YET, Message, Usage

_COLUMNS = {"id", "session_id", "message_data"}
_STRUCTURE = "message_structure"
_ENCRYPTED = "it is encrypted: read it with its EncryptedSession, and store it without"


class AgentsSession:
    name = "openai-agents"
    title = "OpenAI Agents SDK: the database of SQLiteSession, AdvancedSQLiteSession or SQLAlchemySession"

    def recognises(self, source: ImportSource) -> bool:
        with source.tables() as database:
            return database is not None and bool(database.tables_with(_COLUMNS))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            for table in database.tables_with(_COLUMNS):
                for session in sessions(_rows(database, table), _message, report, self.name, is_parsed=True):
                    yield _branched(database, session, report)


def _rows(database: ForeignDatabase, table: str) -> Iterator[SessionRow]:
    query = f'SELECT id, session_id, message_data, created_at FROM "{table}" ORDER BY session_id, id'
    for id, session, body, created_at in database.rows(query):
        item = json_of(body)
        if isinstance(item, dict) and "__enc__" in item:
            yield SessionRow(str(id), str(session), None, created_at, _ENCRYPTED)
        else:
            yield SessionRow(str(id), str(session), item, created_at)


def _message(row: SessionRow) -> Message:
    given = row.body
    is_tool = text(given.get("type")).endswith("_call_output")
    role = "tool" if is_tool else role_of(given.get("role"), "assistant")
    return Message(role, [given], row.id, format="openai.responses", created_at=time(row.created_at) or NOT_YET)


def _branched(database: ForeignDatabase, session: ForeignConversation, report: ImportReport) -> ForeignConversation:
    """A session with its branches, where it has some. The one with the newest item was the last in use."""
    if not {"message_id", "branch_id", "sequence_number"} <= database.columns(_STRUCTURE):
        return session
    query = (
        f"SELECT branch_id, message_id, user_turn_number FROM {_STRUCTURE} "
        "WHERE session_id = ? ORDER BY branch_id, sequence_number"
    )
    places = [(str(branch), str(id), turn) for branch, id, turn in database.rows(query, session.id)]
    if not places:
        return session
    messages = {each.message.id: each.message for each in session.messages}
    parents: dict[str, str | None] = {}
    last: dict[str, str] = {}
    turns: dict[tuple[str, object], str] = {}
    for branch, id, turn in places:
        if id in messages:
            parents.setdefault(id, last.get(branch))
            last[branch] = turns[branch, turn] = id
    for id in messages.keys() - parents.keys():
        report.lose("item of no branch", f"session {session.id!r}, row {id}")
    for place, usage in _usages(database, session.id):
        if (known := turns.get(place)) is not None:
            messages[known] = structs.replace(messages[known], usage=usage)
    names = [*dict.fromkeys(branch for branch, *_ in places)]
    return structs.replace(
        session,
        messages=[ForeignMessage(each, parents[id]) for id, each in messages.items() if id in parents],
        metadata={**session.metadata, **({"branches": names} if len(names) > 1 else {})},
    )


def _usages(database: ForeignDatabase, session: str) -> Iterator[tuple[tuple[str, object], Usage]]:
    """What each turn of a branch has used."""
    if not database.columns("turn_usage"):
        return
    query = (
        "SELECT branch_id, user_turn_number, input_tokens, output_tokens, input_tokens_details, output_tokens_details "
        "FROM turn_usage WHERE session_id = ?"
    )
    for branch, turn, given, made, read, written in database.rows(query, session):
        yield (
            (str(branch), turn),
            Usage(
                input_tokens=count(given),
                output_tokens=count(made),
                cached_tokens=count(mapping(json_of(read)).get("cached_tokens")),
                reasoning_tokens=count(mapping(json_of(written)).get("reasoning_tokens")),
            ),
        )
