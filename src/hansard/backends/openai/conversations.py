"""The Conversations API: items, with ids of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import openai
from openai import AsyncOpenAI

from hansard.backends.openai import names
from hansard.backends.openai.names import Name
from hansard.backends.openai.remote import LARGEST, RemoteEntry, RemotePart, missing_is_none, pages, too_large
from hansard.errors import Unsupported
from hansard.formats import openai_items
from hansard.formats.parts import as_text
from hansard.model import Message

CHUNK = 20
_MOST_PIECES = 0xFFFF


class RemoteConversations:
    name = "openai-conversations"
    prefix = "conv_"
    takes_ids = True

    def __init__(self, client: AsyncOpenAI, mark: str) -> None:
        self._client = client
        self._api = client.conversations
        # We repeat requests that add items ourselves, after checking whether they were applied.
        self._once = client.with_options(max_retries=0)
        self._mark = mark

    async def create(self, metadata: dict[str, str]) -> str:
        # A repetition may leave an empty conversation behind, which is never used.
        return (await self._api.create(metadata=metadata)).id

    async def find(self, id: str) -> dict[str, Any] | None:
        with missing_is_none():
            found = await self._api.retrieve(id)
            return found.metadata if isinstance(found.metadata, dict) else {}
        return None

    async def update(self, id: str, metadata: dict[str, str]) -> None:
        await self._api.update(id, metadata=metadata)

    async def delete(self, id: str) -> None:
        with missing_is_none():
            await self._api.delete(id)

    def pieces(self, message: Message, stem: str) -> list[RemotePart]:
        items = openai_items.items_of(message)[:_MOST_PIECES]
        found = []
        for number, item in enumerate(items):
            sendable = _sendable(item)
            found.append(self._piece(sendable, Name(message.seq, stem, number, len(items))))
        return found

    def _piece(self, item: dict[str, Any], name: Name) -> RemotePart:
        id = openai_items.prefix_of(item) + names.write(name, self._mark)
        return RemotePart(id, name, {**item, "id": id})

    async def add(self, id: str, pieces: Sequence[RemotePart]) -> None:
        for start in range(0, len(pieces), CHUNK):
            chunk = pieces[start : start + CHUNK]
            try:
                await self._create(id, chunk)
            except openai.APIConnectionError:
                # It may have been applied, and its answer lost. Our items have ids, so late ones are recognised.
                missing = [piece for piece in chunk if not await self.has(id, piece.key)]
                if missing:
                    await self._create(id, missing)
            except openai.BadRequestError:
                # Another process was first, or the API refuses one of them.
                for piece in chunk:
                    if not await self.has(id, piece.key):
                        await self._create_as_text_if_refused(id, piece)

    async def _create_as_text_if_refused(self, id: str, piece: RemotePart) -> None:
        """Adds an item that the API refuses as text, so that it does not block the later ones."""
        try:
            await self._create(id, [piece])
        except openai.BadRequestError:
            as_message = openai_items.checked({"role": "assistant", "content": as_text(piece.body)}, "item")
            await self._create(id, [self._piece(as_message, piece.name)])

    async def _create(self, id: str, pieces: Sequence[RemotePart]) -> None:
        items: Any = [piece.body for piece in pieces]
        path = f"/conversations/{quote(id, safe='')}/items"
        answer: Any = await self._once.post(path, cast_to=object, body={"items": items})
        given = [item.get("id") for item in answer["data"]] if isinstance(answer, dict) and "data" in answer else []
        if given != [piece.key for piece in pieces]:
            raise Unsupported(
                "this API assigns its own item ids, so added items cannot be recognised", capability="ids"
            )

    async def has(self, id: str, entry_id: str) -> bool:
        with missing_is_none():
            await self._api.items.retrieve(entry_id, conversation_id=id)
            return True
        return False

    def entries(self, id: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        return self._listed(id, "asc", after)

    def newest(self, id: str) -> AsyncIterator[RemoteEntry]:
        return self._listed(id, "desc", None)

    async def _listed(self, id: str, order: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        path = f"/conversations/{quote(id, safe='')}/items"

        async def fetch(query: dict[str, Any]) -> Any:
            return await self._client.get(path, cast_to=object, options={"params": query})

        async for native in pages(fetch, order, after):
            yield RemoteEntry(native["id"], names.read(native["id"], self._mark), _message(native))

    async def remove(self, id: str, entry_ids: Sequence[str]) -> None:
        for entry_id in entry_ids:
            with missing_is_none():
                await self._api.items.delete(entry_id, conversation_id=id)


def _message(native: dict[str, Any]) -> Message:
    """Reads an item as a message, whatever the API returns."""
    kind = openai_items.kind_of(native)
    whole = {**native, "type": kind}
    if kind == "message" and not isinstance(native.get("role"), str):
        whole["role"] = "assistant"
    return openai_items.message_of(whole, native["id"])


def _sendable(item: dict[str, Any]) -> dict[str, Any]:
    """Returns an item that the API accepts: refused kinds become text, and oversized ones a note."""
    if (size := len(msgspec.json.encode(item))) > LARGEST:
        item = {"type": "message", "role": item.get("role", "assistant"), "content": too_large(size)}
    if item.get("type") == "message" and item.get("role") not in openai_items.INPUT_ROLES:
        item = {**item, "role": "assistant"}
    try:
        return openai_items.checked(
            {**item, "content": _content(item)} if item.get("type") == "message" else item, "item"
        )
    except openai_items.BadItem:
        return openai_items.checked({"role": "assistant", "content": as_text(item)}, "item")


def _content(item: dict[str, Any]) -> Any:
    """Returns the content of a message, as text if it has parts that the API does not support."""
    content = item.get("content")
    if isinstance(content, list) and not all(openai_items.is_piece(piece) for piece in content):
        return as_text(content)
    return content
