"""The operations of an API that a mirror needs: create, add, list, remove. All through the official SDK.

Every item that we add carries a name derived from the message, so that a retry never adds the same message twice: as
the item's id if the API accepts ids, else as metadata. The SDK repeats no request that adds items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
import openai
from msgspec import Struct

from hansard.backends.openai.names import Name
from hansard.errors import Unavailable
from hansard.model import Message

PAGE = 100
LARGEST = 10_000_000
"""Bytes of an added item: OpenAI accepts no longer texts."""


class RemotePart(Struct, frozen=True):
    """An item to add for a message, or for a part of it."""

    key: str
    name: Name
    body: dict[str, Any]


class RemoteEntry(Struct, frozen=True):
    """An item at the API."""

    id: str
    name: Name | None
    """Our name; None for items of other clients."""
    message: Message


class Remote(Protocol):
    name: str
    prefix: str
    """The prefix of its conversations' ids."""
    takes_ids: bool
    """True if an item can be found by its key, without listing everything."""

    async def create(self, metadata: dict[str, str]) -> str: ...

    async def find(self, id: str) -> dict[str, Any] | None:
        """Returns the metadata; None if there is no such conversation."""

    async def update(self, id: str, metadata: dict[str, str]) -> None: ...

    async def delete(self, id: str) -> None:
        """Ignores a conversation that is deleted already."""

    def pieces(self, message: Message, stem: str) -> list[RemotePart]:
        """Returns the items to add for a message; none if the API cannot represent it."""

    async def add(self, id: str, pieces: Sequence[RemotePart]) -> None: ...

    def entries(self, id: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        """Yields items, oldest first. Raises `openai.BadRequestError` if `after` does not exist."""

    def newest(self, id: str) -> AsyncIterator[RemoteEntry]:
        """Yields items, newest first."""

    async def has(self, id: str, entry_id: str) -> bool: ...

    async def remove(self, id: str, entry_ids: Sequence[str]) -> None:
        """Removes the items that exist."""


class _Page(Struct):
    data: list[dict[str, Any]]
    has_more: bool = False


async def pages(fetch: Any, order: str, after: str | None) -> AsyncIterator[dict[str, Any]]:
    """Yields all items, page by page, as raw data: the SDK's types lack fields that an API may send."""
    more = True
    while more:
        place = {} if after is None else {"after": after}
        page = _read(await fetch({"order": order, "limit": PAGE, **place}))
        for native in page.data:
            if not isinstance(native.get("id"), str):
                raise Unavailable("the API listed something that has no id", retryable=False)
            yield native
            after = native["id"]
        more = page.has_more and bool(page.data)


def _read(answer: Any) -> _Page:
    try:
        return msgspec.convert(answer, _Page)
    except msgspec.ValidationError as error:
        raise Unavailable(f"the API answered with something that is not a list: {error}", retryable=False) from error


@contextmanager
def missing_is_none() -> Iterator[None]:
    try:
        yield
    except openai.NotFoundError:
        return


def too_large(size: int) -> str:
    """Returns a note in place of an oversized item, so that it does not block the later ones."""
    return f"({size:,} bytes, which the API does not accept)"
