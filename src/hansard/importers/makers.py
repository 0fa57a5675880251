"""EdgeOne Makers: conversations of `context.store`, as JSON or JSON Lines.

An object is a conversation (`ConversationMeta`) with its `messages`, as its methods return them, in the names of Node
(`conversationId`) or of Python (`conversation_id`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.importers.importer import ForeignConversation
from hansard.importers.plain_files import chained, is_one_of, objects
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, role_of, text, time
from hansard.model import NOT_YET, Message


class Makers:
    name = "makers"
    title = "EdgeOne Makers: conversations with their messages as JSON or JSON Lines"

    def recognises(self, source: ImportSource) -> bool:
        return is_one_of(source, b'"conversationId"', b'"lastMessageAt"', b'"messages"') or is_one_of(
            source, b'"conversation_id"', b'"last_message_at"', b'"messages"'
        )

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for where, given in objects(source, report):
            for each in map(mapping, items(given.get("items")) or [given]):
                if id := text(_field(each, "conversationId")):
                    yield _conversation(id, each)
                else:
                    report.complain(where, "it has no conversationId")


def _field(given: dict[str, Any], name: str) -> Any:
    """A field by its name in Node, or in Python."""
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    return given[name] if name in given else given.get(snake)


def _conversation(id: str, given: dict[str, Any]) -> ForeignConversation:
    metadata = mapping(given.get("metadata"))
    found = sorted(map(mapping, items(given.get("messages"))), key=_place)
    return ForeignConversation(
        id=id,
        messages=chained([_message(each, number) for number, each in enumerate(found, 1)]),
        title=text(metadata.get("title")) or None,
        created_at=time(_field(given, "createdAt")),
        user_id=text(_field(given, "userId")) or None,
        metadata={"imported_from": "makers"} | metadata,
    )


def _place(given: dict[str, Any]) -> float:
    at = time(_field(given, "createdAt"))
    return at.timestamp() if at else 0.0


def _message(given: dict[str, Any], number: int) -> Message:
    return Message(
        role_of(given.get("role")),
        given.get("content", ""),
        text(_field(given, "messageId")) or str(number),
        created_at=time(_field(given, "createdAt")) or NOT_YET,
        updated_at=time(_field(given, "updatedAt")),
        metadata=mapping(given.get("metadata")) or None,
    )
