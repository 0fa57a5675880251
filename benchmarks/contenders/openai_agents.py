"""openai-agents' SQLiteSession, the fastest peer: plain sqlite3 in WAL mode, indexed, through `to_thread`.

It has no store object: every conversation is a session object with its own connections to the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.samples import Sample

# By name, so that types are the same whether or not the package is installed.
agents = importlib.import_module("agents")


def _item(sample: Sample) -> dict[str, Any]:
    return {"role": sample.role, "content": sample.text, "metadata": sample.metadata}


class OpenAIAgents(Contender):
    key: ClassVar[str] = "openai-agents"
    title: ClassVar[str] = "openai-agents SQLiteSession"
    package: ClassVar[str] = "openai-agents"

    async def open(self) -> None:
        self._sessions: dict[str, Any] = {}

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

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
            session = agents.SQLiteSession(conversation, self.path.with_suffix(".agents"))
            self._sessions[conversation] = session
        return session
