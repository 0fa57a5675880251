"""The format `text`: content is a string. As a target it is a transcript, one line for each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.parts import AnyPart, OtherPart, Reading, Refusal, Text, ToolCall, ToolResult, as_text, result_text

FORMAT = "text"


def read(content: Any, role: str) -> Reading:
    if isinstance(content, str):
        return Reading([Text(content)])
    return Reading([OtherPart(native=content, origin=FORMAT)])


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    lines = []
    for entry in entries:
        line = "\n".join(filter(None, (_text(part, entry, losses) for part in entry.parts)))
        if line:
            lines.append(f"{entry.name or entry.side}: {line}")
    return Written(lines)


def _text(part: AnyPart, entry: DialogueEntry, losses: Losses) -> str:
    if isinstance(part, Text | Refusal):
        return part.text
    if isinstance(part, ToolCall):
        return f"[call {part.name} {as_text(part.arguments)}]"
    if isinstance(part, ToolResult):
        return f"[result {result_text(part)}]"
    if isinstance(part, OtherPart) and entry.is_json:
        return as_text(part.native)
    losses.append(Loss(entry.message.id, str(part.__struct_config__.tag), "text cannot represent it"))
    return ""
