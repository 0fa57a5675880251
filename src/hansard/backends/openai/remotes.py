"""The two APIs, as what a mirror needs of them: make, add, list, remove. All through the official SDK.

What we add carries a key that we can make again from the message, so that the same message is never added twice by a
retry: as the id of the item where the API takes ids, else as metadata. Nothing that adds is repeated by the SDK.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import openai
from msgspec import Struct
from openai import AsyncOpenAI

from hansard import codec
from hansard.formats import openai_items, openai_threads
from hansard.formats.parts import as_text
from hansard.model import Message

CHUNK = 20
_PAGE = 100
_KEY = "hansard_key"
_LARGEST = 10_000_000
"""OpenAI takes no longer texts."""


class Piece(Struct, frozen=True):
    """What is added for a message, or a part of it."""

    key: str
    body: dict[str, Any]


class Entry(Struct, frozen=True):
    """What is there."""

    id: str
    key: str | None
    """Ours; None for what others added."""
    message: Message


class Remote(Protocol):
    name: str
    prefix: str
    """How its conversations' ids begin."""

    async def create(self, metadata: dict[str, str]) -> str: ...

    async def find(self, id: str) -> dict[str, Any] | None:
        """Its metadata; None when there is none."""

    async def update(self, id: str, metadata: dict[str, str]) -> None: ...

    async def delete(self, id: str) -> None:
        """Passes over one that is gone already."""

    def pieces(self, message: Message, key: str) -> list[Piece]:
        """What to add for a message; nothing when the API cannot say it."""

    async def add(self, id: str, pieces: list[Piece]) -> None: ...

    def entries(self, id: str, after: str | None) -> AsyncIterator[Entry]:
        """Oldest first. `openai.BadRequestError` when there is no such place."""

    async def remove(self, id: str, keys: list[str]) -> None:
        """Removes those that are there."""


class Conversations:
    """The Conversations API: items with ids of our own."""

    name = "openai-conversations"
    prefix = "conv_"

    def __init__(self, client: AsyncOpenAI, mark: str) -> None:
        self._api = client.conversations
        # A request that adds is repeated by us, who look first whether it was done.
        self._once = client.with_options(max_retries=0).conversations
        self._mark = mark

    async def create(self, metadata: dict[str, str]) -> str:
        return (await self._once.create(metadata=metadata)).id

    async def find(self, id: str) -> dict[str, Any] | None:
        with _missing_is_none():
            found = await self._api.retrieve(id)
            return found.metadata if isinstance(found.metadata, dict) else {}
        return None

    async def update(self, id: str, metadata: dict[str, str]) -> None:
        await self._api.update(id, metadata=metadata)

    async def delete(self, id: str) -> None:
        with _missing_is_none():
            await self._api.delete(id)

    def pieces(self, message: Message, key: str) -> list[Piece]:
        found = []
        for number, item in enumerate(openai_items.items_of(message)):
            sendable = _sendable(item)
            id = openai_items.prefix_of(sendable) + codec.digest(key, str(number))[:32] + self._mark
            found.append(Piece(id, {**sendable, "id": id}))
        return found

    async def add(self, id: str, pieces: list[Piece]) -> None:
        for start in range(0, len(pieces), CHUNK):
            chunk = pieces[start : start + CHUNK]
            try:
                await self._create(id, chunk)
            except (openai.BadRequestError, openai.APIConnectionError):
                # The first attempt may have been done, its answer lost; or another process was here first.
                missing = [piece for piece in chunk if not await self._has(id, piece.key)]
                if len(missing) == len(chunk):
                    raise
                if missing:
                    await self._create(id, missing)

    async def _create(self, id: str, pieces: list[Piece]) -> None:
        await self._once.items.create(id, items=[piece.body for piece in pieces])  # type: ignore[misc]

    async def _has(self, id: str, item_id: str) -> bool:
        with _missing_is_none():
            await self._api.items.retrieve(item_id, conversation_id=id)
            return True
        return False

    async def entries(self, id: str, after: str | None) -> AsyncIterator[Entry]:
        async for native in _listed(self._api.items.with_raw_response.list, id, after):
            item_id = str(native["id"])
            key = item_id if item_id.endswith(self._mark) else None
            yield Entry(item_id, key, openai_items.message_of(native, item_id))

    async def remove(self, id: str, keys: list[str]) -> None:
        for key in keys:
            with _missing_is_none():
                await self._api.items.delete(key, conversation_id=id)


