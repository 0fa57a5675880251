"""How many tokens something costs. Pluggable: anything with `name`, `is_exact` and `count(text)`.

The default needs no package: a token for every four bytes of UTF-8. That is characters / 4 for English and code, and
three quarters of a token for a Chinese, Japanese or Korean character, close to current tokenizers. `Tokenizer` is a
real one that works offline; it needs the extra `hansard[tokens]`.

Counts are cached in the process: an unchanged message is counted once.

Images, audio and documents have a price of their own: their base64 is not text. Estimates are corrected by the usage
that the provider reported for stored messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Protocol

from msgspec import Struct

from hansard.cache import Cache
from hansard.errors import Unsupported, ValidationError
from hansard.formats.parts import (
    AnyPart,
    Audio,
    Document,
    ImagePart,
    OtherPart,
    Reading,
    Text,
    ToolCall,
    ToolResult,
    as_text,
    result_parts,
)
from hansard.model import Message
from hansard.shown import shown

_CACHED_TEXTS = 16_384
_SHORT = 256
_LEAST_SAMPLES = 3
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 2.0


class TokenCounter(Protocol):
    """Counts the tokens of text."""

    @property
    def name(self) -> str: ...

    @property
    def is_exact(self) -> bool:
        """Counts as the model does; an estimate is corrected by reported usage."""

    def count(self, text: str) -> int: ...


class ByteCounter(Struct, frozen=True):
    """A token for every four bytes: the estimate that needs no package."""

    name: str = "bytes/4"
    is_exact: bool = False

    def count(self, text: str) -> int:
        size = len(text) if text.isascii() else len(text.encode())
        return (size + 3) // 4


DEFAULT_COUNTER = ByteCounter()


_counts: Cache[tuple[type, str, str | bytes], int] = Cache(_CACHED_TEXTS)


class Remembering:
    """Caches the counts of a counter by text. The counter is identified by its class and its name, not by the object.

    By the text and not by the message: a prompt adds names to it, and a changed message has another text.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.name = counter.name
        self.is_exact = counter.is_exact
        self._who = (type(counter), counter.name)
        self._count = counter.count

    def count(self, text: str) -> int:
        # A long text is cached by its hash: thousands of them would fill the memory.
        key = (*self._who, text if len(text) <= _SHORT else blake2b(text.encode()).digest())
        found = _counts.get(key)
        if found is None:
            found = self._count(text)
            _counts.put(key, found)
        return found


def remembering(counter: TokenCounter | None) -> TokenCounter:
    """Returns the counter to use for a caller's argument. The estimate is cheaper than a cache."""
    if counter is None:
        return DEFAULT_COUNTER
    if not callable(getattr(counter, "count", None)) or not (hasattr(counter, "name") and hasattr(counter, "is_exact")):
        raise ValidationError(
            f"counter must have name, is_exact and count(text), as Tokenizer() has, not {shown(counter)}"
        )
    return counter if isinstance(counter, ByteCounter) else Remembering(counter)


class Tokenizer:
    """A real tokenizer that works offline, by the name of its vocabulary.

    Needs the extra `hansard[tokens]`.
    """

    def __init__(self, vocabulary: str = "o200k_base") -> None:
        try:
            from splintr import Tokenizer as Splintr
        except ImportError as error:
            raise Unsupported(
                "the tokenizer needs a package that is not installed: pip install 'hansard[tokens]'",
                capability="tokens",
            ) from error
        # User input is text, even if it spells one of the vocabulary's special tokens.
        encode = Splintr.from_pretrained(vocabulary).encode_ordinary
        self.name = vocabulary
        self.is_exact = True
        self._encode = encode

    def count(self, text: str) -> int:
        return len(self._encode(text))


class Prices(Struct, frozen=True, kw_only=True):
    """Tokens of content that is not text: by default those of a large image, or of one or two pages of a document."""

    message: int = 4
    """The overhead of a message."""
    call: int = 8
    """The overhead of a tool call or its result."""
    image: int = 765
    audio: int = 500
    document: int = 1500


DEFAULT_PRICES = Prices()


def cost(reading: Reading, counter: TokenCounter, prices: Prices = DEFAULT_PRICES) -> int:
    """Returns what a message costs in a prompt."""
    parts = reading.parts
    if len(parts) == 1 and type(part := parts[0]) is Text:
        return prices.message + counter.count(part.text)
    return prices.message + sum(_part_cost(part, counter, prices) for part in parts)


def _part_cost(part: AnyPart, counter: TokenCounter, prices: Prices) -> int:
    if isinstance(part, ImagePart):
        return prices.image
    if isinstance(part, Audio):
        return prices.audio
    if isinstance(part, Document):
        return counter.count(part.text) if part.text else prices.document
    if isinstance(part, ToolCall):
        return prices.call + counter.count(part.name) + counter.count(as_text(part.arguments))
    if isinstance(part, ToolResult):
        return prices.call + sum(_part_cost(each, counter, prices) for each in result_parts(part))
    if isinstance(part, OtherPart):
        return counter.count(as_text(part.native)) if part.origin == "json" or part.is_hosted else 0
    return counter.count(part.text)


def tools_cost(tools: Iterable[Any], counter: TokenCounter, prices: Prices = DEFAULT_PRICES) -> int:
    """Returns what the definitions of tools cost."""
    return sum(prices.call + counter.count(as_text(tool)) for tool in tools)


def calibration(estimates: Iterable[tuple[Message, int]]) -> float:
    """Returns the ratio of reported token counts to our estimates, over messages that are stored with their usage.

    1.0 if there are too few. Limited to between a half and two: one odd report must not empty a prompt.
    """
    reported = estimated = samples = 0
    for message, tokens in estimates:
        if message.usage is None or message.role not in ("assistant", "agent") or not tokens:
            continue
        visible = message.usage.output_tokens - message.usage.reasoning_tokens
        if visible > 0:
            reported, estimated, samples = reported + visible, estimated + tokens, samples + 1
    if samples < _LEAST_SAMPLES:
        return 1.0
    return min(_MOST_FACTOR, max(_LEAST_FACTOR, reported / estimated))
