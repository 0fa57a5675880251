"""The answers of models, kept for ten minutes beside what was recorded: a request that an SDK repeats gets the first.

A model is asked once for what a conversation is asked once. The answer is kept under a mark, from who asks, the
conversation and the body, and goes with its conversation. It is given again as long as it is what was said last. A
request in no conversation is never taken for another: two people who begin in the same words must not meet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from hansard.server.calls import Answer
from hansard.server.openai import retries
from hansard.server.openai.calls import WireCall
from hansard.server.tail import EVENTS
from hansard.store.records import Put

_ANSWERS = ("openai", "answers")
_AGE = timedelta(minutes=10)
_LARGEST = 1_000_000
"""Bytes of an answer that is kept. What is larger is asked for again."""


class Asking:
    """One request to a model, and what is known of its answer."""

    def __init__(self, call: WireCall, place: str | None) -> None:
        self._call = call
        self._mark = None if place is None else retries.mark_of(call, place)
        self._sent = bytearray()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """A retry waits for the request that it repeats."""
        if self._mark is None:
            yield
            return
        async with self._call.retries.one_at_a_time(self._mark):
            yield

    async def known(self) -> bytes | None:
        """The answer that this request has had before; None when it is no retry, or must be asked for."""
        call = self._call
        if self._mark is None or not call.is_retry or not call.store.capabilities.records:
            return None
        kept = await call.store.records.get(_ANSWERS, self._mark)
        if kept is None:
            return None
        newest = await call.store.get_messages(kept.value["conversation"], last=1, blobs="refs")
        is_last = bool(newest) and newest[0].id == kept.value["last"]
        return kept.value["answer"].encode() if is_last else None

    def passed(self, piece: bytes) -> bytes:
        """A piece of a stream, on its way to the client."""
        if self._mark is not None and len(self._sent) <= _LARGEST:
            self._sent += piece
        return piece

    def kept(self, conversation_id: str, last: str, answer: bytes) -> list[Put]:
        """What is to be written to give the answer again: all that was passed on, and this. Before it is recorded."""
        whole = bytes(self._sent) + answer
        if self._mark is None or len(whole) > _LARGEST or not self._call.store.capabilities.records:
            return []
        value = {"conversation": conversation_id, "last": last, "answer": whole.decode(errors="replace")}
        return [Put(_ANSWERS, self._mark, value, expires_at=_AGE, conversation_id=conversation_id)]


async def streamed(relay: AsyncIterator[bytes]) -> Answer:
    """Begins only when the endpoint has: what it refuses is refused as an error, not inside a stream."""
    first = await anext(relay)

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield first
            async for piece in relay:
                yield piece
        finally:
            await relay.aclose()  # type: ignore[attr-defined]

    return Answer(whole(), media_type=EVENTS, is_live=True)
