"""langchain-postgres' PostgresChatMessageHistory: psycopg, a connection that all conversations share.

Its read has no limit: it loads and decodes the whole conversation. Sessions must be UUIDs.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.samples import Sample

history = importlib.import_module("langchain_postgres")
messages = importlib.import_module("langchain_core.messages")
psycopg = importlib.import_module("psycopg")


def _message(sample: Sample) -> Any:
    kind = messages.AIMessage if sample.role == "assistant" else messages.HumanMessage
    return kind(content=sample.text, additional_kwargs=sample.metadata)


class LangChainPostgres(Contender):
    key: ClassVar[str] = "langchain"
    title: ClassVar[str] = "langchain-postgres history"
    package: ClassVar[str] = "langchain-postgres"
    thrift: ClassVar[int] = 5

    async def open(self) -> None:
        self._table = f"langchain_{self.path.parent.name}".lower()
        self._connection = await psycopg.AsyncConnection.connect(self.url)
        await history.PostgresChatMessageHistory.acreate_tables(self._connection, self._table)
        self._histories: dict[str, Any] = {}
        self._turn = asyncio.Lock()

    async def close(self) -> None:
        await self._connection.close()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self.append_many(conversation, [sample])

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        # It commits the shared connection, even during other operations.
        async with self._turn:
            await self._history(conversation).aadd_messages([_message(sample) for sample in samples])

    async def last(self, conversation: str, count: int) -> Sequence[Any]:
        async with self._turn:
            found: list[Any] = await self._history(conversation).aget_messages()
        return found[-count:]

    def texts(self, messages: Sequence[Any]) -> list[str]:
        return [message.content for message in messages]

    def _history(self, conversation: str) -> Any:
        if conversation not in self._histories:
            session = str(uuid.uuid5(uuid.NAMESPACE_URL, conversation))
            self._histories[conversation] = history.PostgresChatMessageHistory(
                self._table, session, async_connection=self._connection
            )
        return self._histories[conversation]
