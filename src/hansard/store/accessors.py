"""The store's adapters for agent frameworks, for the async and the blocking Store alike.

Each adapter's modules are imported when it is first used.
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
        """Returns the async store that an adapter works on."""

    def _call(self) -> Call:
        """Returns the function with which an adapter's blocking methods run the store's coroutines."""
        from hansard.adapters.blocking import caller_of

        return caller_of(self._host())

    def adk_session_service(self, *, agent_name: str | None = None) -> AdkSessionService:
        """Returns a session service for Google ADK. Each of its sessions is a conversation.

        - `agent_name`: the agent to which assistant messages of other frameworks are attributed. Without it, the agent
          that wrote last.
        """
        with requiring_extra("adk"):
            from hansard.adapters.adk.sessions import AdkSessionService
        return AdkSessionService(self._host(), agent_name=checks.optional_text(agent_name, "agent_name"))

    def adk_memory_service(self) -> AdkMemoryService:
        """Returns a memory service for Google ADK, which searches the history of its sessions."""
        with requiring_extra("adk"):
            from hansard.adapters.adk.memory import AdkMemoryService
        return AdkMemoryService(self._host())

    def claude_session_store(self) -> ClaudeSessionStore:
        """Returns a session store for the Claude Agent SDK. Each of its sessions is a conversation."""
        with requiring_extra("claude"):
            from hansard.adapters.claude.session_store import ClaudeSessionStore
        return ClaudeSessionStore(self._host())

    def crewai_memory_storage(self) -> HansardMemoryStorage:
        """Returns a storage for CrewAI's memory, in records. Call its blocking methods outside the event loop."""
        with requiring_extra("crewai"):
            from hansard.adapters.crewai.memory import HansardMemoryStorage
        return HansardMemoryStorage(self._host(), self._call())

    def crewai_flow_persistence(
        self, *, user_id: str | int | None = None, agent_id: str | int | None = None
    ) -> HansardFlowPersistence:
        """Returns a persistence for CrewAI's flows. The state of a flow is stored in the conversation of the flow's id.

        - `user_id`: the owner of conversations that the persistence creates.
        - `agent_id`: the agent that writes the assistant messages of a flow.
        """
        with requiring_extra("crewai"):
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
        """Returns a conversation as a `Session` of the OpenAI Agents SDK.

        - `session_id`: the conversation's id.
        - `max_items`: how many of the newest items a run receives; None for all.
        - `user_id`, `agent_id`: the owner and the agent of a conversation that the session creates.
        - `branch`: which branch; None for the active one.
        """
        with requiring_extra("openai-agents"):
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
        """Returns a conversation store for Pydantic AI. Each of its conversations is a conversation here."""
        with requiring_extra("pydantic-ai"):
            from hansard.adapters.pydantic_ai.conversations import HansardConversationStore
        return HansardConversationStore(self._host())

    @property
    def langgraph_checkpointer(self) -> HansardSaver:
        """A checkpointer for LangGraph. It is async; call its blocking methods outside the event loop's thread."""
        with requiring_extra("langgraph"):
            from hansard.adapters.langgraph.saver import HansardSaver
        return HansardSaver(self._host(), self._call())

    @property
    def langgraph_store(self) -> HansardStore:
        """A long-term store for LangGraph, kept in records."""
        with requiring_extra("langgraph"):
            from hansard.adapters.langgraph.store import HansardStore
        return HansardStore(self._host(), self._call())


class AsyncAccessors(Accessors):
    """Adapter methods that wait for the storage; the blocking Store wraps them."""

    async def claude_session_binding(self, conversation_id: str | int) -> str:
        """Returns the session id under which Claude knows `conversation_id`: the same id if it is a UUID."""
        with requiring_extra("claude"):
            from hansard.adapters.claude.sessions import bind
        store = self._host()
        return await bind(store, checks.id_of(conversation_id, "conversation_id", store.limits))


@contextmanager
def requiring_extra(extra: str) -> Iterator[None]:
    """Turns the ImportError of a missing framework into a one-line error that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"this adapter needs an extra: pip install 'hansard[{extra}]' ({error})", capability=extra
        ) from error
