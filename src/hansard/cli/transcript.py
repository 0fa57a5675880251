"""Messages in the terminal: who speaks, the text, tool calls with their results, reasoning, and attachments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hansard import formats
from hansard.cli import output
from hansard.cli.values import visible
from hansard.exporters.people import is_shown
from hansard.formats import parts as kinds
from hansard.formats.parts import AnyPart, Media, ToolCall, ToolResult
from hansard.model import BlobRef, Message

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_LONGEST = 300
"""Characters of arguments, and of content that no format describes."""
_STYLES = {"user": "bold cyan", "assistant": "bold green", "agent": "bold green"}
_CALL, _RESULT, _ERROR, _ASIDE = "magenta", "blue", "red", "dim"

Paragraph = tuple[str, str]
"""A style of Rich and a text."""


class TranscriptPrinter:
    """Prints messages one after the other. Remembers the names of open tool calls, since few results carry one."""

    def __init__(self) -> None:
        self._open_calls: dict[str, str] = {}

    def print(self, message: Message) -> None:
        """Prints author, time and id of a message, then its content."""
        from rich.text import Text

        screen = output.console()
        screen.print()
        _print_wrapped(screen, _heading(message))
        for style, text in self.paragraphs(message):
            _print_wrapped(screen, Text(visible(text), style=style))

    def paragraphs(self, message: Message) -> list[Paragraph]:
        """Returns the content as paragraphs to print."""
        parts = formats.read(message).parts
        if message.text and all(isinstance(part, kinds.OtherPart) for part in parts):
            parts = [kinds.Text(message.text)]
        found = [paragraph for part in parts for paragraph in self._of_part(part)]
        return found + [(_ASIDE, _blob(ref)) for ref in message.blobs]

    def _of_part(self, part: AnyPart) -> Iterator[Paragraph]:
        match part:
            case kinds.Text() | kinds.Refusal():
                if part.text.strip():
                    yield "", part.text
            case kinds.Reasoning():
                if part.text.strip():
                    yield _ASIDE, f"(reasoning) {part.text}"
            case ToolCall():
                self._open_calls[part.id] = part.name
                yield _CALL, f"→ {part.name} {_brief(part.arguments)}"
            case ToolResult():
                yield self._result(part)
            case Media():
                if part.data or part.url or part.file_id:
                    yield _ASIDE, f"[{part.name or part.media_type or 'attachment'}{_place(part)}]"
            case _:
                yield _ASIDE, _brief(part.native)

    def _result(self, result: ToolResult) -> Paragraph:
        called = self._open_calls.pop(result.id, None)
        name = result.name or called or result.id
        text = kinds.result_text(result) or "(no text)"
        return (_ERROR, f"← {name} failed: {text}") if result.is_error else (_RESULT, f"← {name}: {text}")


def body_of(message: Message) -> str:
    """Returns the content as plain text."""
    return "\n".join(text for _, text in TranscriptPrinter().paragraphs(message))


def _heading(message: Message) -> Text:
    from rich.text import Text

    who = message.participant
    name = f" {who.display_name or who.id}" if who is not None else ""
    heading = Text(visible(message.role + name), style=_STYLES.get(message.role, "bold"))
    heading.append(f"  {output.local(message.created_at)}  {visible(message.id)}", style="dim")
    marks = [message.status] * (message.status != "complete") + ["pinned"] * message.pinned
    marks += ["hidden"] * (not is_shown(message))
    marks += [visible(each) for each in message.labels] + [f"rated {each.value:g}" for each in message.ratings]
    if marks:
        heading.append("  " + ", ".join(marks), style="yellow")
    return heading


def _print_wrapped(screen: Console, text: Text) -> None:
    """Wraps at words in a terminal. Programs that read a pipe get whole lines."""
    screen.print(text, soft_wrap=not screen.is_terminal)


def _brief(value: Any) -> str:
    return output.preview(kinds.as_text(value), _LONGEST)


def _place(media: Media) -> str:
    if media.url and not media.url.startswith("data:"):
        return f", {media.url}"
    return f", file {media.file_id}" if media.file_id and not media.data else ""


def _blob(ref: BlobRef) -> str:
    return f"[{ref.media_type or 'blob'}, {output.size(ref.size)}]"
