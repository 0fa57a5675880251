"""Anthropic's Messages: a whole message (`{"role": …, "content": …}`), its blocks, or a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from hansard import codec
from hansard.formats.dialogue import DialogueEntry, Loss, Losses, Written
from hansard.formats.parts import (
    AnyPart,
    Document,
    ImagePart,
    OtherPart,
    Part,
    Reading,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    arguments_object,
    result_parts,
    tool_name,
)

FORMAT = "anthropic"
OPENING = "(The conversation so far.)"
"""A user turn before an assistant's first one: the provider requires a user to begin."""

_MOST_MARKS = 4
"""How many blocks of a prompt may have a `cache_control`."""

ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
_IMAGE_TYPES = frozenset(ImageType.__args__)  # type: ignore[attr-defined]


# What the provider accepts


class CacheControl(Struct):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | UnsetType = UNSET


class AnthropicBlock(Struct, kw_only=True):
    cache_control: CacheControl | None = None


class CharLocation(Struct, tag="char_location"):
    cited_text: str
    document_index: int
    document_title: str | None
    start_char_index: int
    end_char_index: int


class PageLocation(Struct, tag="page_location"):
    cited_text: str
    document_index: int
    document_title: str | None
    start_page_number: int
    end_page_number: int


class BlockLocation(Struct, tag="content_block_location"):
    cited_text: str
    document_index: int
    document_title: str | None
    start_block_index: int
    end_block_index: int


class WebLocation(Struct, tag="web_search_result_location"):
    cited_text: str
    encrypted_index: str
    title: str | None
    url: str


class SearchLocation(Struct, tag="search_result_location"):
    cited_text: str
    search_result_index: int
    source: str
    title: str | None
    start_block_index: int
    end_block_index: int


Citation = CharLocation | PageLocation | BlockLocation | WebLocation | SearchLocation


class TextBlock(AnthropicBlock, tag="text", kw_only=True):
    text: str
    citations: list[Citation] | None = None


class Base64Image(Struct, tag="base64"):
    data: str
    media_type: ImageType


class UrlSource(Struct, tag="url"):
    url: str


class Base64Pdf(Struct, tag="base64"):
    data: str
    media_type: Literal["application/pdf"]


class PlainText(Struct, tag="text"):
    data: str
    media_type: Literal["text/plain"]


class ImageBlock(AnthropicBlock, tag="image", kw_only=True):
    source: Base64Image | UrlSource
    transformations: None = None


class CitationsConfig(Struct):
    enabled: bool | UnsetType = UNSET


class DocumentBlock(AnthropicBlock, tag="document", kw_only=True):
    source: Base64Pdf | PlainText | UrlSource
    title: str | None = None
    context: str | None = None
    citations: CitationsConfig | None = None


class ThinkingBlock(Struct, tag="thinking"):
    thinking: str
    signature: str


class RedactedThinkingBlock(Struct, tag="redacted_thinking"):
    data: str


class DirectCaller(Struct, tag="direct"): ...


class CodeCaller(Struct, tag="code_execution_20250825"):
    tool_id: str


class NewCodeCaller(Struct, tag="code_execution_20260120"):
    tool_id: str


Caller = DirectCaller | CodeCaller | NewCodeCaller


class ToolUseBlock(AnthropicBlock, tag="tool_use", kw_only=True):
    id: str
    name: str
    input: dict[str, Any]
    toolset_name: str | None = None
    caller: Caller | UnsetType = UNSET


class ToolResultBlock(AnthropicBlock, tag="tool_result", kw_only=True):
    tool_use_id: str
    content: Any = ""
    is_error: bool = False
    toolset_name: str | None = None


class ServerToolUseBlock(AnthropicBlock, tag="server_tool_use", kw_only=True):
    id: str
    name: Literal["web_search"]
    input: dict[str, Any]
    caller: Caller | UnsetType = UNSET


class WebSearchResult(Struct):
    type: Literal["web_search_result"]
    encrypted_content: str
    title: str
    url: str
    page_age: str | None = None


class WebSearchResultBlock(AnthropicBlock, tag="web_search_tool_result", kw_only=True):
    tool_use_id: str
    content: list[WebSearchResult]
    caller: Caller | UnsetType = UNSET


HostedBlock = ServerToolUseBlock | WebSearchResultBlock
AnyBlock = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | HostedBlock
)
codec.prepare(AnyBlock)


