"""Our adapters for frameworks, called like the frameworks' own stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.contenders.google_adk import APP, USER, GoogleADK, event_of
from benchmarks.contenders.langgraph import LangGraph
from benchmarks.contenders.openai_agents import OpenAIAgents
from benchmarks.samples import Sample
from hansard import connect
from hansard.adapters.adk.events import row_of


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
        self.saver = self._store.langgraph_checkpointer

    async def close(self) -> None:
        await self._store.close()


class OurGoogleADK(GoogleADK):
    key: ClassVar[str] = "our-google-adk"
    title: ClassVar[str] = "hansard adk_session_service"
    package: ClassVar[str] = "hansard"
    thrift: ClassVar[int] = 1

    async def open(self) -> None:
        self._store = await connect(self.url)
        self._service = self._store.adk_session_service()
        self._prepared = {}
        self._sessions: dict[str, Any] = {}

    async def close(self) -> None:
        await self._store.close()

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._session(conversation)
        await self._store.append(conversation, [row_of(event_of(sample)) for sample in samples])
        # Written without the service, so its session is stale.
        found = await self._service.get_session(app_name=APP, user_id=USER, session_id=conversation)
        self._sessions[conversation] = found
