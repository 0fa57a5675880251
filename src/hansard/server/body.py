"""Request bodies, bounded in size and time, read as a whole or line by line."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from starlette.types import Receive, Send

from hansard.errors import QuotaExceeded, TimedOut, ValidationError
from hansard.server.deadlines import Deadlines
from hansard.server.endpoints import Headers
from hansard.server.problems import HttpError

EXTENSION = "hansard.exchange"
"""The ASGI extension of `hansard.server.http_protocol`: an `Exchange` in the scope of a request."""

_MOST_INTEGERS = 10
"""Integers of one body that may be written as `4.0`. The body is decoded again for each."""
_MOST_READ_AGAIN = 1_000_000
"""Largest body, in bytes, that is decoded again."""
_NO_INTEGER = re.compile(r"Expected `int(?: \| null)?`, got `float` - at `\$((?:\.\w+|\[\d+\])+)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")

_SHORTEST = 20
"""Lower bound for the bytes of a message: `{"role":"user","content":0}` is longer."""


class ClientDisconnected(Exception):
    """The client disconnected during its request, so there is no client to answer."""


class Exchange(Protocol):
    """Reads whole requests and writes whole responses, without the events of ASGI."""

    def is_for(self, receive: Receive, send: Send) -> bool: ...

    def take_body(self) -> bytes | None: ...

    def respond(self, status: int, fixed: Headers, own: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Writes a response. `fixed` are headers that many responses have, `own` those of this one."""
        ...


class RequestBody:
    """The body of one request. It can be read once."""

    def __init__(
        self,
        receive: Receive,
        headers: dict[bytes, bytes],
        most: int,
        deadlines: Deadlines,
        exchange: Exchange | None = None,
    ) -> None:
        self.receive = receive
        self._exchange = exchange
        self._most = most
        self._deadlines = deadlines
        self._declared = headers.get(b"content-length")
        self.charge: Callable[[int], None] | None = None
        """Called with the size of every chunk before it is used. May raise to refuse it."""
        self.size = 0
        """Bytes that have arrived so far."""
        self._has_more = True

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yields chunks as they arrive. The deadline applies to each of them."""
        while self._has_more:
            if piece := await self._in_time(self._piece()):
                yield piece

    async def _in_time(self, reading: Awaitable[bytes]) -> bytes:
        try:
            return await self._deadlines.wait_for(reading)
        except TimeoutError:
            seconds = f"{self._deadlines.seconds:g}"
            raise HttpError(408, TimedOut(f"the body did not arrive within {seconds} seconds")) from None

    async def _piece(self) -> bytes:
        event = await self.receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        return self._count(event.get("body", b""), has_more=event.get("more_body", False))

    def _count(self, piece: bytes, *, has_more: bool) -> bytes:
        self.size += len(piece)
        self._has_more = has_more
        if self.charge is not None:
            self.charge(len(piece))
        return piece

    async def disconnected(self) -> None:
        """Returns when the client has disconnected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def whole(self) -> bytes:
        """Returns the whole body. Stops reading and refuses it when it exceeds the limit."""
        most = self._most
        if self._declared is not None and int(self._declared) > most:
            raise _too_large(int(self._declared), most)
        if self._exchange is not None and (arrived := self._exchange.take_body()) is not None:
            if len(arrived) > most:
                raise _too_large(len(arrived), most)
            return self._count(arrived, has_more=False)
        return await self._in_time(self._pieces(most))

    async def _pieces(self, most: int) -> bytes:
        parts = [await self._piece()]
        while self._has_more and self.size <= most:
            parts.append(await self._piece())
        if self.size > most:
            raise _too_large(self.size, most)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """Yields groups of lines as they arrive, without line ends, in bounded memory."""
        most = self._most
        begun: list[bytes] = []
        held = 0
        async for piece in self.chunks():
            first, *rest = piece.split(b"\n")
            begun.append(first)
            held += len(first)
            if held > most:
                raise _too_large(held, most)
            if rest:
                yield [line.rstrip(b"\r") for line in (b"".join(begun), *rest[:-1])]
                begun, held = [rest[-1]], len(rest[-1])
        if last := b"".join(begun).rstrip(b"\r"):
            yield [last]


def decode(raw: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decodes a JSON body. Accepts `4.0` where an integer is expected, as JSON Schema does."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        if len(raw) > _MOST_READ_AGAIN:
            raise
        body, wrong = msgspec.json.decode(raw), error
    for _ in range(_MOST_INTEGERS):
        if not _make_integer(body, str(wrong)):
            break
        try:
            return decoder.decode(msgspec.json.encode(body))
        except msgspec.ValidationError as error:
            wrong = error
    raise wrong


def _make_integer(body: Any, wrong: str) -> bool:
    """Converts the number that the decoder refused to an integer. Returns false if it has a fraction."""
    found = _NO_INTEGER.fullmatch(wrong)
    if found is None:
        return False
    *path, last = [name or int(number) for name, number in _STEP.findall(found[1])]
    for step in path:
        body = body[step]
    if not body[last].is_integer():
        return False
    body[last] = int(body[last])
    return True


def _too_large(size: int, most: int) -> HttpError:
    return HttpError(413, QuotaExceeded(f"the body is larger than {most:,} bytes", limit=most, value=size))


def require_type(headers: dict[bytes, bytes], wanted: str) -> None:
    """Refuses other media types, and packed bodies.

    A page of another site can make a browser post text, but not JSON, without CORS.
    """
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise HttpError(415, ValidationError("the Content-Encoding must be identity: send the body unpacked"))
    sent = headers.get(b"content-type", b"")
    if sent == wanted.encode():
        return
    given = sent.partition(b";")[0].strip().lower()
    if given != wanted.encode():
        shown = given.decode("latin-1") or "nothing"
        raise HttpError(415, ValidationError(f"the Content-Type is {shown}: this needs {wanted}"))


# Messages of a batch are counted before they are decoded: decoding hundreds of thousands would block other requests.


class _Drafts(Struct, frozen=True):
    drafts: list[Raw] = []


class _Batch(Struct):
    """A body with messages, of the API or of the `http` backend. The messages are not decoded."""

    messages: list[Raw] = []
    append: _Drafts = _Drafts()


_decode_batch = msgspec.json.Decoder(_Batch).decode


def check_batch(raw: bytes, most: int) -> None:
    """Refuses a body with more than `most` messages. Leaves invalid bodies to the decoder."""
    if len(raw) <= most * _SHORTEST:
        return
    try:
        batch = _decode_batch(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    count = len(batch.messages) or len(batch.append.drafts)
    if count > most:
        text = f"{count:,} messages in one request; the limit is {most:,}: send several requests, or lines to …/lines"
        raise HttpError(413, QuotaExceeded(text, limit=most, value=count))
