"""ModernPath's agent framework: its conversations with their messages, as JSON.

A file holds conversations that have `messages`, or `{"conversations": […], "messages": […]}`, or both kinds of objects
in JSON Lines: each as the framework's `Conversation` and `ConversationMessage` are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.importers.importer import ForeignConversation
from hansard.importers.plain_files import chained, is_one_of, objects
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, number, role_of, text, time
from hansard.model import NOT_YET, Message, Source


class ModernPath:
    name = "modernpath"
    title = "ModernPath: conversations and messages as JSON or JSON Lines"

    def recognises(self, source: ImportSource) -> bool:
        return is_one_of(source, b'"schemaVersion"', b'"conversationId"')

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            about: dict[str, dict[str, Any]] = {}
            for where, given in objects(source, report):
                self._sort_in(sorter, about, given, where, report)
            for id, rows in sorter.conversations():
                yield _conversation(id, about.pop(id, {}), rows)
            for id, given in about.items():
                yield _conversation(id, given, [])

    def _sort_in(
        self,
        sorter: RowSorter,
        about: dict[str, dict[str, Any]],
        given: dict[str, Any],
        where: str,
        report: ImportReport,
    ) -> None:
        id = text(given.get("conversationId"))
        if "messageId" in given and id:
            at = time(given.get("timestamp"))
            sorter.add(id, given, at.timestamp() if at else 0.0)
            return
        if id:
            about[id] = {name: value for name, value in given.items() if name != "messages"}
        elif not given.get("conversations") and not given.get("messages"):
            report.complain(where, "it is neither a conversation nor a message: it has no conversationId")
        for each in (*items(given.get("conversations")), *items(given.get("messages"))):
            self._sort_in(sorter, about, ({"conversationId": id} if id else {}) | mapping(each), where, report)


def _conversation(id: str, given: dict[str, Any], rows: list[dict[str, Any]]) -> ForeignConversation:
    user, audit = given.get("userId"), given.get("auditingId")
    return ForeignConversation(
        id=id,
        messages=chained([_message(row) for row in rows]),
        title=text(given.get("title")) or None,
        created_at=time(given.get("createdAt")),
        user_id=None if user is None else str(user),
        agent_id=text(given.get("agentName")) or None,
        audit_id=None if audit is None else str(audit),
        metadata={"imported_from": "modernpath"} | mapping(given.get("metadata")),
    )


def _message(row: dict[str, Any]) -> Message:
    sources = [mapping(each) for each in items(row.get("sources"))]
    return Message(
        role_of(row.get("role")),
        row.get("content", ""),
        text(row.get("messageId")),
        created_at=time(row.get("timestamp")) or NOT_YET,
        trace_id=text(row.get("traceId")) or None,
        sources=tuple(
            Source(
                text(each.get("documentId")) or None,
                text(each.get("documentName")) or None,
                text(each.get("chunk")) or None,
                number(each.get("score")),
            )
            for each in sources
        ),
        metadata=mapping(row.get("metadata")) or None,
    )
