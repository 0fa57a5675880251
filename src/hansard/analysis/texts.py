"""The searchable text of a message: text, tool names and arguments, tool results, names of documents; no base64.

The content of every provider is a tree of objects. All readable text in it counts, except machine data: ids, types,
signatures, encodings, bytes.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hansard import codec
from hansard.model import Message

MAX_CHARACTERS = 1_000_000
"""Of one message; text beyond this is stored but not found."""

_FOR_MACHINES = frozenset(
    (
        *("type", "id", "role", "object", "status", "model", "index", "format", "detail", "annotations", "logprobs"),
        *("call_id", "tool_call_id", "tool_use_id", "item_id", "file_id", "response_id", "uuid", "parentUuid"),
        *("sessionId", "requestId", "signature", "encrypted_content", "cache_control", "thoughtSignature"),
        *("thought_signature", "data", "file_data", "b64_json", "bytes", "blob", "media_type", "mime_type"),
        *("mimeType", "usage", "stop_reason", "stop_sequence", "timestamp", "version"),
        *("invocation_id", "node_info", "state_delta", "part_kind", "run_id", "model_name", "provider_name"),
        *("conversation_id", "finish_reason", "model_version", "turn_id"),
    )
)
# Below these keys, every key and value was written by a model or a tool, whatever its name.
_FREE = frozenset(("arguments", "args", "input", "output", "result", "response"))
_ENCODED_LENGTH = 256
"""Shorter runs of letters are names, keys and digests, which people search for."""
_BASE64 = re.compile(r"\s*(?:[A-Za-z0-9+/_-]{60,}\r?\n)*[A-Za-z0-9+/_-]*={0,2}\s*")
"""In one line, or in lines of at least 60 characters (64 in PEM, 76 in mail): shorter lines are a list."""
_HEXADECIMAL = re.compile("[0-9a-f]+|[0-9A-F]+")
_SAMPLE = 4096
"""Characters that are counted."""


def searchable(message: Message) -> str:
    """Returns the text of a message that search compares and takes snippets from."""
    if message.sources:
        texts = _texts_of(message.content)
        texts += (source.document_name for source in message.sources if source.document_name)
        return "\n".join(texts)[:MAX_CHARACTERS]
    return searchable_content(message.content)


def searchable_content(content: Any) -> str:
    """The same for a message without sources."""
    if isinstance(content, str):
        return searchable_text(content)
    return "\n".join(_texts_of(content))[:MAX_CHARACTERS]


def searchable_text(content: str) -> str:
    """The same for a message that is only text."""
    return "" if _is_encoded(content) else content[:MAX_CHARACTERS]


def _texts_of(content: Any) -> list[str]:
    texts: list[str] = []
    if type(content) is dict and "parentUuid" in content and type(content.get("message")) is dict:
        # A line of Claude Code: around the message are the folder, the branch and what tools need, the same each time.
        content = content["message"]
    _collect(content, texts, free=False)
    return texts


def _collect(value: Any, texts: list[str], *, free: bool) -> None:
    """Adds the texts in a value, none of them empty."""
    if isinstance(value, str):
        if value and not _is_encoded(value):
            texts.append(value)
    elif isinstance(value, list):
        for item in value:
            if free or type(item) is not dict:
                _collect(item, texts, free=free)
            else:
                _collect_fields(item, texts)
    elif isinstance(value, dict):
        if free:
            for key, item in value.items():
                if key:
                    texts.append(key)
                _collect(item, texts, free=True)
        else:
            _collect_fields(value, texts)
    elif free and value is not None:
        texts.append(str(value))


def _collect_fields(value: dict[str, Any], texts: list[str]) -> None:
    for key, item in value.items():
        if key in _FOR_MACHINES:
            if key == "data" and isinstance(item, dict):
                # LangChain wraps its messages in `data`; elsewhere that is base64.
                _collect_fields(item, texts)
        elif key in _FREE:
            _collect(_decoded(item), texts, free=not isinstance(item, list))
        elif type(item) is str:
            # As `_collect` does, without the call: most fields are texts.
            if item and not _is_encoded(item):
                texts.append(item)
        elif type(item) is dict:
            _collect_fields(item, texts)
        else:
            _collect(item, texts, free=False)


def _decoded(value: Any) -> Any:
    """Decodes arguments that are JSON in a string."""
    if isinstance(value, str) and value[:1] in ("{", "[") and not codec.is_deep(value):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return value  # it only looked like JSON, so it is text
    return value


def _is_encoded(text: str) -> bool:
    """Whether it is bytes written as text: in the alphabet of base64 or hexadecimal, and as mixed as bytes are."""
    if text.startswith("data:") and ";base64," in text[:200]:
        return True
    if len(text) < _ENCODED_LENGTH or " " in text[:_ENCODED_LENGTH]:
        return False
    if _BASE64.fullmatch(text):
        return _is_mixed(text[:_SAMPLE]) or _is_hexadecimal(text)
    return False


def _is_mixed(text: str) -> bool:
    """Whether capitals, small letters and digits are about as frequent as in base64.

    Of random bytes 41 %, 41 % and 16 %; of English text 46 %, 42 % and 12 %. Paths, addresses and names have
    few digits, and few capitals or almost nothing else.
    """
    capitals, small, digits = (sum(map(is_one, text)) / len(text) for is_one in (str.isupper, str.islower, str.isdigit))
    return min(capitals, small) >= 0.2 and digits >= 0.04


def _is_hexadecimal(text: str) -> bool:
    """Whether it has the digits of base 16, and both kinds of them: of random bytes 62 % are decimal."""
    decimal = sum(map(str.isdigit, text[:_SAMPLE])) / len(text[:_SAMPLE])
    return 0.3 <= decimal <= 0.85 and _HEXADECIMAL.fullmatch(text) is not None
