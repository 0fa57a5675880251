"""The Threads API: messages of users and assistants with ids of its own. Ours are recognised by their metadata.

The SDK marks its own methods for it as deprecated, and warns at every call. Users of this backend know that; so the
requests go through the SDK, but not through those methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import openai
from openai import AsyncOpenAI

from hansard.backends.openai import names
from hansard.backends.openai.names import Name
from hansard.backends.openai.remote import LARGEST, PAGE, RemoteEntry, RemotePart, missing_is_none, pages, too_large
from hansard.errors import Unavailable
from hansard.formats import openai_threads
from hansard.formats.openai_items import BadItem
from hansard.model import Message

_KEY = "hansard_key"
_HEADERS = {"OpenAI-Beta": "assistants=v2"}


class RemoteThreads:
    name = "openai-threads"
    prefix = "thread_"
    takes_ids = False

    def __init__(self, client: AsyncOpenAI, mark: str) -> None:
        self._client = client.with_options(default_headers=_HEADERS)
        # We repeat requests that add messages ourselves, after checking whether they were applied.
        self._once = self._client.with_options(max_retries=0)
        self._mark = mark

    async def create(self, metadata: dict[str, str]) -> str:
        # A repetition may leave an empty thread behind, which is never used.
        made: Any = await self._client.post("/threads", cast_to=object, body={"metadata": metadata})
        if not isinstance(made, dict) or not isinstance(made.get("id"), str):
            raise Unavailable("the API made a thread without an id", retryable=False)
        return str(made["id"])

    async def find(self, id: str) -> dict[str, Any] | None:
        with missing_is_none():
            found: Any = await self._client.get(_thread(id), cast_to=object)
            return dict(found.get("metadata") or {}) if isinstance(found, dict) else {}
        return None

    async def update(self, id: str, metadata: dict[str, str]) -> None:
        await self._client.post(_thread(id), cast_to=object, body={"metadata": metadata})

    async def delete(self, id: str) -> None:
        with missing_is_none():
            await self._client.delete(_thread(id), cast_to=object)

    def pieces(self, message: Message, stem: str) -> list[RemotePart]:
        content = openai_threads.content_of(message)
        if content is None:
            return []
        name = Name(message.seq, stem, 0, 1)
        key = names.write(name, self._mark)
        parts = _sendable([_input_part(part) for part in content])
        role = "user" if message.role == "user" else "assistant"
        return [RemotePart(key, name, {"role": role, "content": parts, "metadata": {_KEY: key}})]

    async def add(self, id: str, pieces: Sequence[RemotePart]) -> None:
        for piece in pieces:
            try:
                await self._once.post(_thread(id) + "/messages", cast_to=object, body=piece.body)
            except openai.APIConnectionError:
                # The first attempt may have been applied, and its answer lost.
                if not await self._has_name(id, piece.name):
                    raise
        if pieces:
            await self._remove_doubles(id, {piece.name for piece in pieces})

    async def _remove_doubles(self, id: str, names: set[Name]) -> None:
        """Removes duplicates that another process has added just now.

        The later process finds both; the older one stays.
        """
        found: dict[Name, str] = {}
        doubles = []
        left = 2 * len(names) + PAGE
        async for entry in self.newest(id):
            left -= 1
            if entry.name in names:
                if entry.name in found:
                    doubles.append(found[entry.name])
                found[entry.name] = entry.id
            elif len(found) == len(names) or left < 0:
                break
        await self.remove(id, doubles)

    async def _has_name(self, id: str, name: Name) -> bool:
        """It would be the newest of ours."""
        async for entry in self.newest(id):
            if entry.name is not None:
                return entry.name == name
        return False

    async def has(self, id: str, entry_id: str) -> bool:
        with missing_is_none():
            await self._client.get(_message(id, entry_id), cast_to=object)
            return True
        return False

    def entries(self, id: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        return self._listed(id, "asc", after)

    def newest(self, id: str) -> AsyncIterator[RemoteEntry]:
        return self._listed(id, "desc", None)

    async def _listed(self, id: str, order: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        async def fetch(query: dict[str, Any]) -> Any:
            return await self._client.get(_thread(id) + "/messages", cast_to=object, options={"params": query})

        async for native in pages(fetch, order, after):
            yield self._entry(native)

    def _entry(self, native: dict[str, Any]) -> RemoteEntry:
        metadata = dict(native.get("metadata") or {})
        name = names.read(str(metadata.pop(_KEY, "")), self._mark)
        try:
            content = [_input_part(part) for part in native["content"]]
            given = {"role": native["role"], "content": content or "", "attachments": native.get("attachments")}
            return RemoteEntry(native["id"], name, openai_threads.message_of(given, native["id"], metadata, ""))
        except (BadItem, KeyError, TypeError, AttributeError) as error:
            what = f"the API listed an invalid message: {native['id']}: {error!r}"
            raise Unavailable(what, retryable=False) from error

    async def remove(self, id: str, entry_ids: Sequence[str]) -> None:
        for entry_id in entry_ids:
            with missing_is_none():
                await self._client.delete(_message(id, entry_id), cast_to=object)


def _sendable(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the parts, with notes in place of oversized ones, so that they do not block the later ones."""
    if (size := len(msgspec.json.encode(parts))) > LARGEST:
        return [{"type": "text", "text": too_large(size)}]
    return parts


def _thread(id: str) -> str:
    return f"/threads/{quote(id, safe='')}"


def _message(id: str, message_id: str) -> str:
    return f"{_thread(id)}/messages/{quote(message_id, safe='')}"


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    """Threads accept plain text, and return it with annotations. They return refusals, and accept none."""
    text = part["text"]["value"] if part["type"] == "text" else part.get("refusal")
    return part if text is None else {"type": "text", "text": text}
