"""AI Dev Kit (Unity): the folder of its `LocalFileStore`, `AIDevKit/Conversations`.

Each agent has a folder, in which a conversation is two files: `<id>.json` and `<id>_items.json`. Items are those of
OpenAI's APIs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation
from hansard.importers.plain_files import chained
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import mapping, text, time
from hansard.model import NOT_YET, ROLES, Message

_ITEMS = "_items.json"


class AiDevKit:
    name = "ai-dev-kit"
    title = "AI Dev Kit: its folder of conversations (<id>.json with <id>_items.json)"

    def recognises(self, source: ImportSource) -> bool:
        names = set(source.named(".json"))
        return any(name.endswith(_ITEMS) and _head(name) in names for name in names)

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        for name in source.named(_ITEMS):
            about: dict[str, Any] = {}
            if _head(name) in source.names():
                about = next((given for _, given in json_stream.array_objects(source, _head(name), report)), {})
            given = [item for _, item in json_stream.array_objects(source, name, report, "item")]
            yield _conversation(PurePosixPath(name), about, given)


def _head(name: str) -> str:
    return name.removesuffix(_ITEMS) + ".json"


def _field(given: dict[str, Any], name: str) -> Any:
    """A field by its name in JSON (`createdAt`, `created_at`) or in C# (`CreatedAt`)."""
    wanted = name.replace("_", "")
    return next((value for key, value in given.items() if key.replace("_", "").lower() == wanted), None)


def _conversation(path: PurePosixPath, about: dict[str, Any], given: list[dict[str, Any]]) -> ForeignConversation:
    id = text(_field(about, "id")) or path.name.removesuffix(_ITEMS)
    summary = text(_field(about, "summary"))
    return ForeignConversation(
        id=id,
        messages=chained([_message(item, number) for number, item in enumerate(given, 1)]),
        title=text(_field(about, "title")) or None,
        created_at=time(_field(about, "created_at")),
        agent_id=text(_field(about, "agent_id")) or (path.parent.name or None),
        metadata={"imported_from": "ai-dev-kit"}
        | mapping(_field(about, "metadata"))
        | ({"summary": summary} if summary else {}),
    )


def _message(item: dict[str, Any], number: int) -> Message:
    kind, role = text(_field(item, "type")), text(_field(item, "role")).lower()
    if kind.endswith("_output"):
        role = "tool"
    is_native = "type" in item
    content = _field(item, "content")
    return Message(
        role if role in ROLES else "assistant",
        [item] if is_native else content if content is not None else "",
        text(_field(item, "id")) or str(number),
        format="openai.responses" if is_native else "",
        created_at=time(_field(item, "created_at")) or NOT_YET,
    )
