"""Redacts what leaves the store: every text of a message and of its conversation passes through one function.

A redacted message consists of the parts that we understand. Its native content, pictures, sounds and documents without
text are left out, because a function of text cannot check them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import structs

from hansard import formats
from hansard.errors import ValidationError
from hansard.formats import parts
from hansard.model import Conversation, Message, Participant, Rating, Source

Redact = Callable[[str], str]


def redact_named(name: str) -> Redact:
    """Imports `package.module:function`."""
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise ValidationError(f"--redact is {name!r}: write package.module:function")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValidationError(f"--redact is {name!r}, which cannot be imported: {error}") from error
    if not callable(found):
        raise ValidationError(f"--redact is {name!r}, which is not a function")
    return found  # type: ignore[no-any-return]


class Redaction:
    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    def conversation(self, given: Conversation) -> Conversation:
        return structs.replace(
            given,
            user_id=self._optional(given.user_id),
            title=self._optional(given.title),
            summary=self._optional(given.summary),
            metadata=self._value(given.metadata),
        )

    def message(self, given: Message) -> Message:
        kept = [part for each in formats.read(given).parts if (part := self._part(each)) is not None]
        return structs.replace(
            given,
            content=[parts.to_json(part) for part in kept],
            format=parts.FORMAT,
            participant=self._participant(given.participant),
            mentions=tuple(map(self._text, given.mentions)),
            sources=tuple(map(self._source, given.sources)),
            metadata=self._value(given.metadata),
            labels=tuple(map(self._text, given.labels)),
            ratings=tuple(map(self._rating, given.ratings)),
            blobs=(),
            prompt_id=None,  # it names agents, and messages that may not be in the export
        )

    def _part(self, part: parts.AnyPart) -> parts.AnyPart | None:
        match part:
            case parts.Text() | parts.Reasoning() | parts.Refusal():
                return structs.replace(part, text=self._text(part.text))
            case parts.Document(text=str(text)):
                return parts.Document(text=self._text(text))
            case parts.ToolCall():
                return structs.replace(part, arguments=self._value(part.arguments))
            case parts.ToolResult():
                return structs.replace(part, output=self._text(parts.result_text(part)))
        return None

    def _participant(self, given: Participant | None) -> Participant | None:
        if given is None:
            return None
        name, metadata = self._optional(given.display_name), self._value(given.metadata)
        return structs.replace(given, id=self._text(given.id), display_name=name, metadata=metadata)

    def _source(self, given: Source) -> Source:
        name, chunk = self._optional(given.document_name), self._optional(given.chunk)
        return structs.replace(given, document_name=name, chunk=chunk)

    def _rating(self, given: Rating) -> Rating:
        return structs.replace(given, by=self._optional(given.by), comment=self._optional(given.comment))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {name: self._value(each) for name, each in value.items()}
        return value

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self._text(text)

    def _text(self, text: str) -> str:
        found = self._redact(text)
        if not isinstance(found, str):
            raise ValidationError(f"the function for redaction must return text, not a {type(found).__name__}")
        return found
