"""The embedded default storage. Begin with `storage.py`; operations see `transaction.py`.

`engine.py` explains how writes are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hansard.backends.sqlite.storage import SqliteStorage
from hansard.backends.stored import StoredBackend
from hansard.contract.types import Context
from hansard.errors import ValidationError
from hansard.model import Conversation, Message
from hansard.urls import Url

__all__ = ["SqliteBackend", "SqliteStorage", "open_backend"]


class SqliteBackend(StoredBackend[SqliteStorage]):
    def __init__(self, path: Path, *, durability: str = "full", blocking: bool = False, upgrade: bool = False) -> None:
        storage = SqliteStorage(path, durability=durability, blocking=blocking, upgrade=upgrade)
        super().__init__(storage, append=storage.append, list_own=storage.list_own)

    # Two frequent reads that need only a part of the conversation's state.

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return await self.storage.get_conversation(context, id)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found = await self.storage.find_messages(context, id, message_ids)
        # A member of the conversation sees it in another way.
        return found if found or context.user is None else await super().find_messages(context, id, message_ids)

    def bulk_load(self) -> AbstractContextManager[None]:
        return self.storage.engine.bulk_load()


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> SqliteBackend:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; `?durability=full|normal|off`, `?inline=true`."""
    durability = url.choice("durability", ("full", "normal", "off"), "full")
    inline = url.flag("inline")
    url.finish(("durability", "inline"))
    if url.netloc:
        raise ValidationError(
            f"{url.text!r} has two slashes: write 'sqlite:///{url.netloc}{url.path}' for a relative path"
        )
    name = url.path.removeprefix("/")
    if not name:
        raise ValidationError(f"{url.text!r} names no file: write for example 'sqlite:///chats.db'")
    if name == ":memory:":
        raise ValidationError("SQLite in memory is not offered: use 'memory://'")
    backend = SqliteBackend(Path(name), durability=durability, blocking=blocking or inline, upgrade=upgrade)
    if upgrade:
        try:
            await backend.storage.upgrade_index()
        except BaseException:
            await backend.close()
            raise
    return backend
