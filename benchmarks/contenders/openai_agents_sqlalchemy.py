"""openai-agents' SQLAlchemySession on PostgreSQL, through asyncpg: one engine, a session object per conversation."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from benchmarks.contenders.base import Contender
from benchmarks.samples import Sample

memory = importlib.import_module("agents.extensions.memory.sqlalchemy_session")
sqlalchemy = importlib.import_module("sqlalchemy.ext.asyncio")
importlib.import_module("asyncpg")


def _item(sample: Sample) -> dict[str, Any]:
    return {"role": sample.role, "content": sample.text, "metadata": sample.metadata}


def connecting(url: str) -> str:
    """Returns our URL in SQLAlchemy's form, without our options."""
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [""])[0]
    return f"postgresql+asyncpg://{parts.netloc}{parts.path}{f'?host={host}' if host else ''}"


class SQLAlchemySession(Contender):
    key: ClassVar[str] = "openai-agents"
    title: ClassVar[str] = "openai-agents SQLAlchemySession"
    package: ClassVar[str] = "openai-agents"
    thrift: ClassVar[int] = 5

    async def open(self) -> None:
        self._engine = sqlalchemy.create_async_engine(connecting(self.url))
        self._prefix = f"agents_{self.path.parent.name}".lower()
        self._sessions: dict[str, Any] = {}

    async def close(self) -> None:
        await self._engine.dispose()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self._session(conversation).add_items([_item(sample)])

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._session(conversation).add_items([_item(sample) for sample in samples])

    async def last(self, conversation: str, count: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = await self._session(conversation).get_items(limit=count)
        return items

    def texts(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        return [message["content"] for message in messages]

    def _session(self, conversation: str) -> Any:
        session = self._sessions.get(conversation)
        if session is None:
            session = self._sessions[conversation] = memory.SQLAlchemySession(
                conversation,
                engine=self._engine,
                create_tables=not self._sessions,
                sessions_table=f"{self._prefix}_sessions",
                messages_table=f"{self._prefix}_messages",
            )
        return session
