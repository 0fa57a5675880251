"""The Store in the shapes of agent frameworks. What an adapter needs is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from hansard.errors import Unsupported
from hansard.store import checks
from hansard.store.core import Core

if TYPE_CHECKING:
    from hansard.adapters.adk import AdkSessionService
    from hansard.adapters.adk_memory import AdkMemoryService
    from hansard.adapters.calling import Call
    from hansard.adapters.claude import ClaudeSessionStore
    from hansard.adapters.crewai_flows import HansardFlowPersistence
    from hansard.adapters.crewai_memory import HansardMemoryStorage
    from hansard.adapters.langgraph.saver import HansardSaver
    from hansard.adapters.langgraph.store import HansardStore
    from hansard.adapters.openai_agents import OpenAISession
    from hansard.adapters.pydantic_ai import HansardConversationStore
    from hansard.store.store import Store


class Frameworks(Core):
    def adk_session_service(self, *, agent_name: str | None = None) -> AdkSessionService:
        """Google ADK's session service: each of its sessions is a conversation.

        `agent_name` is the agent as which other frameworks' assistants are heard; without it, the one that spoke last.
        """
        with needed("adk"):
            from hansard.adapters.adk import AdkSessionService
        return AdkSessionService(cast("Store", self), agent_name=checks.optional_text(agent_name, "agent_name"))

    def adk_memory_service(self) -> AdkMemoryService:
        """Google ADK's memory service, on the history of its sessions."""
        with needed("adk"):
            from hansard.adapters.adk_memory import AdkMemoryService
        return AdkMemoryService(cast("Store", self))

    def claude_session_store(self) -> ClaudeSessionStore:
        """The Claude Agent SDK's session store: each of its sessions is a conversation."""
        with needed("claude"):
            from hansard.adapters.claude import ClaudeSessionStore
        return ClaudeSessionStore(cast("Store", self))

    async def claude_session_binding(self, conversation_id: str | int) -> str:
        """The session id under which Claude knows a conversation: its own where that is a UUID."""
        with needed("claude"):
            from hansard.adapters.claude_sessions import bind
        return await bind(cast("Store", self), checks.id_of(conversation_id, "conversation_id", self.limits))

    def crewai_memory_storage(self) -> HansardMemoryStorage:
        """A storage for CrewAI's memory, on records. Blocking calls come from other threads than the loop's."""
        return self._crewai_memory_storage(None)

    def _crewai_memory_storage(self, call: Call | None) -> HansardMemoryStorage:
        with needed("crewai"):
            from hansard.adapters.crewai_memory import HansardMemoryStorage
        from hansard.adapters.calling import caller_of

        store = cast("Store", self)
        return HansardMemoryStorage(store, call or caller_of(store))

    def crewai_flow_persistence(
        self, *, user_id: str | int | None = None, agent_id: str | int | None = None
    ) -> HansardFlowPersistence:
        """The state of CrewAI's flows, each in the conversation of its id. `user_id` owns those that it makes."""
        return self._crewai_flow_persistence(None, user_id, agent_id)

    def _crewai_flow_persistence(
        self, call: Call | None, user_id: str | int | None, agent_id: str | int | None
    ) -> HansardFlowPersistence:
        with needed("crewai"):
            from hansard.adapters.crewai_flows import HansardFlowPersistence
        from hansard.adapters.calling import caller_of

        store = cast("Store", self)
        return HansardFlowPersistence.over(
            store,
            call or caller_of(store),
            checks.optional_id(user_id, "user_id", self.limits),
            checks.optional_id(agent_id, "agent_id", self.limits),
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
        return OpenAISession(
            cast("Store", self),
            checks.id_of(session_id, "session_id", self.limits),
            max_items=checks.optional_count(max_items, "max_items", least=1),
            user_id=checks.optional_id(user_id, "user_id", self.limits),
            agent_id=checks.optional_id(agent_id, "agent_id", self.limits),
            branch=checks.optional_id(branch, "branch", self.limits),
        )

    def pydantic_ai_store(self) -> HansardConversationStore:
        """Pydantic AI's conversation store: each of its conversations is one here."""
        with needed("pydantic-ai"):
            from hansard.adapters.pydantic_ai import HansardConversationStore
        return HansardConversationStore(cast("Store", self))

    @property
    def langgraph_checkpointer(self) -> HansardSaver:
        """A checkpointer for LangGraph, async and, from other threads than the loop's, blocking."""
        return self._langgraph_checkpointer(None)

    def _langgraph_checkpointer(self, call: Call | None) -> HansardSaver:
        with needed("langgraph"):
            from hansard.adapters.langgraph.saver import HansardSaver
        from hansard.adapters.calling import caller_of

        store = cast("Store", self)
        return HansardSaver(store, call or caller_of(store))

    @property
    def langgraph_store(self) -> HansardStore:
        """LangGraph's long-term store, on records."""
        return self._langgraph_store(None)

    def _langgraph_store(self, call: Call | None) -> HansardStore:
        with needed("langgraph"):
            from hansard.adapters.langgraph.store import HansardStore
        from hansard.adapters.calling import caller_of

        store = cast("Store", self)
        return HansardStore(store, call or caller_of(store))


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """A framework that is not installed is an error of one line, naming the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"this adapter needs an extra: pip install 'hansard[{extra}]' ({error})", capability=extra
        ) from error
