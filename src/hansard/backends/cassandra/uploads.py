"""Bytes that are too large for a row: an upload is put before anything refers to it, and never changed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hansard.backends.cassandra.connection import Link
from hansard.backends.shared import documents
from hansard.errors import Corrupt

CHUNK = 512 * 1024
LARGE = 64 * 1024
"""Larger values are not stored in a row."""
MOST = 1024 * 1024
"""Bytes of bodies in one batch: what is beyond is uploaded. Servers refuse requests of a few megabytes."""
_AT_ONCE = 8
LINGER = 86_400 * 1_000_000
"""Microseconds after which no writer is still busy with what it has put."""


class UploadPlace(Struct, array_like=True, frozen=True):
    """What an upload is for: a blob, or a record of an owner."""

    sha256: str | None = None
    owner: str = ""
    namespace: tuple[str, ...] = ()
    key: str = ""


def new_name() -> str:
    return secrets.token_hex(16)


async def put(link: Link, upload: str, data: bytes) -> None:
    chunks = range(0, max(1, len(data)), CHUNK)
    for first in range(0, len(chunks), _AT_ONCE):
        await asyncio.gather(
            *(
                link.put("put_chunk", link.prefix, upload, at // CHUNK, data[at : at + CHUNK])
                for at in chunks[first : first + _AT_ONCE]
            )
        )


async def put_place(link: Link, upload: str, place: UploadPlace) -> None:
    """Beside the bytes, so that it is deleted with them."""
    await link.put("put_chunk", link.prefix, upload, -1, documents.encode(place))


async def get_place(link: Link, upload: str) -> UploadPlace | None:
    """None if the upload was deleted."""
    found = await link.read("read_upload_place", upload)
    return documents.decode(found[0][0], UploadPlace, f"upload {upload}") if found else None


async def put_many(link: Link, values: Mapping[str, bytes]) -> None:
    names = list(values)
    for first in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*(put(link, name, values[name]) for name in names[first : first + _AT_ONCE]))


async def get(link: Link, upload: str) -> bytes | None:
    found = await link.read("read_chunks", upload)
    return b"".join(data for (data,) in found) if found else None


async def get_many(link: Link, uploads: Sequence[str]) -> dict[str, bytes]:
    """A few at once: each may be large."""
    found: dict[str, bytes] = {}
    for first in range(0, len(uploads), _AT_ONCE):
        names = uploads[first : first + _AT_ONCE]
        answers = await asyncio.gather(*(get(link, name) for name in names))
        for name, data in zip(names, answers, strict=True):
            if data is None:
                raise Corrupt(f"the bytes of upload {name} are missing", where=name)
            found[name] = data
    return found


async def delete(link: Link, upload: str) -> None:
    await link.put("delete_upload", link.prefix, upload)
