"""JSON and JSON Lines of programs without an export of their own: objects, and chains of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from hansard.importers import json_stream
from hansard.importers.importer import ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.model import Message

_LOOKED_AT = 20
_LINES = (".jsonl", ".ndjson")


def files(source: ImportSource) -> list[str]:
    return source.named(".json", *_LINES)


def is_one_of(source: ImportSource, *signs: bytes) -> bool:
    """Whether the beginning of a JSON file has all these texts."""
    heads = (source.head(name) for name in files(source)[:_LOOKED_AT])
    return any(all(sign in head for sign in signs) for head in heads)


def objects(source: ImportSource, report: ImportReport) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of all JSON files, each with its place."""
    for name in files(source):
        with source.open(name) as file:
            is_lines = PurePosixPath(name).suffix in _LINES
            elements = json_stream.lines(file) if is_lines else json_stream.array_elements(file)
            yield from json_stream.objects(elements, f"{name}, object", report)


def chained(messages: Sequence[Message]) -> list[ForeignMessage]:
    """Messages of which each follows the one before it."""
    parents = [None, *(message.id for message in messages)]
    return [ForeignMessage(message, parent) for message, parent in zip(messages, parents, strict=False)]
