"""API keys in the store, so that several machines share them.

They are one record of a tenant that only servers use: no key, token or page reaches it, and copies of all tenants leave
it out. Writers compare and swap its revision. Servers read it again after a second, so a key is revoked everywhere
within that time. The record contains the SHA-256 of each secret, as the key file does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hansard.errors import Conflict, Corrupt, HansardError, Unavailable
from hansard.model import SERVER_TENANT
from hansard.server.key_file import Key, KeySet, new_key, revoke_in
from hansard.store import Store

T = TypeVar("T")
IN_STORE = "store"
"""The value of `--keys` that selects this."""
_NAMESPACE, _KEY = ("server",), "keys"
_FRESH_SECONDS = 1.0
_ATTEMPTS = 20


class StoreKeys(KeySet):
    """The keys of a server, in its store."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._records = store.tenant(SERVER_TENANT).records
        self._revision = 0
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Reads the keys, unless that was done just now. While the store cannot be read, every request is refused."""
        if time.monotonic() - self._read_at < _FRESH_SECONDS:
            return
        try:
            await self._read()
        except (HansardError, TimeoutError) as error:
            raise Unavailable("the keys cannot be read from the store") from error

    async def _read(self) -> None:
        record = await self._records.get(_NAMESPACE, _KEY)
        try:
            found = [] if record is None else msgspec.convert(record.value["keys"], list[Key])
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise Corrupt(f"the keys in the store cannot be read: {error}", where=SERVER_TENANT) from error
        self._keys = {key.id: key for key in found}
        self._revision = 0 if record is None else record.revision
        self._read_at = time.monotonic()

    def get(self, id: str) -> Key | None:
        """Returns a key for an open stream, which cannot wait: it is read again in the background."""
        if time.monotonic() - self._read_at >= _FRESH_SECONDS and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_quietly())
        return super().get(id)

    async def _read_quietly(self) -> None:
        """Leaves the keys as they are if they cannot be read: the next request reports that."""
        try:
            await self._read()
        except HansardError:
            return

    async def create(self, name: str, scopes: list[str] | tuple[str, ...], **options: Any) -> tuple[Key, str]:
        """Creates a key: see `KeyFile.create`."""
        key, token = new_key(name, scopes, **options)
        await self._change(lambda keys: (key, [*keys, key]))
        return key, token

    async def revoke(self, id: str) -> Key:
        return await self._change(lambda keys: revoke_in(keys, id, "the store"))

    async def add(self, keys: list[Key]) -> int:
        """Adds the keys of a key file that are not here yet. Returns how many were new."""

        def added(present: list[Key]) -> tuple[int, list[Key]]:
            known = {key.id for key in present}
            new = [key for key in keys if key.id not in known]
            return len(new), [*present, *new]

        return await self._change(added)

    async def _change(self, change: Callable[[list[Key]], tuple[T, list[Key]]]) -> T:
        """Applies a change to the newest keys, again if another writer was first."""
        for _ in range(_ATTEMPTS):
            await self._read()
            result, keys = change([*self._keys.values()])
            value = {"keys": msgspec.to_builtins(keys)}
            try:
                await self._records.put(_NAMESPACE, _KEY, value, expected_revision=self._revision)
            except Conflict:
                continue
            await self._read()
            return result
        raise Conflict("the keys are being changed by others all the time: try again")
