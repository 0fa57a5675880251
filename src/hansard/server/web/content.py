"""Converts the content of a message to blocks that can be rendered.

Content of any format is read as parts; each part becomes a block. A tool's result is shown inside its call if both are
on the page; otherwise each links to the other. Long content is cut, and the message's own page shows more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct, structs

from hansard import codec, formats
from hansard.formats import parts as kinds
from hansard.formats.parts import AnyPart, Media, Reading, ToolCall, ToolResult
from hansard.model import Conversation, Message
from hansard.rendering import highlight, markdown
from hansard.server.web.links import query, segment
from hansard.server.web.quantities import size
from hansard.server.web.words import say

MOST = 20_000
"""Characters of one block in a list of messages."""
_MOST_PARTS = 500
WHOLE = 1_000_000
"""Characters of one block on the page of one message."""
_MOST_VALUE = 200
"""Characters of a value of metadata."""
_TONES = 8
_KINDS = {"user": "user", "assistant": "agent", "agent": "agent", "system": "system", "developer": "system"}


class ContentBlock(Struct, kw_only=True):
    """A block to render. `kind` selects how; `html` is safe HTML, all other fields must be escaped."""

    kind: str
    html: str = ""
    name: str = ""
    note: str = ""
    url: str = ""
    id: str = ""
    seq: int = 0
    is_error: bool = False
    is_cut: bool = False
    inside: list[ContentBlock] = []
    is_open: bool = False
    """A call without a result."""
    to: int = 0
    """The seq of the message at `url`, which contains the result of a call or the call of a result."""


class Counterpart(Struct, frozen=True):
    """The message with the result of a call, or with the call of a result."""

    id: str
    seq: int
    name: str
    """The name of the tool."""


Counterparts = Mapping[str, Counterpart]
"""Counterparts by the id of the call."""


class Speaker(Struct, frozen=True):
    name: str
    kind: str
    """One of user, agent, system, tool."""
    tone: int = 0
    initial: str = ""


def speaker_of(message: Message, conversation: Conversation) -> Speaker:
    """Returns the author: the participant, else the user or agent of the conversation."""
    who = message.participant
    if who is not None:
        return _speaker(who.display_name or who.id, {"user": "user", "agent": "agent"}.get(who.kind, "system"), who.id)
    kind = _KINDS.get(message.role, "tool")
    id = {"user": conversation.user_id, "agent": conversation.agent_id}.get(kind)
    return _speaker(id or role_name(message.role), kind, id or kind)


def role_name(role: str) -> str:
    """Returns the name of a speaker who has none."""
    match role:
        case "user":
            return say("User")
        case "assistant":
            return say("Assistant")
        case "agent":
            return say("Agent")
        case "system":
            return say("System")
        case "developer":
            return say("Developer")
        case "tool":
            return say("Tool")
        case "tool_response":
            return say("Tool response")
    return role.replace("_", " ").capitalize()


@lru_cache(1000)
def _speaker(name: str, kind: str, id: str) -> Speaker:
    # Users get odd tones, others even ones, so that a user and an agent never look the same.
    tone = crc32(id.encode("utf-8", "replace")) % (_TONES // 2) * 2 + (kind == "user")
    return Speaker(name, kind, tone, name.strip()[:1].upper() or "·")


Results = Mapping[str, tuple[ToolResult, Message]]
"""Results and their messages, by the id of their call."""


class RenderContext(Struct, frozen=True):
    """What all blocks of a message share."""

    counterparts: Counterparts
    base: str
    """Link to the conversation."""
    most: int
    """Limit for the characters of one block."""


def blocks_of(message: Message, reading: Reading, results: Results, context: RenderContext) -> list[ContentBlock]:
    """Converts a message to blocks."""
    writer = _BlockWriter(message, context)
    blocks = [block for part in reading.parts[:_MOST_PARTS] if (block := writer.block(part, results)) is not None]
    if len(reading.parts) > _MOST_PARTS:
        blocks.append(ContentBlock(kind="text", is_cut=True))
    return [*blocks, *writer.rest_of_blobs()]


def is_plain(message: Message) -> bool:
    """Returns whether a message is plain text, without media; it neither calls a tool nor is a result."""
    return isinstance(message.content, str) and message.format == "text" and not message.metadata and not message.blobs


def plain_blocks(message: Message, most: int) -> list[ContentBlock]:
    """Converts a message of plain text to blocks."""
    text = message.content
    if not text.strip():
        return []
    return [ContentBlock(kind="text", html=markdown.render(text[:most]), is_cut=len(text) > most)]


def results_in(message: Message) -> list[ToolResult]:
    """Returns a message's tool results; none if it has other content, because it is then shown by itself."""
    parts = formats.read(message).parts
    found = [part for part in parts if isinstance(part, ToolResult)]
    rest = [part for part in parts if not isinstance(part, ToolResult | kinds.OtherPart) and not _is_blank(part)]
    return [] if rest else found


