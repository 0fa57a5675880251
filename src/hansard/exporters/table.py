"""Tables with a row for each message of each branch: CSV, and the rows that Parquet shares."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from hansard.exporters.exporter import ExportedConversation, TreeMessage
from hansard.exporters.report import ExportReport
from hansard.model import Conversation

COLUMNS: Mapping[str, type] = {
    "conversation_id": str,
    "title": str,
    "user_id": str,
    "agent_id": str,
    "message_id": str,
    "parent_id": str,
    "seq": int,
    "branch": str,
    "role": str,
    "participant": str,
    "content": str,
    "created_at": str,
    "status": str,
    "model": str,
    "input_tokens": int,
    "output_tokens": int,
    "cost": float,
    "rating": float,
    "labels": str,
    "format": str,
    "native": str,
    "metadata": str,
}
"""`content` is the plain text; `native` is the content as JSON, where it is more than a text. `rating` is the mean of a
message's ratings."""


def row(conversation: Conversation, given: TreeMessage) -> dict[str, Any]:
    message, usage = given.message, given.message.usage
    return {
        "conversation_id": conversation.id,
        "title": conversation.title,
        "user_id": conversation.user_id,
        "agent_id": conversation.agent_id,
        "message_id": message.id,
        "parent_id": given.parent,
        "seq": message.seq,
        "branch": message.branch,
        "role": message.role,
        "participant": message.participant.id if message.participant else None,
        "content": message.text,
        "created_at": message.created_at.isoformat(),
        "status": message.status,
        "model": usage.model if usage else None,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cost": usage.cost if usage else None,
        "rating": _mean([rating.value for rating in message.ratings]),
        "labels": ", ".join(message.labels) or None,
        "format": message.format,
        "native": None if isinstance(message.content, str) else _json(message.content),
        "metadata": _json(message.metadata) if message.metadata else None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


async def rows(
    conversations: AsyncIterator[ExportedConversation], report: ExportReport
) -> AsyncIterator[dict[str, Any]]:
    async for each in conversations:
        conversation, count = each.conversation, 0
        async for given in each.tree():
            yield row(conversation, given)
            count += 1
        report.wrote(count)


class Csv:
    name = "csv"
    title = "CSV, a row a message"
    media_type = "text/csv; charset=utf-8"

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        async for each in rows(conversations, report):
            writer.writerow(each)
            yield _taken(text)
        yield _taken(text)


def _taken(text: io.StringIO) -> bytes:
    """Returns what was written, and removes it."""
    found = text.getvalue().encode("utf-8", "replace")
    text.seek(0)
    text.truncate()
    return found
