"""Answers of models, cached for ten minutes, so that a request that an SDK retries gets the first answer.

An answer is cached under the fingerprint of its request, which is derived from the caller, the conversation and the
body. It is returned as long as it is the newest message of the conversation. A request without a conversation is never
treated as a retry: two users who begin with the same words must not share a conversation.

Answers contain messages, so they are cached in memory only: a message that is deleted from the store must not remain
outside of it.
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
"""Bytes of the largest answer that is cached."""
_ROOM = 32_000_000
"""Bytes of all cached answers. The oldest are evicted first."""


class CachedAnswer(NamedTuple):
    conversation_id: str
    last: str
    """The message that must still be the newest."""
    answer: bytes
    until: float


class AnswerCache:
    """Recent answers of models, by the fingerprints of their requests."""

    def __init__(self) -> None:
        self._answers: dict[str, CachedAnswer] = {}
        self._size = 0

    def get(self, fingerprint: str) -> CachedAnswer | None:
        self._evict()
        return self._answers.get(fingerprint)

    def put(self, fingerprint: str, conversation_id: str, last: str, answer: bytes) -> None:
        self._drop(fingerprint)
        self._answers[fingerprint] = CachedAnswer(conversation_id, last, answer, time.monotonic() + _SECONDS)
        self._size += len(answer)
        self._evict()

    def _evict(self) -> None:
        """Removes the oldest answers: those that have expired, and those that exceed the size limit."""
        now = time.monotonic()
        while self._answers:
            fingerprint, oldest = next(iter(self._answers.items()))
            if oldest.until > now and self._size <= _ROOM:
                return
            self._drop(fingerprint)

    def _drop(self, fingerprint: str) -> None:
        if (gone := self._answers.pop(fingerprint, None)) is not None:
            self._size -= len(gone.answer)


class ModelRequest:
    """One request to a model, and its answer as far as it is known."""

    def __init__(self, request: WireRequest, place: str | None) -> None:
        self._request = request
        self._fingerprint = None if place is None else retries.fingerprint_of(request, place)
        self._sent = bytearray()

    @asynccontextmanager
    async def serialized(self) -> AsyncIterator[None]:
        """Makes a retry wait for the request that it repeats."""
        if self._fingerprint is None:
            yield
            return
        async with self._request.services.retries.one_at_a_time(self._fingerprint):
            yield

    async def cached_answer(self) -> bytes | None:
        """Returns the answer to the request that this one repeats; None if the model must be asked."""
        request = self._request
        if self._fingerprint is None or not request.is_retry:
            return None
        found = request.services.answers.get(self._fingerprint)
        if found is None:
            return None
        newest = await request.store.get_messages(found.conversation_id, last=1, blobs="refs")
        return found.answer if newest and newest[0].id == found.last else None

    def note_piece(self, piece: bytes) -> bytes:
        """Keeps a chunk of a stream for the cache, and returns it."""
        if self._fingerprint is not None and len(self._sent) <= _LARGEST:
            self._sent += piece
        return piece

    def remember(self, conversation_id: str, last: str, answer: bytes) -> None:
        """Caches the chunks so far and `answer` for retries, after the answer was stored up to the message `last`."""
        whole = bytes(self._sent) + answer
        if self._fingerprint is not None and len(whole) <= _LARGEST:
            self._request.services.answers.put(self._fingerprint, conversation_id, last, whole)


async def stream_response(relay: AsyncIterator[bytes]) -> HttpResponse:
    """Waits for the first chunk, so that an error of the endpoint becomes an error response, not part of a stream."""
    first = await anext(relay)

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield first
            async for piece in relay:
                yield piece
        finally:
            await relay.aclose()  # type: ignore[attr-defined]

    return HttpResponse(whole(), media_type=EVENTS, is_live=True)