class Threads:
    """The Threads API: messages of users and assistants, whose ids it gives itself."""

    name = "openai-threads"
    prefix = "thread_"

    def __init__(self, client: AsyncOpenAI, mark: str) -> None:
        self._api = client.beta.threads
        self._once = client.with_options(max_retries=0).beta.threads
        self._mark = mark

    async def create(self, metadata: dict[str, str]) -> str:
        made = await _quiet(self._once.create, metadata=metadata)
        return str(made.id)

    async def find(self, id: str) -> dict[str, Any] | None:
        with _missing_is_none():
            found = await _quiet(self._api.retrieve, id)
            return dict(found.metadata or {})
        return None

    async def update(self, id: str, metadata: dict[str, str]) -> None:
        await _quiet(self._api.update, id, metadata=metadata)

    async def delete(self, id: str) -> None:
        with _missing_is_none():
            await _quiet(self._api.delete, id)

    def pieces(self, message: Message, key: str) -> list[Piece]:
        content = openai_threads.content_of(message)
        if content is None:
            return []
        key = codec.digest(key)[:32] + self._mark
        parts = [_input_part(part) for part in content]
        role = "user" if message.role == "user" else "assistant"
        return [Piece(key, {"role": role, "content": parts, "metadata": {_KEY: key}})]

    async def add(self, id: str, pieces: list[Piece]) -> None:
        for piece in pieces:
            try:
                await _quiet(self._once.messages.create, id, **piece.body)
            except openai.APIConnectionError:
                # The first attempt may have been done, its answer lost.
                if piece.key not in await self._keys(id):
                    raise

    async def _keys(self, id: str) -> dict[str, str]:
        return {entry.key: entry.id async for entry in self.entries(id, None) if entry.key is not None}

    async def entries(self, id: str, after: str | None) -> AsyncIterator[Entry]:
        async for native in _listed(self._api.messages.with_raw_response.list, id, after):
            metadata = dict(native.get("metadata") or {})
            key = str(metadata.pop(_KEY, ""))
            given = {"role": native["role"], "content": [_input_part(part) for part in native["content"]]}
            given["attachments"] = native.get("attachments")
            kept = openai_threads.message_of(given, native["id"], metadata, "")
            yield Entry(native["id"], key if key.endswith(self._mark) else None, kept)

    async def remove(self, id: str, keys: list[str]) -> None:
        found = await self._keys(id)
        for key in keys:
            with _missing_is_none():
                await _quiet(self._api.messages.delete, found.get(key, key), thread_id=id)


async def _listed(list_: Callable[..., Any], id: str, after: str | None) -> AsyncIterator[dict[str, Any]]:
    """Everything, page by page, as it stands in the answers: the SDK's types know less than an API may send."""
    more = True
    while more:
        place = {} if after is None else {"after": after}
        answer = await _quiet(list_, id, order="asc", limit=_PAGE, **place)
        page = msgspec.json.decode(answer.content)
        for native in page["data"]:
            yield native
            after = native["id"]
        more = page.get("has_more", False) and bool(page["data"])


def _sendable(item: dict[str, Any]) -> dict[str, Any]:
    """An item as the API takes it; what it would refuse goes as text, and what is too large as a note."""
    if (size := len(msgspec.json.encode(item))) > _LARGEST:
        note = f"({size:,} bytes, which the API does not take)"
        item = {"type": "message", "role": item.get("role", "assistant"), "content": note}
    if item.get("type") == "message" and item.get("role") not in openai_items.INPUT_ROLES:
        item = {**item, "role": "assistant"}
    try:
        return openai_items.checked({**item, "content": _said(item)} if item.get("type") == "message" else item, "item")
    except openai_items.BadItem:
        return openai_items.checked({"role": "assistant", "content": as_text(item)}, "item")


def _said(item: dict[str, Any]) -> Any:
    """The content of a message; as text where it has parts that the API does not know."""
    content = item.get("content")
    if isinstance(content, list) and not all(openai_items.is_piece(piece) for piece in content):
        return as_text(content)
    return content


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    """Threads take a text as it is, and give it with annotations. They give refusals, and take none."""
    text = part["text"]["value"] if part["type"] == "text" else part.get("refusal")
    return part if text is None else {"type": "text", "text": text}


@contextmanager
def _missing_is_none() -> Iterator[None]:
    try:
        yield
    except openai.NotFoundError:
        return


def _quiet(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The SDK warns of Threads at every call; whoever asks for this backend knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return call(*arguments, **options)
