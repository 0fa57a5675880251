"""Reads a streamed reply: its text, its usage, and how it ended."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hansard.agents.capture import fields, sdk_replies, turns
from hansard.agents.capture.outbox import Outbox, Writing
from hansard.agents.capture.spool import SpooledMessage
from hansard.agents.capture.streaming_message import Pace, StreamingMessage
from hansard.agents.capture.trace import current_trace_id
from hansard.agents.capture.turns import ReadChunk, ReadReply, Reply
from hansard.model import Status, Usage

_REPLY_FIELDS = ("format", "sources", "usage", "trace_id", "participant", "mentions", "metadata")
"""Fields of a reply besides its content and status."""


class Listener:
    """Reads the pieces of one reply. `add_chunk` never waits and never fails."""

    def __init__(
        self, outbox: Outbox, turn: SpooledMessage, pace: Pace, read: ReadChunk | None, reply: ReadReply
    ) -> None:
        self._outbox = outbox
        self._message = turn.message
        self._read = read
        self._reply = reply
        self._writing = Writing(outbox, turn)
        self._streaming = StreamingMessage(self._writing, turn.message, pace)
        self._usage: Usage | None = None
        self._last: Reply | None = None
        """The agent's own description of its reply."""
        self._others: list[Any] = []
        """Pieces that are not text."""

    def add_chunk(self, chunk: Any) -> None:
        try:
            piece = chunk if type(chunk) is str and self._read is None else self._understood(chunk)
        except Exception as error:
            self._outbox.log_failure("the chunk reader failed", error)
            return
        if isinstance(piece, str):
            if piece:
                self._streaming.add(piece)
        elif isinstance(piece, Reply):
            self._last = piece

    def _understood(self, chunk: Any) -> str | Reply | None:
        if self._read is not None:
            return self._read(chunk)
        if isinstance(chunk, Reply):
            return chunk
        self._usage = sdk_replies.merged(self._usage, sdk_replies.chunk_usage(chunk))
        text = sdk_replies.text_of(chunk)
        if text is None and not sdk_replies.is_known(chunk):
            self._others.append(chunk)
        return text

    async def end(self, status: Status, error: BaseException | None = None) -> None:
        own = self._last or Reply()
        content, metadata = self._content(own), dict(own.metadata or {})
        if content is None and not self._streaming.has_begun:
            return
        if error is not None and not isinstance(error, GeneratorExit):
            metadata["error"] = type(error).__name__
        if own.status != "complete" and status == "complete":
            status = own.status
        if self._others and self._streaming.has_begun:
            metadata["other_chunks"] = len(self._others)
        whole = structs.replace(
            own,
            content=self._streaming.text if content is None else content,
            status=status,
            usage=own.usage or self._usage,
            trace_id=own.trace_id or self._message.trace_id or current_trace_id(),
            metadata=metadata or None,
        )
        final = fields.readable(turns.with_reply(self._message, whole), self._outbox.store.limits)
        await self._streaming.end(
            final.status, content=content, **{name: getattr(final, name) for name in _REPLY_FIELDS}
        )

    def _content(self, own: Reply) -> Any:
        """None means the text that was streamed."""
        if own.content is not None or self._streaming.has_begun or not self._others:
            return own.content
        plain = [turns.plain_reply(chunk).content for chunk in self._others]
        return plain[0] if len(plain) == 1 else plain