def _is_blank(part: AnyPart) -> bool:
    return isinstance(part, kinds.Text) and not part.text.strip()


def media_of(reading: Reading) -> list[Media]:
    """Returns images, audio and documents in display order."""
    return list(_media(reading.parts))


def _media(parts: Iterable[AnyPart]) -> Iterable[Media]:
    for part in parts:
        if isinstance(part, Media):
            yield part
        elif isinstance(part, ToolResult):
            yield from _media(kinds.result_parts(part))


class _BlockWriter:
    """Converts the parts of one message to blocks, and numbers its media."""

    def __init__(self, message: Message, context: RenderContext) -> None:
        self._message = message
        self._context = context
        self._seen = 0
        self._refs = list(message.blobs)

    def block(self, part: AnyPart, results: Results) -> ContentBlock | None:
        match part:
            case kinds.Text():
                return self._text("text", part.text) if part.text.strip() else None
            case kinds.Reasoning():
                return self._text("reasoning", part.text) if part.text.strip() else None
            case kinds.Refusal():
                return self._text("refusal", part.text)
            case ToolCall():
                return self._call(part, results)
            case ToolResult():
                return self._result(part)
            case Media():
                return self._media(part)
        return self._json("other", part.native, name=part.origin or say("content"))

    def _text(self, kind: str, text: str) -> ContentBlock:
        shown = text[: self._context.most]
        return ContentBlock(kind=kind, html=markdown.render(shown), is_cut=len(text) > len(shown))

    def _json(self, kind: str, value: Any, **more: Any) -> ContentBlock:
        text = value if isinstance(value, str) else pretty(value)
        shown = text[: self._context.most]
        html = highlight.json(shown) if not isinstance(value, str) else escape(shown)
        return ContentBlock(kind=kind, html=html, is_cut=len(text) > len(shown), **more)

    def _call(self, call: ToolCall, results: Results) -> ContentBlock:
        block = self._json("call", call.arguments, name=call.name, id=call.id, note=_brief(call.arguments))
        if call.id not in results:
            block.is_open = not self._link(block)
            return block
        result, holder = results[call.id]
        answer = _BlockWriter(holder, structs.replace(self._context, counterparts={}))._result(result)
        answer.seq = holder.seq
        block.is_error = result.is_error
        block.inside = [answer]
        return block

    def _result(self, result: ToolResult) -> ContentBlock:
        inside = [self._result_part(part) for part in kinds.result_parts(result)]
        block = ContentBlock(
            kind="result",
            id=result.id,
            name=result.name or say("result"),
            is_error=result.is_error,
            inside=[block for block in inside if block is not None],
        )
        self._link(block)
        return block

    def _link(self, block: ContentBlock) -> bool:
        """Links a call to its result, or a result to its call. Returns false if the counterpart is unknown."""
        other = self._context.counterparts.get(block.id)
        if other is None:
            return False
        block.name, block.to = other.name, other.seq
        block.url = f"{self._context.base}{query(at=other.id)}#m{other.seq}"
        return True

    def _result_part(self, part: AnyPart) -> ContentBlock | None:
        """Converts a part of a result. Text is shown as JSON if it is JSON, else verbatim: tools write no Markdown."""
        if not isinstance(part, kinds.Text):
            return self.block(part, {})
        text = part.text
        if len(text) <= self._context.most and text[:1] in ("{", "[") and not codec.is_deep(text):
            try:
                return self._json("json", msgspec.json.decode(text))
            except msgspec.DecodeError:
                pass
        return self._json("json", text)

    def _media(self, media: Media) -> ContentBlock:
        number, self._seen = self._seen, self._seen + 1
        is_elsewhere = bool(media.url) and not str(media.url).startswith("data:")
        ref = None if media.data or is_elsewhere or not self._refs else self._refs.pop(0)
        media_type = media.media_type or (ref.media_type if ref is not None else None) or ""
        kind = {kinds.ImagePart: "image", kinds.Audio: "audio"}.get(type(media), "document")
        if kind == "image" and "svg" in media_type:
            kind = "document"
        note = ", ".join(each for each in (media_type, size(ref.size) if ref is not None else "") if each)
        name = media.name or {"image": say("Picture"), "audio": say("Sound")}.get(kind, say("Document"))
        if is_elsewhere:
            return ContentBlock(kind="elsewhere", name=name, note=str(media.url)[:2000])
        if media.file_id and not media.data:
            return ContentBlock(kind="elsewhere", name=name, note=say("file {id}").format(id=media.file_id))
        if isinstance(media, kinds.Document) and media.text:
            return self._text("text", media.text)
        url = f"{self._context.base}/m/{segment(self._message.id)}/media/{number}"
        return ContentBlock(kind=kind, name=name, note=note, url=url)

    def rest_of_blobs(self) -> list[ContentBlock]:
        """Returns blocks for blobs that belong to no media part, such as a long text that looks like base64."""
        if not self._refs:
            return []
        url = f"{self._context.base}/m/{segment(self._message.id)}/raw"
        return [
            ContentBlock(kind="document", name=say("Kept apart"), note=size(ref.size), url=url)
            for ref in self._refs[:20]
        ]


