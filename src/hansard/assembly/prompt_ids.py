"""The id of a prompt: a text that names everything that a model was given, and copies none of it.

It holds the ids of the messages and a hash of each, the range and the hash of the summary, the options, and how the
tokens were counted; compressed, as base64. So it needs no storage of its own: an answer that is appended with it keeps
it as a field, which is deleted, forked, exported and imported with the answer. The hashes are short: they only tell
whether a message has changed since.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct, structs

from hansard import codec
from hansard.assembly import tokens
from hansard.assembly.explanation import Decision, Prompt, Why
from hansard.assembly.projection import Names
from hansard.assembly.window import Closing
from hansard.errors import ValidationError
from hansard.formats import registry
from hansard.limits import Limits
from hansard.model import Message, MessageScope, Summary

PREFIX = "prompt_"
MOST_NAMED = 200
"""The newest messages are named; of earlier ones, only the number is kept."""
_LONGEST = 64_000
_LONGEST_DECODED = 512_000
_DIGEST_BYTES = 3


class PromptOptionsThen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of `assemble_prompt` that a later assembly can repeat."""

    agent_id: str | None = None
    agent_name: str | None = None
    agent_aliases: tuple[str, ...] = ()
    branch: str | None = None
    token_budget: int = 0
    """0 if there was none: the whole history was sent."""
    max_turns: int = 0
    scope: MessageScope | None = None
    addressed_only: bool = True
    names: Names = "prefix"
    dangling: Closing = "drop"
    format: str = "openai.chat"


class NamedMessage(Struct, frozen=True, array_like=True, gc=False):
    id: str
    digest: str
    tokens: int
    why: Why


class NamedSummary(Struct, frozen=True, array_like=True, gc=False):
    branch: str
    from_seq: int
    to_seq: int
    digest: str
    tokens: int


class GivenPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a model was given, as an id holds it."""

    version: Literal[1] = 1
    at: datetime
    options: PromptOptionsThen
    messages: list[NamedMessage] = []
    unnamed: int = 0
    summary: NamedSummary | None = None
    dropped: dict[Why, int] = {}
    tokens: int = 0
    reserved: int = 0
    system: str | None = None
    """The hash of the caller's system prompt."""
    counter: str = ""
    calibration: float = 1.0
    loaded: int = 0
    has_older: bool = False


_decoder = msgspec.json.Decoder(GivenPrompt)


def encode(given: GivenPrompt) -> str:
    return PREFIX + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(given))).decode().rstrip("=")


def decode(id: str) -> GivenPrompt:
    """Returns what an id holds. `ValidationError` if `assemble_prompt` cannot have returned it."""
    if not id.startswith(PREFIX) or len(id) > _LONGEST:
        raise _foreign()
    try:
        packed = base64.b64decode(id.removeprefix(PREFIX) + "==", altchars=b"-_", validate=False)
        inflating = zlib.decompressobj()
        # Bounded: a few bytes can decompress to gigabytes.
        data = inflating.decompress(packed, _LONGEST_DECODED)
        given = _decoder.decode(data)
    except (binascii.Error, zlib.error, msgspec.MsgspecError, UnicodeError, ValueError) as error:
        raise _foreign() from error
    if len(given.messages) > MOST_NAMED:
        raise _foreign()
    return given


def _foreign() -> ValidationError:
    return ValidationError("prompt_id is not one that assemble_prompt returned: pass prompt.prompt_id unchanged")


# Making one


def named(messages: Sequence[Message], decisions: Iterable[Decision]) -> list[NamedMessage]:
    """Returns the names of the newest messages of a prompt. `decisions` are those about each of them."""
    pairs = list(zip(messages, decisions, strict=True))[-MOST_NAMED:]
    return [NamedMessage(each.id, digest_of(each), decision.tokens, decision.why) for each, decision in pairs]


def named_summary(summary: Summary | None, cost: int) -> NamedSummary | None:
    if summary is None:
        return None
    return NamedSummary(summary.branch, summary.from_seq, summary.to_seq, digest_of_text(summary.text), cost)


def dropped(decisions: Iterable[Decision]) -> dict[Why, int]:
    return dict(Counter(each.why for each in decisions if not each.kept))


def of_history(messages: Sequence[Message], format: str, at: datetime, limits: Limits) -> str:
    """Returns the id of a prompt that is the whole history, without a budget: `messages`, oldest first."""
    counter = tokens.DEFAULT_COUNTER
    names = [
        NamedMessage(each.id, digest_of(_as_stored(each, limits)), tokens.cost(registry.read(each), counter), "fits")
        for each in messages[-MOST_NAMED:]
    ]
    given = GivenPrompt(
        at=at,
        options=PromptOptionsThen(format=format),
        messages=names,
        unnamed=len(messages) - len(names),
        tokens=sum(each.tokens for each in names),
        counter=counter.name,
        loaded=len(messages),
    )
    return encode(given)


def _as_stored(message: Message, limits: Limits) -> Message:
    """Returns a message with references in place of its blobs, as it is read to compare it."""
    body = codec.body_of(message.content, message.format, limits)
    return structs.replace(message, content=body.content, blobs=body.refs) if body.refs else message


def digest_of(message: Message) -> str:
    """Returns a short hash of what a model sees of a message. Blobs count by their own hash."""
    content, blobs = message.content, [ref.sha256 for ref in message.blobs]
    if message.format == "text" and not blobs:
        return digest_of_text(message.role + "\0" + content)
    if blobs:
        content = codec.restore(
            codec.decode(codec.encode(content), message.id), message.blobs, dict.fromkeys(blobs, b"")
        )
    return digest_of_text(codec.encode([message.role, message.format, content, blobs]))


def digest_of_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


# Noticing one


class PromptNote(Struct):
    """The last prompt that was assembled for a conversation, for a recorder of the agent that asked for it."""

    conversation_id: str
    prompt: Prompt | None = None


_note: ContextVar[PromptNote | None] = ContextVar("hansard_prompt_note", default=None)


def note(conversation_id: str, prompt: Prompt) -> None:
    """Tells the recorder of the running agent, if there is one, which prompt was assembled."""
    wanted = _note.get()
    if wanted is not None and wanted.conversation_id == conversation_id:
        wanted.prompt = prompt


@contextmanager
def noting(wanted: PromptNote | None) -> Iterator[None]:
    """Fills `wanted` with the prompts that are assembled inside. Tasks that start inside are included."""
    token = _note.set(wanted)
    try:
        yield
    finally:
        _note.reset(token)
