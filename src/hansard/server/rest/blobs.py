"""Blobs: bytes by their SHA-256, as a whole or in ranges."""

from __future__ import annotations

import re

from msgspec import Struct

from hansard.errors import NotFound, QuotaExceeded, Unsupported, ValidationError
from hansard.model import Blob
from hansard.server.endpoints import BYTES, HttpResponse, Id, NoQuery, Routes
from hansard.server.problems import HttpError
from hansard.server.request import Request

routes = Routes()


_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class BlobQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The message that refers to the blob, which a user's view requires."""

    conversation_id: Id | None = None
    message_id: Id | None = None


@routes.post("/blobs", consumes=BYTES, status=201, errors=(QuotaExceeded, Unsupported))
async def put_blob(request: Request[NoQuery, None]) -> Blob:
    """Stores bytes. Blobs that no message refers to are removed after a while."""
    data = await request.stream.whole()
    return await request.store.blobs.put(data)


@routes.get("/blobs/{sha256}", produces=BYTES, errors=(NotFound, Unsupported))
async def get_blob(request: Request[BlobQuery, None]) -> HttpResponse:
    """The bytes of a blob, or the range that `Range` requests."""
    sha256 = request.path[0]
    data = await request.store.blobs.get(
        sha256, conversation_id=request.query.conversation_id, message_id=request.query.message_id
    )
    headers = (
        (b"etag", f'"{sha256}"'.encode()),
        (b"accept-ranges", b"bytes"),
        (b"content-disposition", b"attachment"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
    )
    wanted = request.headers.get(b"range")
    place = None if wanted is None else _range(wanted.decode("latin-1"), len(data))
    if place is None:
        return HttpResponse(data, 200, headers, BYTES)
    first, last = place
    shown = (b"content-range", b"bytes %d-%d/%d" % (first, last, len(data)))
    return HttpResponse(data[first : last + 1], 206, (*headers, shown), BYTES)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Returns the first and the last byte; None if it is not a single byte range: HTTP then sends the whole."""
    found = _RANGE.fullmatch(text)
    if found is None or found[0] == "bytes=-":
        return None
    begin, end = found[1], found[2]
    if not begin:
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(begin), min(int(end) if end else size - 1, size - 1)
        if end and int(end) < first:
            return None
    if first >= size or (not begin and int(end) == 0):
        error = ValidationError(f"the range {text!r} is outside of the blob's {size} bytes")
        raise HttpError(416, error, ((b"content-range", b"bytes */%d" % size),))
    return first, last
