"""Ours behind frameworks: the same calls as their own stores get, on the Store's adapters."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.contenders.langgraph import LangGraph
from benchmarks.contenders.openai_agents import OpenAIAgents
from hansard import connect


class OurOpenAIAgents(OpenAIAgents):
    key: ClassVar[str] = "our-openai-agents"
    title: ClassVar[str] = "hansard openai_session"
    package: ClassVar[str] = "hansard"

    async def open(self) -> None:
        await super().open()
        self._store = await connect(self.url)

    async def close(self) -> None:
        await self._store.close()

    def _session(self, conversation: str) -> Any:
        session = self._sessions.get(conversation)
        if session is None:
            session = self._sessions[conversation] = self._store.openai_session(conversation)
        return session


class OurLangGraph(LangGraph):
    key: ClassVar[str] = "our-langgraph"
    title: ClassVar[str] = "hansard langgraph_checkpointer"
    package: ClassVar[str] = "hansard"

    async def open(self) -> None:
        self._store = await connect(self.url)
        self._saver = self._store.langgraph_checkpointer

    async def close(self) -> None:
        await self._store.close()
