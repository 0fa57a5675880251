"""An API, as what a mirror needs of it: make, add, list, remove. All through the official SDK.

What we add carries a name that we can make again from the message, so that the same message is never added twice by a
retry: as the id of the item where the API takes ids, else as metadata. Nothing that adds is repeated by the SDK.
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
"""Bytes of what is added for a message: OpenAI takes no longer texts."""


class RemotePart(Struct, frozen=True):
    """What is added for a message, or a part of it."""

    key: str
    name: Name
    body: dict[str, Any]


class RemoteEntry(Struct, frozen=True):
    """What is there."""

    id: str
    name: Name | None
    """Ours; None for what others added."""
    message: Message


class Remote(Protocol):
    name: str
    prefix: str
    """How its conversations' ids begin."""
    takes_ids: bool
    """What is added can be found by its key, without looking through everything."""

    async def create(self, metadata: dict[str, str]) -> str: ...

    async def find(self, id: str) -> dict[str, Any] | None:
        """Its metadata; None when there is none."""

    async def update(self, id: str, metadata: dict[str, str]) -> None: ...

    async def delete(self, id: str) -> None:
        """Passes over one that is gone already."""

    def pieces(self, message: Message, stem: str) -> list[RemotePart]:
        """What to add for a message; nothing when the API cannot say it."""

    async def add(self, id: str, pieces: Sequence[RemotePart]) -> None: ...

    def entries(self, id: str, after: str | None) -> AsyncIterator[RemoteEntry]:
        """Oldest first. `openai.BadRequestError` when there is no such place."""

    def newest(self, id: str) -> AsyncIterator[RemoteEntry]:
        """Newest first."""

    async def has(self, id: str, entry_id: str) -> bool: ...

    async def remove(self, id: str, entry_ids: Sequence[str]) -> None:
        """Removes those that are there."""


class _Page(Struct):
    data: list[dict[str, Any]]
    has_more: bool = False


async def pages(fetch: Any, order: str, after: str | None) -> AsyncIterator[dict[str, Any]]:
    """Everything, page by page, as it stands in the answers: the SDK's types know less than an API may send."""
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
        raise Unavailable(f"the API answered with something that is no list: {error}", retryable=False) from error


@contextmanager
def missing_is_none() -> Iterator[None]:
    try:
        yield
    except openai.NotFoundError:
        return


def too_large(size: int) -> str:
    """A note, in place of what is too large: it must not keep what comes behind it from being added."""
    return f"({size:,} bytes, which the API does not take)"
