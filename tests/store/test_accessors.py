"""The Store in the shapes of frameworks: async and blocking stores have the same accessors, typed and documented."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from typing import assert_type

import pytest

import hansard
from hansard import sync
from hansard.adapters.adk.sessions import AdkSessionService
from hansard.adapters.claude.session_store import ClaudeSessionStore
from hansard.adapters.langgraph.saver import HansardSaver
from hansard.adapters.langgraph.store import HansardStore
from hansard.adapters.openai_agents import OpenAISession
from hansard.adapters.pydantic_ai.conversations import HansardConversationStore
from hansard.store.accessors import Accessors

ACCESSORS = sorted(name for name in vars(Accessors) if not name.startswith("_"))


def test_accessors_of_the_async_store_are_typed() -> None:
    async def run() -> None:
        async with hansard.connect("memory://") as store:
            assert isinstance(assert_type(store.openai_session("c"), OpenAISession), OpenAISession)
            assert isinstance(assert_type(store.adk_session_service(), AdkSessionService), AdkSessionService)
            assert isinstance(assert_type(store.claude_session_store(), ClaudeSessionStore), ClaudeSessionStore)
            assert isinstance(assert_type(store.langgraph_checkpointer, HansardSaver), HansardSaver)
            assert isinstance(assert_type(store.langgraph_store, HansardStore), HansardStore)
            assert assert_type(await store.claude_session_binding("c"), str)

    asyncio.run(run())


def test_accessors_of_the_blocking_store_are_typed() -> None:
    with sync.connect("memory://") as store:
        assert isinstance(assert_type(store.openai_session("c"), OpenAISession), OpenAISession)
        assert isinstance(assert_type(store.pydantic_ai_store(), HansardConversationStore), HansardConversationStore)
        assert isinstance(assert_type(store.langgraph_checkpointer, HansardSaver), HansardSaver)
        assert isinstance(assert_type(store.langgraph_store, HansardStore), HansardStore)
        assert assert_type(store.claude_session_binding("c"), str)


@pytest.mark.parametrize("name", ACCESSORS)
@pytest.mark.parametrize("store", [hansard.Store, sync.Store], ids=["async", "blocking"])
def test_help_shows_the_returned_type(store: type, name: str) -> None:
    found = inspect.getattr_static(store, name)
    returned = str((found.fget if isinstance(found, property) else found).__annotations__["return"])
    text = pydoc.plain(pydoc.render_doc(store))
    assert returned.startswith(("Hansard", "Adk", "Claude", "OpenAI"))
    assert name in text
    assert found.__doc__.split("\n")[0] in text
