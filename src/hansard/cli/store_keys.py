"""The keys of a store, for the blocking commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hansard.connection import connect
from hansard.server.key_file import Key
from hansard.server.store_keys import StoreKeys

T = TypeVar("T")


class KeysInStore:
    """The methods of `KeyFile`, each with a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _run(self, use: Callable[[StoreKeys], Awaitable[T]]) -> T:
        async def run() -> T:
            async with connect(self._url) as store:
                keys = StoreKeys(store)
                await keys.refresh()
                return await use(keys)

        return asyncio.run(run())

    def create(self, name: str, scopes: list[str], **options: Any) -> tuple[Key, str]:
        return self._run(lambda keys: keys.create(name, scopes, **options))

    def revoke(self, id: str) -> Key:
        return self._run(lambda keys: keys.revoke(id))

    def add(self, added: list[Key]) -> int:
        return self._run(lambda keys: keys.add(added))

    def list(self) -> list[Key]:
        async def listed(keys: StoreKeys) -> list[Key]:
            return keys.list()

        return self._run(listed)