# Reading


def read(content: Any, role: str) -> Reading:
    own_role = None
    if (isinstance(content, dict) and "content" in content and "type" not in content) or _is_message(content):
        own_role = content["role"] if isinstance(content.get("role"), str) else None
        content = content["content"]
    blocks = content if isinstance(content, list) else [content]
    return Reading(_whole_searches([_read_block(block) for block in blocks]), own_role)


def _whole_searches(parts: list[AnyPart]) -> list[AnyPart]:
    """Returns the parts; a search without its result, or a result without its search, is not sent back."""
    hosted = [part.native for part in parts if isinstance(part, OtherPart) and part.is_hosted]
    if not hosted:
        return parts
    used = {block["id"] for block in hosted if "id" in block}
    whole = used.intersection(block.get("tool_use_id") for block in hosted)
    return [
        structs.replace(part, is_hosted=(part.native.get("id") or part.native.get("tool_use_id")) in whole)
        if isinstance(part, OtherPart) and part.is_hosted
        else part
        for part in parts
    ]


def _is_message(content: Any) -> bool:
    return isinstance(content, dict) and content.get("type") == "message" and "content" in content


def _read_block(block: Any) -> AnyPart:
    if isinstance(block, str):
        return Text(block)
    try:
        known: AnyBlock = msgspec.convert(block, AnyBlock)
    except msgspec.ValidationError:
        return OtherPart(native=block, origin=FORMAT)
    return _part(known, {"native": block, "origin": FORMAT})


def _part(known: AnyBlock, origin: dict[str, Any]) -> AnyPart:
    if isinstance(known, TextBlock):
        return Text(known.text, **origin)
    if isinstance(known, ThinkingBlock):
        # An interrupted stream leaves thinking without its signature, which no provider accepts.
        return Reasoning(known.thinking, **origin) if known.signature else Reasoning(known.thinking)
    if isinstance(known, RedactedThinkingBlock):
        return Reasoning(**origin)
    if isinstance(known, ToolUseBlock):
        return ToolCall(known.id, known.name, known.input, **origin)
    if isinstance(known, ToolResultBlock):
        return ToolResult(known.tool_use_id, _read_output(known.content), known.is_error)
    if isinstance(known, ImageBlock):
        return _read_image(known.source, origin)
    if isinstance(known, DocumentBlock):
        return _read_document(known, origin)
    return OtherPart(is_hosted=True, **origin)


def _read_output(content: Any) -> Any:
    if not isinstance(content, list):
        return "" if content is None else content
    parts = [_read_block(block) for block in content]
    return content if any(isinstance(part, OtherPart | Reasoning) for part in parts) else parts


def _read_image(source: Base64Image | UrlSource, origin: dict[str, Any]) -> ImagePart:
    if isinstance(source, UrlSource):
        return ImagePart(url=source.url, **origin)
    return ImagePart(source.media_type, source.data, **origin)


def _read_document(known: DocumentBlock, origin: dict[str, Any]) -> Document:
    source = known.source
    if isinstance(source, UrlSource):
        return Document(url=source.url, name=known.title, **origin)
    if isinstance(source, PlainText):
        return Document(source.media_type, name=known.title, text=source.data, **origin)
    return Document(source.media_type, source.data, name=known.title, **origin)


# Writing


def write(entries: Sequence[DialogueEntry], losses: Losses) -> Written:
    system: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for entry in entries:
        if entry.is_json:
            items += _tidied(turns, losses, begins=not items)
            items.append({"role": _role(entry), "content": cast(OtherPart, entry.parts[0]).native})
            turns = []
            continue
        blocks = [block for part in entry.parts if (block := _block(part, entry, losses)) is not None]
        if entry.side in ("system", "developer"):
            system += blocks
        elif blocks:
            turns.append({"role": _role(entry), "content": blocks})
    items += _tidied(turns, losses, begins=not items)
    return Written(*_with_few_marks(items, _system(system)))


def _role(entry: DialogueEntry) -> str:
    return "assistant" if entry.side == "assistant" else "user"


def _block(part: AnyPart, entry: DialogueEntry, losses: Losses) -> dict[str, Any] | None:
    if isinstance(part, ToolCall):
        return _call(part)
    if isinstance(part, ToolResult):
        return _result(part, entry, losses)
    if part.origin == FORMAT and not (isinstance(part, ImagePart | Document) and entry.side == "assistant"):
        return cast("dict[str, Any]", part.native)
    if isinstance(part, Text | Refusal):
        return {"type": "text", "text": part.text}
    block = _media(part) if entry.side != "assistant" else None
    if block is None:
        losses.append(Loss(entry.message.id, str(part.__struct_config__.tag), _why(part, entry)))
    return block


