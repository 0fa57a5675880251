"""Our own format: the parts that every provider's content consists of.

A part is a frozen value. One that was read from a provider's content remembers the piece that it was read from, so that
writing it back in the same format returns exactly that piece. Content that a format cannot represent, or that is
malformed, becomes `OtherPart`: stored and shown, never a crash.

As content of the format `parts`, a part is the JSON object of the same fields, with its kind as `type`: `{"type":
"tool_call", "id": "t1", "name": "weather", "arguments": {"city": "Oslo"}}`.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from hansard import codec

FORMAT = "parts"

_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LENGTH = 64


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of content. `native` is what it was read from, in the format `origin`."""

    native: Any = None
    origin: str = ""


class Text(Part, frozen=True, tag="text"):
    text: str


class Media(Part, frozen=True):
    """Bytes as base64 (`data`), or a reference to them: `url`, or a provider's `file_id`."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None


class ImagePart(Media, frozen=True, tag="image"): ...


class Audio(Media, frozen=True, tag="audio"): ...


class Document(Media, frozen=True, tag="document"):
    text: str | None = None


class ToolCall(Part, frozen=True, tag="tool_call"):
    id: str
    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    """An object; text if the model wrote invalid JSON, or for tools that take free text."""


class ToolResult(Part, frozen=True, tag="tool_result"):
    id: str
    output: Any = ""
    """Text, a list of parts, or any other JSON value."""
    is_error: bool = False
    name: str | None = None


class Reasoning(Part, frozen=True, tag="reasoning"):
    """A model's reasoning. Only its own provider accepts it again, with the signature in its native piece."""

    text: str = ""


class Refusal(Part, frozen=True, tag="refusal"):
    text: str


class OtherPart(Part, frozen=True, tag="other"):
    """Content that our parts cannot represent, or that is malformed."""

    is_hosted: bool = False
    """A tool that its provider ran itself, well formed: only that provider accepts it again."""


AnyPart = Text | ImagePart | Audio | Document | ToolCall | ToolResult | Reasoning | Refusal | OtherPart
codec.prepare(AnyPart)


class Reading(Struct, frozen=True):
    """Content split into parts."""

    parts: list[AnyPart]
    role: str | None = None
    """The role that the content itself names."""
    name: str | None = None
    native: Any = None
    """The whole content, if its provider would accept it as it is."""


def read(content: Any, role: str) -> Reading:
    items = content if isinstance(content, list) else [content]
    return Reading([_part(item) for item in items])


def _part(item: Any) -> AnyPart:
    if isinstance(item, AnyPart):
        return item
    if isinstance(item, str):
        return Text(item)
    try:
        part: AnyPart = msgspec.convert(item, AnyPart)
    except msgspec.ValidationError:
        return OtherPart(native=item, origin=FORMAT)
    # A native piece in the input is not trusted: it would be sent to a provider unchecked.
    if isinstance(part, OtherPart):
        return msgspec.structs.replace(part, is_hosted=False, origin="" if part.origin == "json" else part.origin)
    return msgspec.structs.replace(part, native=None, origin="") if part.origin else part


def to_json(part: AnyPart) -> dict[str, Any]:
    """Returns the part as content of the format `parts`; only other parts keep their native piece."""
    if isinstance(part, OtherPart):
        part = msgspec.structs.replace(part, is_hosted=False)
    else:
        part = msgspec.structs.replace(part, native=None, origin="")
    if isinstance(part, ToolResult) and not isinstance(part.output, str):
        part = msgspec.structs.replace(part, output=[to_json(piece) for piece in result_parts(part)])
    built: dict[str, Any] = msgspec.to_builtins(part)
    return built


def result_parts(result: ToolResult) -> list[AnyPart]:
    """Returns the output of a tool, any JSON, as parts."""
    output = result.output
    if isinstance(output, str):
        return [Text(output)] if output.strip() else []
    if isinstance(output, list):
        parts = [_part(item) for item in output]
        if not any(isinstance(part, OtherPart | ToolCall | ToolResult) for part in parts):
            return parts
    return [] if output is None else [Text(as_text(output))]


def result_text(result: ToolResult) -> str:
    return "\n".join(part.text for part in result_parts(result) if isinstance(part, Text | Refusal) and part.text)


def as_text(value: Any) -> str:
    """Returns a JSON value as text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [to_json(item) if isinstance(item, AnyPart) else item for item in value]
    return value


def arguments_of(text: str) -> Any:
    """Returns the arguments of a call from JSON text, as most providers send it; the text if it is not an object."""
    if codec.is_deep(text):
        return text
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return found if isinstance(found, dict) else text


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """Returns the arguments as an object, for providers that accept nothing else."""
    if isinstance(call.arguments, dict):
        return call.arguments
    return {"input": call.arguments}


def tool_name(call: ToolCall) -> str:
    """Returns the tool's name in characters that OpenAI and Anthropic accept; others, and MCP servers, allow more."""
    return plain_name(call.name) or "tool"


def plain_name(name: str) -> str:
    return _ODD.sub("_", name)[:_NAME_LENGTH]


def data_url(media: Media, default_type: str) -> str | None:
    """Returns a URL of the bytes: their own, or a `data:` URL."""
    if media.data:
        return f"data:{media.media_type or default_type};base64,{media.data}"
    return media.url or None


def split_data_url(url: str) -> tuple[str, str] | None:
    """Returns `(media type, base64)` of a `data:` URL."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    return head[: -len(";base64")].partition(";")[0], data
