"""The answers of models, remembered for ten minutes: a request that an SDK repeats gets the first.

A model is asked once for what a conversation is asked once. The answer is remembered under a mark, from who asks, the
conversation and the body, and given again as long as it is what was said last. A request in no conversation is never
taken for another: two people who begin in the same words must not meet.

Answers quote what was said, so they lie in the memory of the process and nowhere else: what is deleted from the store
is not kept beside it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from hansard.server.endpoints import HttpResponse
from hansard.server.openai import retries
from hansard.server.tail import EVENTS

if TYPE_CHECKING:
    from hansard.server.openai.wire_request import WireRequest

_SECONDS = 600.0
_LARGEST = 1_000_000
"""Bytes of an answer that is remembered. What is larger is asked for again."""
_ROOM = 32_000_000
"""Bytes of all of them. The oldest go first."""


class CachedAnswer(NamedTuple):
    conversation_id: str
    last: str
    """The message that must still be the newest."""
    answer: bytes
    until: float


class AnswerCache:
    """What models have answered of late, by the marks of the requests."""

    def __init__(self) -> None:
        self._answers: dict[str, CachedAnswer] = {}
        self._size = 0

    def get(self, mark: str) -> CachedAnswer | None:
        self._evict()
        return self._answers.get(mark)

    def put(self, mark: str, conversation_id: str, last: str, answer: bytes) -> None:
        self._drop(mark)
        self._answers[mark] = CachedAnswer(conversation_id, last, answer, time.monotonic() + _SECONDS)
        self._size += len(answer)
        self._evict()

    def _evict(self) -> None:
        """Forgets the oldest: those whose time is over, and those that there is no room for."""
        now = time.monotonic()
        while self._answers:
            mark, oldest = next(iter(self._answers.items()))
            if oldest.until > now and self._size <= _ROOM:
                return
            self._drop(mark)

    def _drop(self, mark: str) -> None:
        if (gone := self._answers.pop(mark, None)) is not None:
            self._size -= len(gone.answer)


class ModelRequest:
    """One request to a model, and what is known of its answer."""

    def __init__(self, request: WireRequest, place: str | None) -> None:
        self._request = request
        self._mark = None if place is None else retries.mark_of(request, place)
        self._sent = bytearray()

    @asynccontextmanager
    async def serialized(self) -> AsyncIterator[None]:
        """A retry waits for the request that it repeats."""
        if self._mark is None:
            yield
            return
        async with self._request.services.retries.one_at_a_time(self._mark):
            yield

    async def cached_answer(self) -> bytes | None:
        """The answer that this request has had before; None when it is no retry, or must be asked for."""
        request = self._request
        if self._mark is None or not request.is_retry:
            return None
        found = request.services.answers.get(self._mark)
        if found is None:
            return None
        newest = await request.store.get_messages(found.conversation_id, last=1, blobs="refs")
        return found.answer if newest and newest[0].id == found.last else None

    def note_piece(self, piece: bytes) -> bytes:
        """A piece of a stream, on its way to the client."""
        if self._mark is not None and len(self._sent) <= _LARGEST:
            self._sent += piece
        return piece

    def remember(self, conversation_id: str, last: str, answer: bytes) -> None:
        """The answer was stored up to a message: all that was passed on, and this, is what a retry shall get."""
        whole = bytes(self._sent) + answer
        if self._mark is not None and len(whole) <= _LARGEST:
            self._request.services.answers.put(self._mark, conversation_id, last, whole)


async def stream_response(relay: AsyncIterator[bytes]) -> HttpResponse:
    """Begins only when the endpoint has: what it refuses is refused as an error, not inside a stream."""
    first = await anext(relay)

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield first
            async for piece in relay:
                yield piece
        finally:
            await relay.aclose()  # type: ignore[attr-defined]

    return HttpResponse(whole(), media_type=EVENTS, is_live=True)
