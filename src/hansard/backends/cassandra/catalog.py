"""Names by which partitions are found: tenants, owners of records, blobs, months of usage, and days with dues."""

from __future__ import annotations

import asyncio
import secrets
import time

from hansard.backends.cassandra import effects, uploads
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.uploads import UploadPlace
from hansard.backends.shared import turns
from hansard.backends.shared.turns import Turn
from hansard.errors import Unavailable

_SPREAD = ("blob",)
"""Kinds of which one owner has many, in several partitions."""
_STAYS = (None,)
"""The row of a name that no process is about to remove."""
_TRIES = 3
"""As often as other requests are tried. Each has a token of its own: a late one must not meet that of another."""


class NameCatalog:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._turns: turns.Queues = {}

    def _bucket(self, kind: str, name: str) -> int:
        return effects.bucket_of(name) if kind in _SPREAD else 0

    async def add(self, kind: str, owner: str, name: str) -> None:
        place = (kind, owner, self._bucket(kind, name), name)
        if await self._link.read("has_name", *place) == [_STAYS]:
            return
        # One after another: a cluster answers time-outs to many who insert one row at once.
        async with Turn(self._turns, (f"{kind} {owner}", name)):
            while (found := await self._link.read("has_name", *place)) != [_STAYS]:
                if found:
                    await self._link.put("keep_name", self._link.prefix, *place, found[0][0])
                else:
                    await self._link.put("put_name", self._link.prefix, *place)

    async def remove(self, kind: str, owner: str, name: str) -> None:
        """Removes a name, unless another process adds it meanwhile.

        A deletion whose answer is lost may happen at any later time. So the name is marked as leaving first, with a
        token that only this deletion compares. Who adds the name again removes the token.
        """
        place = (self._link.prefix, kind, owner, self._bucket(kind, name), name)
        for left in reversed(range(_TRIES)):
            token = secrets.token_hex(8)
            try:
                if await self._link.swap([("leave_name", (token, *place))]):
                    await self._link.swap([("delete_name", (*place, token))])
                return
            except Unavailable as error:
                if not left or not error.retryable:
                    raise
                await asyncio.sleep(0.05)

    async def names(self, kind: str, owner: str) -> list[str]:
        """In order."""
        buckets = range(effects.BUCKETS) if kind in _SPREAD else (0,)
        found = await asyncio.gather(*(self._link.read("read_catalog", kind, owner, bucket) for bucket in buckets))
        return sorted(name for each in found for (name,) in each)

    async def put_due(self, tenant: str, at: int, kind: str, name: str, n: int) -> None:
        """Something that a sweep looks at when its time has come."""
        day = effects.day_of(at)
        await self.add("due", "", day)
        await self._link.put("put_due", self._link.prefix, day, at, tenant, kind, name, n)

    async def put_due_upload(self, tenant: str, upload: str, place: UploadPlace) -> None:
        """Before an upload: a sweep deletes it if nothing refers to it, because its writer has died."""
        now = time.time_ns() // 1000
        await uploads.put_place(self._link, upload, place)
        await self.put_due(tenant, now + uploads.LINGER, "upload", upload, now)

    async def remove_due(self, tenant: str, at: int, kind: str, name: str, n: int) -> None:
        await self._link.put("delete_due", n, self._link.prefix, effects.day_of(at), at, tenant, kind, name)
