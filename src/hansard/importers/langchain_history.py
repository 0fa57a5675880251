"""LangChain's histories: tables of SQLite or PostgreSQL with a message a row, or lists of Redis with a session a list.

`SQLChatMessageHistory` and both generations of `PostgresChatMessageHistory` have the columns `session_id` and
`message`, in a table of any name. `RedisChatMessageHistory` of langchain-community pushes to the front of a list: its
newest message is first. The one of langchain-redis stores a JSON document a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from hansard.errors import Unsupported, ValidationError
from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.session_rows import SessionRow, sessions
from hansard.importers.source import ImportSource, ServerSource
from hansard.importers.values import mapping, number, role_of, text, time
from hansard.model import NOT_YET, Message

_COLUMNS = {"id", "session_id", "message"}
_LISTS = "message_store:"
_DOCUMENTS = "chat:"
"""What keys of Redis begin with: lists of langchain-community, and documents of langchain-redis."""
_DOCUMENT = b"ReJSON-RL"


class LangChainHistory:
    name = "langchain"
    title = "LangChain: a table of SQLChatMessageHistory or PostgresChatMessageHistory, or lists of Redis"

    def recognises(self, source: ImportSource) -> bool:
        if isinstance(source, ServerSource) and source.scheme.startswith("redis"):
            return True
        with source.tables() as database:
            return database is not None and bool(_tables(database))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        if isinstance(source, ServerSource) and source.scheme.startswith("redis"):
            yield from _lists(source, report)
            return
        with source.tables() as database:
            for table in _tables(database) if database is not None else ():
                yield from sessions(_rows(database, table), _message, report, self.name)


def _tables(database: ForeignDatabase) -> list[str]:
    """Tables whose first row holds a message of LangChain."""
    found = []
    for table in database.tables_with(_COLUMNS):
        first = next(iter(database.rows(f'SELECT message FROM "{table}" LIMIT 1')), None)
        if first is None or {"type", "data"} <= mapping(json_of(first[0])).keys():
            found.append(table)
    return found


def _rows(database: ForeignDatabase | None, table: str) -> Iterator[SessionRow]:
    assert database is not None
    at = "created_at" if "created_at" in database.columns(table) else "NULL"
    query = f'SELECT id, session_id, message, {at} FROM "{table}" ORDER BY session_id, id'
    for id, session, body, created_at in database.rows(query):
        yield SessionRow(str(id), str(session), json_of(body), created_at)


def _message(row: SessionRow) -> Message:
    given = row.body
    data = mapping(given.get("data"))
    kind = text(given.get("type")) or text(data.get("type"))
    # A ChatMessage says its role itself.
    role = role_of(data.get("role"), "assistant") if kind in ("chat", "ChatMessageChunk") else role_of(kind)
    return Message(role, given, row.id, format="langchain", created_at=time(row.created_at) or NOT_YET)


def _lists(source: ServerSource, report: ImportReport) -> Iterator[ForeignConversation]:
    """The lists of a Redis server. `?prefix=` of the URL is what their keys begin with."""
    try:
        import redis
    except ImportError:
        raise Unsupported("Redis needs redis: pip install 'hansard[redis]'", capability="redis") from None
    parts = urlsplit(source.url)
    given = parse_qs(parts.query).get("prefix")
    client: Any = redis.Redis.from_url(parts._replace(query="").geturl())
    try:
        prefix = given[0] if given else _LISTS
        for key in sorted(client.scan_iter(match=f"{_escaped(prefix)}*", count=1_000, _type="list")):
            session = key.decode(errors="replace").removeprefix(prefix)
            bodies = reversed(client.lrange(key, 0, -1))
            rows = (SessionRow(str(place), session, json_of(body)) for place, body in enumerate(bodies, 1))
            yield from sessions(rows, _message, report, "langchain")
        yield from _documents(client, given[0] if given else _DOCUMENTS, report)
    except redis.RedisError as error:
        raise ValidationError(f"cannot read {source.path}: {error}") from error
    finally:
        client.close()


def _documents(client: Any, prefix: str, report: ImportReport) -> Iterator[ForeignConversation]:
    """The messages of langchain-redis, each a JSON document that names its session and its time."""
    with RowSorter() as sorter:
        for key in client.scan_iter(match=f"{_escaped(prefix)}*", count=1_000):
            if client.type(key) != _DOCUMENT:  # servers without JSON refuse to scan for it
                continue
            found = mapping(json_of(client.execute_command("JSON.GET", key)))
            session, at = text(found.get("session_id")), number(found.get("timestamp"))
            if session and isinstance(found.get("data"), dict):
                sorter.add(session, found, at or 0.0)
            else:
                report.complain(f"document {key.decode(errors='replace')!r}", "it is not a message of LangChain")
        for session, documents in sorter.conversations():
            rows = [
                SessionRow(text(each.get("message_id")) or str(place), session, each, each.get("timestamp"))
                for place, each in enumerate(documents, 1)
            ]
            yield from sessions(iter(rows), _message, report, "langchain")


def _escaped(prefix: str) -> str:
    return "".join(f"\\{each}" if each in "*?[]\\" else each for each in prefix)
