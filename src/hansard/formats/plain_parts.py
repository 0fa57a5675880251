"""The format `parts`, as content of a message and as a target: `{"role": …, "content": [part, …]}`."""

from __future__ import annotations

from collections.abc import Sequence

from hansard.formats import parts
from hansard.formats.dialogue import DialogueEntry, Losses, Written

read = parts.read


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    return Written([_item(entry) for entry in entries])


def _item(entry: DialogueEntry) -> dict[str, object]:
    item: dict[str, object] = {"role": entry.side, "content": [parts.to_json(part) for part in entry.parts]}
    return item | {"name": entry.name} if entry.name else item