def one_line(value: Any) -> str:
    """Returns a value of metadata as a short text."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode("utf-8", "replace")
    return _cut(text, _MOST_VALUE)


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode("utf-8", "replace")


def _brief(arguments: Any) -> str:
    """Returns the arguments of a call as a short text."""
    if not isinstance(arguments, dict):
        return _cut(str(arguments), 80)
    return _cut(", ".join(f"{name}: {_scalar(value)}" for name, value in list(arguments.items())[:4]), 100)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _cut(value, 40)
    return "…" if isinstance(value, dict | list) else str(value).lower()


def preview(messages: Sequence[Message]) -> str:
    """Returns the newest text of a conversation on one line."""
    for message in reversed(messages):
        text = " ".join(markdown.bare(message.text[:400]).split())
        if text:
            return text[:200]
    return ""


def tool_names(message: Message) -> list[str]:
    """Returns what a message without text does: `search()` for a call, the output for a result."""
    names = []
    for part in formats.read(message).parts:
        if isinstance(part, ToolCall):
            names.append(f"{part.name}({_brief(part.arguments)})")
        elif isinstance(part, ToolResult):
            names.append(_outcome(part))
        elif isinstance(part, Media):
            names.append(
                {kinds.ImagePart: say("a picture"), kinds.Audio: say("a sound")}.get(type(part), say("a document"))
            )
    return names


def _outcome(result: ToolResult) -> str:
    if result.output in (None, "", [], {}):
        return say("result of {name}").format(name=result.name or say("a tool"))
    return one_line(result.output)
