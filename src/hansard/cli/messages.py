"""Messages as people and machines see them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from hansard.cli import output
from hansard.cli.values import visible
from hansard.model import BlobRef, Conversation, Message

_STRUCTURE = 300
_STYLES = {"user": "bold cyan", "assistant": "bold green", "agent": "bold green"}


def print_one(message: Message) -> None:
    """A line that says who and when, then the text."""
    from rich.text import Text

    who = message.participant
    name = f" {who.display_name or who.id}" if who is not None else ""
    head = Text(visible(message.role + name), style=_STYLES.get(message.role, "bold"))
    head.append(f"  {output.local(message.created_at)}  {visible(message.id)}", style="dim")
    marks = [message.status] * (message.status != "complete") + ["pinned"] * message.pinned
    if marks:
        head.append("  " + ", ".join(marks), style="yellow")
    screen = output.console()
    screen.print()
    screen.print(head, soft_wrap=True)
    screen.print(Text(visible(body_of(message))), soft_wrap=True)


def body_of(message: Message) -> str:
    """The text; where there is none, the beginning of the structure. What was moved out is named."""
    lines = [_blob(ref) for ref in message.blobs]
    text = message.text
    if not text and not isinstance(message.content, str):
        text = output.preview(msgspec.json.encode(message.content).decode(), _STRUCTURE)
    return "\n".join([text, *lines] if text else lines)


def _blob(ref: BlobRef) -> str:
    return f"[{ref.media_type or 'blob'}, {output.size(ref.size)}]"


def print_raw(message: Message) -> None:
    """The content as it is stored: text as text, everything else as JSON on one line."""
    sys.stdout.flush()
    content = message.content
    body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    sys.stdout.buffer.write(body + b"\n")


def emit_all(conversation: Conversation, messages: Iterator[Message]) -> None:
    """One JSON document with any number of messages, in constant memory."""
    write = sys.stdout.buffer.write
    write(b'{"conversation":' + msgspec.json.encode(conversation) + b',"messages":[')
    for number, message in enumerate(messages):
        write((b"," if number else b"") + msgspec.json.encode(message))
    write(b"]}\n")
    sys.stdout.buffer.flush()
