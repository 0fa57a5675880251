"""PostgreSQL. Begin with `storage.py`; operations see `transaction.py`, and `append.py` makes appends fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hansard.backends.postgres.options import parse
from hansard.backends.postgres.storage import PostgresStorage
from hansard.backends.stored import StoredBackend
from hansard.contract.types import Context
from hansard.errors import Unsupported
from hansard.model import Conversation, Message
from hansard.urls import Url

__all__ = ["PostgresBackend", "PostgresStorage", "open_backend"]


class PostgresBackend(StoredBackend[PostgresStorage]):
    def __init__(self, storage: PostgresStorage) -> None:
        super().__init__(storage, append=storage.appender.append, list_own=storage.list_own)

    # Two frequent reads that need only a part of the conversation's state.

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return await self.storage.get_conversation(context, id)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found = await self.storage.find_messages(context, id, message_ids)
        # A member of the conversation sees it in another way.
        return found if found or context.user is None else await super().find_messages(context, id, message_ids)

    async def backup(self, target: Path) -> None:
        raise Unsupported(
            "back up a PostgreSQL server with its own tools, such as pg_dump, or use copy_to(another store)",
            capability="backup",
        )

    async def vacuum(self) -> None:
        await self.storage.vacuum()


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> PostgresBackend:
    """`postgresql://user:password@host/database?schema=hansard`; the options are in `options.py`."""
    return PostgresBackend(await PostgresStorage.open(parse(url), upgrade=upgrade))