def _why(part: Part, entry: DialogueEntry) -> str:
    if isinstance(part, Reasoning):
        return "Anthropic accepts only reasoning that it has signed"
    return (
        "an assistant message cannot contain it"
        if entry.side == "assistant"
        else "Anthropic has no content type for it"
    )


def _media(part: Part) -> dict[str, Any] | None:
    if isinstance(part, ImagePart):
        if part.data and part.media_type in _IMAGE_TYPES:
            return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
        return {"type": "image", "source": {"type": "url", "url": part.url}} if part.url else None
    if not isinstance(part, Document):
        return None
    source: dict[str, Any] | None = None
    if part.text:
        source = {"type": "text", "media_type": "text/plain", "data": part.text}
    elif part.data and part.media_type in (None, "application/pdf"):
        source = {"type": "base64", "media_type": "application/pdf", "data": part.data}
    elif part.url:
        source = {"type": "url", "url": part.url}
    if source is None:
        return None
    return {"type": "document", "source": source} | ({"title": part.name} if part.name else {})


def _call(part: ToolCall) -> dict[str, Any]:
    if part.origin == FORMAT:
        native = cast("dict[str, Any]", part.native)
        return native if native["id"] == part.id else {**native, "id": part.id}
    return {"type": "tool_use", "id": part.id, "name": tool_name(part), "input": arguments_object(part)}


def _result(part: ToolResult, entry: DialogueEntry, losses: Losses) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.id}
    content = [piece for each in result_parts(part) if (piece := _block(each, entry, losses)) is not None]
    content = [piece for piece in content if piece["type"] != "text" or piece["text"].strip()]
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        block["content"] = content[0]["text"]
    elif content:
        block["content"] = content
    return block | {"is_error": True} if part.is_error else block


def _tidied(turns: Iterable[dict[str, Any]], losses: Losses, *, begins: bool) -> list[dict[str, Any]]:
    """Returns turns by the provider's rules: none that ends in thinking, and a user first."""
    tidied: list[dict[str, Any]] = []
    for turn in turns:
        blocks = turn["content"]
        while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            losses.append(Loss("", "reasoning", "what it led to is not there"))
            blocks = blocks[:-1]
        if blocks and tidied and tidied[-1]["role"] == turn["role"]:
            tidied[-1]["content"] += blocks
        elif blocks:
            tidied.append({"role": turn["role"], "content": blocks})
    if begins and tidied and tidied[0]["role"] == "assistant":
        tidied.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return [_plain(turn) for turn in tidied]


def _plain(turn: dict[str, Any]) -> dict[str, Any]:
    blocks = turn["content"]
    is_plain = isinstance(blocks, list) and len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return {"role": turn["role"], "content": blocks[0]["text"]} if is_plain else turn


def _with_few_marks(items: list[dict[str, Any]], system: Any) -> tuple[list[dict[str, Any]], Any]:
    """Keeps only the newest cache marks: a history in which each prompt's end was marked has more than are allowed."""
    left = _MOST_MARKS
    unmarked: list[dict[str, Any]] = []
    for item in reversed(items):
        blocks, left = _marked(item["content"], left)
        unmarked.append({**item, "content": blocks} if blocks is not item["content"] else item)
    return unmarked[::-1], _marked(system, left)[0]


def _marked(blocks: Any, left: int) -> tuple[Any, int]:
    """Returns the blocks with only their last marks, and how many marks are left for the blocks before them."""
    if not isinstance(blocks, list) or not any(isinstance(each, dict) and each.get("cache_control") for each in blocks):
        return blocks, left
    kept: list[Any] = []
    for block in reversed(blocks):
        if isinstance(block, dict) and block.get("cache_control"):
            left -= 1
            if left < 0:
                kept.append({key: value for key, value in block.items() if key != "cache_control"})
                continue
        kept.append(block)
    return kept[::-1], max(left, 0)


def _system(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]] | None:
    if any(block.keys() != {"type", "text"} for block in blocks):
        return blocks
    return "\n\n".join(block["text"] for block in blocks) or None
