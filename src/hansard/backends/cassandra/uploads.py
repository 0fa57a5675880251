"""Bytes that are too large for a row: an upload is put before anything refers to it, and never changed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hansard.backends.cassandra.connection import Link, some_at_once
from hansard.backends.shared import documents
from hansard.errors import Corrupt

CHUNK = 512 * 1024
LARGE = 64 * 1024
"""Larger values are not stored in a row."""
MOST = 1024 * 1024
"""Bytes of bodies in one batch: what is beyond is uploaded. Servers refuse requests of a few megabytes."""
_AT_ONCE = 8
"""Each may be large."""
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
    puts = (link.put("put_chunk", link.prefix, upload, at // CHUNK, data[at : at + CHUNK]) for at in chunks)
    await some_at_once(puts, _AT_ONCE)


async def put_place(link: Link, upload: str, place: UploadPlace) -> None:
    """Beside the bytes, so that it is deleted with them."""
    await link.put("put_chunk", link.prefix, upload, -1, documents.encode(place))


async def get_place(link: Link, upload: str) -> UploadPlace | None:
    """None if the upload was deleted."""
    found = await link.read("read_upload_place", upload)
    return documents.decode(found[0][0], UploadPlace, f"upload {upload}") if found else None


async def put_many(link: Link, values: Mapping[str, bytes]) -> None:
    await some_at_once((put(link, name, data) for name, data in values.items()), _AT_ONCE)


async def get(link: Link, upload: str) -> bytes | None:
    found = await link.read("read_chunks", upload)
    return b"".join(data for (data,) in found) if found else None


async def get_many(link: Link, uploads: Sequence[str]) -> dict[str, bytes]:
    answers = await some_at_once((_get(link, name) for name in uploads), _AT_ONCE)
    return dict(zip(uploads, answers, strict=True))


async def _get(link: Link, upload: str) -> bytes:
    data = await get(link, upload)
    if data is None:
        raise Corrupt(f"the bytes of upload {upload} are missing", where=upload)
    return data


async def delete(link: Link, upload: str) -> None:
    await link.put("delete_upload", link.prefix, upload)
