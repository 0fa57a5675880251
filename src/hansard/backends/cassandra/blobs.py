"""Blobs: bytes kept once, by their hash, while a message refers to them or `keep_until` is in the future."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import datetime

from hansard.backends.cassandra import uploads
from hansard.backends.cassandra.catalog import NameCatalog
from hansard.backends.cassandra.connection import Link, Statement, is_unknown
from hansard.backends.cassandra.rows import BlobHeader
from hansard.backends.cassandra.uploads import UploadPlace
from hansard.backends.shared import documents
from hansard.contract.types import Context
from hansard.errors import HansardError, TimedOut, Unavailable
from hansard.model import to_micros

_PATIENCE = 30.0
_SOME = 1000
"""References that are read at once."""


class BlobTable:
    def __init__(self, link: Link, catalog: NameCatalog) -> None:
        self._link = link
        self._catalog = catalog

    async def _load(
        self, tenant: str, sha256: str, references: int = 0
    ) -> tuple[BlobHeader | None, str | None, list[str]]:
        """Returns the blob or None, its stamp, and the first references to it."""
        found = await self._link.read("read_blob", tenant, sha256, 1 + references, serial=True)
        if not found or found[0][0] != "" or found[0][2] is None:
            return None, None, []
        blob = documents.decode(found[0][2], BlobHeader, f"blob {sha256}")
        return blob, found[0][1], [ref for ref, _, _ in found[1:]]

    async def get(self, tenant: str, sha256: str) -> bytes | None:
        while True:
            blob, stamp, _ = await self._load(tenant, sha256)
            if blob is None or blob.gone_by is not None:
                return None
            data = await uploads.get(self._link, blob.upload)
            if data is not None:
                return data
            if (await self._load(tenant, sha256))[1] == stamp:
                return None

    async def get_many(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        """One after another: each may be large."""
        found = {each: await self.get(context.tenant, each) for each in dict.fromkeys(digests)}
        return {sha256: data for sha256, data in found.items() if data is not None}

    async def size(self, tenant: str, sha256: str) -> int | None:
        blob, _, _ = await self._load(tenant, sha256)
        return None if blob is None or blob.gone_by is not None else blob.size

    async def put(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        """Keeps the blob until then, whether or not a message refers to it."""
        until = to_micros(keep_until)
        await self._catalog.add("tenant", "", context.tenant)
        await self._catalog.put_due(context.tenant, until, "blob", sha256, time.time_ns() // 1000)
        try:
            await self._change(context.tenant, sha256, data, until, [])
        except Unavailable as error:
            # An earlier try may still happen.
            raise type(error)(str(error), retryable=error.retryable, outcome="unknown") from error

    async def refer(self, tenant: str, sha256: str, references: Sequence[str], data: bytes | None) -> None:
        """Adds references. Without data only to one that is there."""
        await self._change(tenant, sha256, data, 0, references)

    async def _change(
        self, tenant: str, sha256: str, data: bytes | None, keep_until: int, references: Sequence[str]
    ) -> None:
        upload: str | None = None
        give_up = time.monotonic() + _PATIENCE
        await self._catalog.add("blob", tenant, sha256)
        while time.monotonic() < give_up:
            blob, stamp, _ = await self._load(tenant, sha256)
            if blob is None or blob.gone_by is not None:
                if data is None:
                    return
                if upload is None:
                    upload = uploads.new_name()
                    await self._catalog.put_due_upload(tenant, upload, UploadPlace(sha256))
                    await uploads.put(self._link, upload, data)
                after = BlobHeader(upload, len(data), keep_until)
            else:
                after = BlobHeader(blob.upload, blob.size, max(blob.keep_until, keep_until))
            if await self._swap(tenant, sha256, stamp, after, references):
                if upload is not None and after.upload != upload:
                    await uploads.delete(self._link, upload)
                # Once more: a concurrent removal may have deleted the name.
                await self._catalog.add("blob", tenant, sha256)
                return
        raise TimedOut(f"others kept changing blob {sha256} for {_PATIENCE:g} seconds", outcome="not_applied")

    async def _swap(
        self,
        tenant: str,
        sha256: str,
        stamp: str | None,
        after: BlobHeader,
        references: Sequence[str],
        *,
        ends: bool = False,
    ) -> bool:
        """Replaces the row of the blob and adds references, or removes them with `ends`. False if the stamp changed."""
        key = (self._link.prefix, tenant, sha256)
        new, doc = secrets.token_hex(8), documents.encode(after)
        # No stamp means that there must be none.
        batch: list[Statement] = [("end_blob" if after.gone_by else "swap_blob", (new, doc, *key, stamp))]
        batch += [("delete_reference" if ends else "put_reference", (*key, each)) for each in references]
        try:
            return await self._link.swap(batch)
        except HansardError as error:
            if not is_unknown(error):
                raise
            # If it is still under way, it fails as soon as one of the next swaps succeeds.
            return (await self._load(tenant, sha256))[1] == new

    async def release(
        self, tenant: str, sha256: str, references: Sequence[str], now: int, by: tuple[str, int] | None
    ) -> int:
        """Removes references, and the blob if it is not needed any longer. Returns the number of blobs removed."""
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            blob, stamp, known = await self._load(tenant, sha256, len(references) + 1)
            if blob is None:
                return 0
            if blob.gone_by is not None:
                # Who removed it may have died before this, or not know that it has removed it.
                await self._forget(tenant, sha256, blob)
                return int(blob.gone_by == by)
            is_needed = bool(set(known) - set(references)) or blob.keep_until > now
            if is_needed and not references:
                return 0
            after = blob if is_needed else BlobHeader(blob.upload, gone_by=by or ("", 0))
            if await self._swap(tenant, sha256, stamp, after, references, ends=True):
                if is_needed:
                    return 0
                await self._forget(tenant, sha256, blob)
                return 1
        raise TimedOut(f"others kept changing blob {sha256} for {_PATIENCE:g} seconds", outcome="unknown")

    async def _forget(self, tenant: str, sha256: str, blob: BlobHeader) -> None:
        await uploads.delete(self._link, blob.upload)
        await self._catalog.remove("blob", tenant, sha256)
        if await self.size(tenant, sha256) is not None:
            # Another writer has stored it again since.
            await self._catalog.add("blob", tenant, sha256)

    async def upload_of(self, tenant: str, sha256: str) -> str | None:
        blob, _, _ = await self._load(tenant, sha256)
        return blob.upload if blob else None

    async def digests(self, tenant: str) -> list[tuple[str, int]]:
        """The hash and size of every blob."""
        found = [(sha256, await self.size(tenant, sha256)) for sha256 in await self._catalog.names("blob", tenant)]
        return [(sha256, size) for sha256, size in found if size is not None]
