"""toolpack: its stored messages, as JSON or JSON Lines, or the SQLite table that its documentation proposes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation
from hansard.importers.plain_files import chained, is_one_of, objects
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, text, time
from hansard.model import KINDS, NOT_YET, SCOPES, Message, Participant

_COLUMNS = ("id", "conversation_id", "participant_kind", "participant_id", "participant_display_name", "content")
_MORE = ("timestamp", "scope", "metadata")
_ROLES = {"user": "user", "agent": "assistant", "system": "system"}


class Toolpack:
    name = "toolpack"
    title = "toolpack: stored messages as JSON or JSON Lines, or in SQLite"

    def recognises(self, source: ImportSource) -> bool:
        if source.has_table("messages", *_COLUMNS):
            return True
        return is_one_of(source, b'"participant"', b'"conversationId"', b'"kind"')

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter, source.tables() as database:
            found = objects(source, report) if database is None else _rows(database)
            for where, given in found:
                at = time(given.get("timestamp"))
                if not text(given.get("conversationId")) or not text(given.get("id")):
                    report.complain(where, "it has no conversationId or no id")
                else:
                    sorter.add(given["conversationId"], given, at.timestamp() if at else 0.0)
            for id, rows in sorter.conversations():
                yield ForeignConversation(
                    id=id,
                    messages=chained([_message(row) for row in rows]),
                    created_at=time(rows[0].get("timestamp")),
                    metadata={"imported_from": self.name},
                )


def _rows(database: ForeignDatabase) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in database.rows(f"SELECT {', '.join((*_COLUMNS, *_MORE))} FROM messages"):
        id, conversation, kind, participant, name, content, at, scope, metadata = row
        yield (
            f"message {id!r}",
            {
                "id": id,
                "conversationId": conversation,
                "participant": {"kind": kind, "id": participant, "displayName": name},
                "content": content,
                "timestamp": at,
                "scope": scope,
                "metadata": json_of(metadata),
            },
        )


def _message(row: dict[str, Any]) -> Message:
    given, metadata = mapping(row.get("participant")), mapping(row.get("metadata"))
    kind: Any = given.get("kind") if given.get("kind") in KINDS else "user"
    scope: Any = row.get("scope") if row.get("scope") in SCOPES else None
    return Message(
        _ROLES[kind],
        row.get("content", ""),
        row["id"],
        participant=Participant(kind, text(given.get("id")) or kind, text(given.get("displayName")) or None),
        mentions=tuple(text(each) for each in items(metadata.get("mentions"))),
        scope=scope,
        created_at=time(row.get("timestamp")) or NOT_YET,
        metadata=metadata or None,
    )
