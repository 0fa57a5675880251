"""Every format by its name, and the conversion of a history of any formats to one.

A format is a module with `read(content, role) -> Reading` and `write(entries, losses) -> Written`. Modules are imported
when their format first occurs. `json` is passed through as it is; an unknown format is read as its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal, Protocol

from msgspec import structs

from hansard.errors import ValidationError
from hansard.formats import dialogue
from hansard.formats.dialogue import JSON, Dangling, DialogueEntry, Loss, Losses, Written
from hansard.formats.extract import plain_text, tool_links
from hansard.formats.parts import AnyPart, OtherPart, Reading, Text, ToolResult
from hansard.model import Message
from hansard.shown import shown

Target = Literal[
    "openai.chat", "openai.responses", "openai.realtime", "anthropic", "gemini", "langchain", "text", "parts"
]

_MODULES = {
    "openai.chat": "openai_chat",
    "openai.responses": "openai_responses",
    "openai.realtime": "openai_realtime",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "langchain": "langchain",
    "text": "text",
    "parts": "plain_parts",
}
FORMATS = tuple(_MODULES)
_ONLY_READ = {"adk": "adk", "claude.transcript": "claude_transcript", "pydantic_ai": "pydantic_ai"}


class Format(Protocol):
    def read(self, content: Any, role: str) -> Reading: ...

    def write(self, entries: Sequence[DialogueEntry], losses: Losses) -> Written: ...


class Converted(list[Any]):
    """A history in a provider's format: a list to pass on, with attributes.

    `system` holds the instructions, for providers that separate them from the messages. `losses` lists what the
    provider's format cannot represent.
    """

    system: Any
    losses: list[Loss]

    def __init__(self, items: Iterable[Any] = (), *, system: Any = None, losses: Iterable[Loss] = ()) -> None:
        super().__init__(items)
        self.system = system
        self.losses = list(losses)


def format_named(name: object) -> Format:
    if not isinstance(name, str) or name not in _MODULES:
        raise ValidationError(f"unknown format {shown(name)}: one of {', '.join(FORMATS)}")
    return _format(name)


@cache
def _format(name: str) -> Format:
    module: Any = import_module(f"hansard.formats.{(_MODULES | _ONLY_READ)[name]}")
    return module  # type: ignore[no-any-return]


def read(message: Message) -> Reading:
    """Returns the parts of a message of any format. Never fails: content that cannot be understood is `OtherPart`."""
    content, name = message.content, message.format
    if isinstance(content, str):
        if message.metadata and (answered := tool_links(message).results):
            return Reading([ToolResult(answered[0], content)])
        if name in ("text", JSON, ""):
            return Reading([Text(content)])
    if name in _MODULES or name in _ONLY_READ:
        return _format(name).read(content, message.role)
    if name in (JSON, ""):
        return Reading([OtherPart(native=content, origin=JSON)])
    return _read_unknown(message)


def _read_unknown(message: Message) -> Reading:
    parts: list[AnyPart] = [OtherPart(native=message.content, origin=message.format)]
    text = plain_text(message)
    return Reading([Text(text), *parts] if text else parts)


def write(reading: Reading, format: str, message: Message) -> list[Any]:
    """Returns the message in a format: its own content if that is its format."""
    if message.format == format:
        return [message.content]
    return list(convert_readings([(message, reading)], format, dangling="keep"))


def convert(messages: Iterable[Message], format: str, *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to a provider's format, valid by its rules. `dangling` is for calls without a result."""
    if isinstance(messages, type) or not isinstance(messages, Iterable):
        raise ValidationError(f"messages must be a list of messages, not a {type(messages).__name__}")
    return convert_readings([(_checked(each), read(each)) for each in messages], format, dangling=dangling)


def _checked(message: object) -> Message:
    if not isinstance(message, Message):
        raise ValidationError(
            f"messages must be Message values, as get_messages returns them, not {type(message).__name__}"
        )
    return message


def convert_readings(
    readings: Iterable[tuple[Message, Reading]], format: str, *, dangling: Dangling = "drop"
) -> Converted:
    """The same for messages that are already split into parts, and perhaps changed."""
    if dangling not in ("drop", "close", "keep"):
        raise ValidationError(f"dangling is {shown(dangling)}: one of 'drop', 'close', 'keep'")
    target = format_named(format)
    losses: Losses = []
    entries: list[DialogueEntry] = []
    for message, reading in readings:
        if reading.parts and dialogue.passes(reading.parts[0]):
            entries.append(dialogue.passing(message, reading))
            continue
        split = dialogue.split(message, reading)
        # The whole native content is valid only in its own format.
        entries += split if message.format == format else map(_unwrapped, split)
    if format != "parts":
        entries = dialogue.without_others(entries, format, losses)
    written = target.write(dialogue.paired(entries, dangling, losses), losses)
    return Converted(written.items, system=written.system, losses=losses)


def _unwrapped(entry: DialogueEntry) -> DialogueEntry:
    return entry if entry.native is None else structs.replace(entry, native=None)


def to_openai_input(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to the `messages` of OpenAI's Chat Completions."""
    return convert(messages, "openai.chat", dangling=dangling)


def to_openai_responses(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to the `input` of OpenAI's Responses."""
    return convert(messages, "openai.responses", dangling=dangling)


def to_anthropic_messages(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to Anthropic's `messages`; pass its `system` as the argument of that name."""
    return convert(messages, "anthropic", dangling=dangling)


def to_gemini_contents(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to Gemini's `contents`; pass its `system` as the configuration's `system_instruction`."""
    return convert(messages, "gemini", dangling=dangling)


def to_langchain_messages(messages: Iterable[Message], *, dangling: Dangling = "drop") -> Converted:
    """Converts a history to dictionaries for LangChain's `messages_from_dict`."""
    return convert(messages, "langchain", dangling=dangling)
