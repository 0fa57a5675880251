"""Files that an agent keeps with a transcript and deletes with it, such as long outputs of tools: whole, as records."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard.errors import ValidationError
from hansard.importers.transcripts import owners_view
from hansard.store import Store

NAMESPACE = "transcript-files"
MOST = 16 << 20
"""Bytes of the largest file that is kept."""


class SessionFile(Struct, frozen=True, array_like=True):
    path: str
    content: bytes
    """Compressed."""


async def store_file(store: Store, conversation_id: str, path: Path) -> None:
    """Stores a file as it is now, in place of what was stored of it before."""
    kept = _packed(path)
    view = await owners_view(store, conversation_id)
    key = hashlib.sha256(os.fsencode(path)).hexdigest()
    await view.records.put((NAMESPACE, conversation_id), key, kept, conversation_id=conversation_id)


def _packed(path: Path) -> bytes:
    content = zlib.compress(path.read_bytes())
    try:
        return msgspec.msgpack.encode(SessionFile(str(path), content))
    except UnicodeEncodeError as error:
        raise ValidationError("its name is not UTF-8") from error


async def stored_files(store: Store, conversation_id: str) -> AsyncIterator[tuple[Path, bytes]]:
    """The files of a session, as they were when they were stored."""
    view = await owners_view(store, conversation_id)
    async for record in view.records.iter((NAMESPACE, conversation_id), exact=True):
        kept = msgspec.msgpack.decode(record.value, type=SessionFile)
        yield Path(kept.path), zlib.decompress(kept.content)
