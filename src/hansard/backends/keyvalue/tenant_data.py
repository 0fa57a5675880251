"""Blobs, usage and tombstones of a tenant, each stored under keys of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from hansard import rules
from hansard.backends.keyvalue import rows
from hansard.backends.keyvalue.functions import Functions
from hansard.backends.keyvalue.keys import KeyValueKeys
from hansard.backends.keyvalue.rows import CountedUsage
from hansard.backends.shared import documents, lists
from hansard.model import NOT_YET, UsageRow


class TenantData:
    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    # Blobs
    #
    # Each message that refers to a blob has a key for that (`KeyValueKeys.references`), made before the message is
    # stored and dropped after it was removed. A blob is put again after the reference was made, and deleted only with
    # the token that it had before its references were listed: so it is never deleted while a writer begins to refer to
    # it.

    async def find_blob(self, keys: KeyValueKeys, sha256: str) -> tuple[str, bytes, object] | None:
        """Returns the key, value and token of a blob."""
        for key in await self._functions.page(keys.blob(sha256, ""), "", 1):
            found = await self._functions.get(key)
            if found is not None:
                return key, *found
        return None

    async def get_blob(self, keys: KeyValueKeys, sha256: str) -> bytes | None:
        found = await self.find_blob(keys, sha256)
        return rows.blob_of(found[1], found[0])[1] if found else None

    async def keep_blob(self, keys: KeyValueKeys, sha256: str, data: bytes | None, until: datetime = NOT_YET) -> None:
        """Stores a blob, or puts it again. Without data, only an existing one."""
        while True:
            found = await self.find_blob(keys, sha256)
            if found is not None:
                key, value, token = found
                facts, data = rows.blob_of(value, key)
                until = max(until, facts.keep_until)
            elif data is None:
                return
            else:
                key, token = keys.blob(sha256, len(data)), None
            if await self._functions.put(key, rows.blob_value(data, until, secrets.token_hex(8)), token) is not None:
                return

    async def release_blob(self, keys: KeyValueKeys, sha256: str, now: datetime) -> bool:
        """Deletes a blob that no message refers to and that need not be kept."""
        found = await self.find_blob(keys, sha256)
        if found is None or rows.blob_of(found[1], found[0])[0].keep_until > now:
            return False
        if await self._functions.page(keys.references(sha256), "", 1):
            return False
        return await self._functions.delete(found[0], found[2])

    async def blob_keys(self, keys: KeyValueKeys) -> list[tuple[str, int]]:
        """Returns the hash and size of every blob."""
        found = [key.split("/")[-2:] async for key in self._functions.keys(keys.blobs)]
        return [(sha256, int(size)) for sha256, size in found]

    # Usage: one object for each conversation and day, which records the last write that it has counted

    async def add_usage(self, keys: KeyValueKeys, birth: str, n: int, changes: Iterable[UsageRow]) -> None:
        by_day: dict[str, list[UsageRow]] = {}
        for row in changes:
            by_day.setdefault(row.day, []).append(row)
        for day, added in by_day.items():
            await self._add_usage(f"{keys.usage}{day}/{birth}", n, added)

    async def _add_usage(self, key: str, n: int, added: Sequence[UsageRow]) -> None:
        while True:
            found = await self._functions.get(key)
            spent = documents.decode(found[0], CountedUsage, key) if found else CountedUsage(0, [])
            if spent.n >= n:
                return
            value = documents.encode(CountedUsage(n, lists.add_up_usage([*spent.rows, *added])))
            if await self._functions.put(key, value, found[1] if found else None) is not None:
                return

    async def usage(self, keys: KeyValueKeys, since: str | None = None, until: str | None = None) -> list[UsageRow]:
        """Returns all rows of these days, added up, including those that count nothing."""
        found: list[UsageRow] = []
        async for key in self._functions.keys(keys.usage, f"{keys.usage}{since}" if since else ""):
            if until is not None and key >= f"{keys.usage}{until}":
                break
            value = await self._functions.get(key)
            found += documents.decode(value[0], CountedUsage, key).rows if value else []
        return lists.add_up_usage(found)

    async def erase_usage(self, keys: KeyValueKeys, user_id: str | None) -> int:
        """Removes a user's rows, or all (None); returns how many different ones there were."""
        gone: set[rules.UsageKey] = set()
        async for key in self._functions.keys(keys.usage):
            gone |= await self._erase_usage(key, user_id)
        return len(gone)

    async def _erase_usage(self, key: str, user_id: str | None) -> set[rules.UsageKey]:
        while (found := await self._functions.get(key)) is not None:
            spent = documents.decode(found[0], CountedUsage, key)
            left = [] if user_id is None else [row for row in spent.rows if row.user_id != user_id]
            gone = {lists.usage_key(row) for row in spent.rows if row not in left}
            if not gone and user_id is not None:
                return gone
            if user_id is None:
                if await self._functions.delete(key, found[1]):
                    return gone
            elif await self._functions.put(key, documents.encode(CountedUsage(spent.n, left)), found[1]) is not None:
                return gone
        return set()

    # Tombstones

    async def put_tombstone(self, keys: KeyValueKeys, digest: str, at: datetime) -> None:
        key = f"{keys.tombstones}{digest}"
        while True:
            found = await self._functions.get(key)
            if found and documents.decode(found[0], datetime, key) >= at:
                return
            if await self._functions.put(key, documents.encode(at), found[1] if found else None) is not None:
                return

    async def find_tombstones(self, keys: KeyValueKeys, digests: Sequence[str]) -> dict[str, datetime]:
        found = await self._functions.all(self._functions.get(f"{keys.tombstones}{each}") for each in digests)
        return {
            digest: documents.decode(each[0], datetime, f"tombstone {digest}")
            for digest, each in zip(digests, found, strict=True)
            if each is not None
        }

    async def drop_tombstone(self, keys: KeyValueKeys, digest: str, now: datetime) -> bool:
        key = f"{keys.tombstones}{digest}"
        found = await self._functions.get(key)
        if found is None or documents.decode(found[0], datetime, key) + rules.TOMBSTONE_LIFE > now:
            return False
        return await self._functions.delete(key, found[1])
