"""The Store in the shapes of agent frameworks: the one table of them, for the Store and for its blocking twin.

What an adapter needs is imported when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hansard.blocking import Call
from hansard.errors import Unsupported
from hansard.store import checks

if TYPE_CHECKING:
    from hansard.adapters.adk.memory import AdkMemoryService
    from hansard.adapters.adk.sessions import AdkSessionService
    from hansard.adapters.claude.session_store import ClaudeSessionStore
    from hansard.adapters.crewai.flows import HansardFlowPersistence
    from hansard.adapters.crewai.memory import HansardMemoryStorage
    from hansard.adapters.langgraph.saver import HansardSaver
    from hansard.adapters.langgraph.store import HansardStore
    from hansard.adapters.openai_agents import OpenAISession
    from hansard.adapters.pydantic_ai.conversations import HansardConversationStore
    from hansard.store.store import Store


class Accessors(ABC):
    """Adapters over a store."""

    @abstractmethod
    def _host(self) -> Store:
        """The async store that an adapter works on."""

    def _call(self) -> Call:
        """How blocking methods of an adapter run the store's coroutines."""
        from hansard.adapters.blocking import caller_of

        return caller_of(self._host())

    def adk_session_service(self, *, agent_name: str | None = None) -> AdkSessionService:
        """Google ADK's session service: each of its sessions is a conversation.

        `agent_name` is the agent as which other frameworks' assistants are heard; without it, the one that spoke last.
        """
        with needed("adk"):
            from hansard.adapters.adk.sessions import AdkSessionService
        return AdkSessionService(self._host(), agent_name=checks.optional_text(agent_name, "agent_name"))

    def adk_memory_service(self) -> AdkMemoryService:
        """Google ADK's memory service, on the history of its sessions."""
        with needed("adk"):
            from hansard.adapters.adk.memory import AdkMemoryService
        return AdkMemoryService(self._host())

    def claude_session_store(self) -> ClaudeSessionStore:
        """The Claude Agent SDK's session store: each of its sessions is a conversation."""
        with needed("claude"):
            from hansard.adapters.claude.session_store import ClaudeSessionStore
        return ClaudeSessionStore(self._host())

    def crewai_memory_storage(self) -> HansardMemoryStorage:
        """A storage for CrewAI's memory, on records. Blocking calls come from other threads than the loop's."""
        with needed("crewai"):
            from hansard.adapters.crewai.memory import HansardMemoryStorage
        return HansardMemoryStorage(self._host(), self._call())

    def crewai_flow_persistence(
        self, *, user_id: str | int | None = None, agent_id: str | int | None = None
    ) -> HansardFlowPersistence:
        """The state of CrewAI's flows, each in the conversation of its id. `user_id` owns those that it makes."""
        with needed("crewai"):
            from hansard.adapters.crewai.flows import HansardFlowPersistence
        store = self._host()
        return HansardFlowPersistence.over(
            store,
            self._call(),
            checks.optional_id(user_id, "user_id", store.limits),
            checks.optional_id(agent_id, "agent_id", store.limits),
        )

    def openai_session(
        self,
        session_id: str | int,
        *,
        max_items: int | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        branch: str | None = None,
    ) -> OpenAISession:
        """The conversation as a `Session` of the OpenAI Agents SDK. `max_items` limits what a run is given of it."""
        with needed("openai-agents"):
            from hansard.adapters.openai_agents import OpenAISession
        store = self._host()
        return OpenAISession(
            store,
            checks.id_of(session_id, "session_id", store.limits),
            max_items=checks.optional_count(max_items, "max_items", least=1),
            user_id=checks.optional_id(user_id, "user_id", store.limits),
            agent_id=checks.optional_id(agent_id, "agent_id", store.limits),
            branch=checks.optional_id(branch, "branch", store.limits),
        )

    def pydantic_ai_store(self) -> HansardConversationStore:
        """Pydantic AI's conversation store: each of its conversations is one here."""
        with needed("pydantic-ai"):
            from hansard.adapters.pydantic_ai.conversations import HansardConversationStore
        return HansardConversationStore(self._host())

    @property
    def langgraph_checkpointer(self) -> HansardSaver:
        """A checkpointer for LangGraph, async and, from other threads than the loop's, blocking."""
        with needed("langgraph"):
            from hansard.adapters.langgraph.saver import HansardSaver
        return HansardSaver(self._host(), self._call())

    @property
    def langgraph_store(self) -> HansardStore:
        """LangGraph's long-term store, on records."""
        with needed("langgraph"):
            from hansard.adapters.langgraph.store import HansardStore
        return HansardStore(self._host(), self._call())


class AsyncAccessors(Accessors):
    """And what has to wait for the storage, which the blocking twin wraps."""

    async def claude_session_binding(self, conversation_id: str | int) -> str:
        """The session id under which Claude knows a conversation: its own where that is a UUID."""
        with needed("claude"):
            from hansard.adapters.claude.sessions import bind
        store = self._host()
        return await bind(store, checks.id_of(conversation_id, "conversation_id", store.limits))


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """A framework that is not installed is an error of one line, naming the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"this adapter needs an extra: pip install 'hansard[{extra}]' ({error})", capability=extra
        ) from error
