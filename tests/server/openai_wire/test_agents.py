"""The session of OpenAI's Agents SDK, which keeps its history in the Conversations API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from agents import OpenAIConversationsSession
from tests.server.kit import serving
from tests.wait import PATIENCE


def scenario(play: Callable[[OpenAIConversationsSession, openai.AsyncOpenAI], Awaitable[None]]) -> None:
    async def run(address: str) -> None:
        async with openai.AsyncOpenAI(base_url=address + "/v1", api_key="x", max_retries=0, timeout=PATIENCE) as client:
            await play(OpenAIConversationsSession(openai_client=client), client)

    with serving() as api:
        asyncio.run(run(api.address))


def talk(count: int) -> list[Any]:
    return [{"role": "user", "content": f"number {number}"} for number in range(count)]


def texts(items: list[Any]) -> list[str]:
    return [item["content"][0]["text"] for item in items]


def test_a_session() -> None:
    async def play(session: OpenAIConversationsSession, client: openai.AsyncOpenAI) -> None:
        assert await session.get_items() == []
        await session.add_items(talk(45))
        assert texts(await session.get_items()) == [f"number {number}" for number in range(45)], "over several pages"
        assert texts(await session.get_items(limit=2)) == ["number 43", "number 44"]
        popped: Any = await session.pop_item()
        assert texts([popped]) == ["number 44"]
        assert len(await session.get_items()) == 44
        assert (await client.conversations.retrieve(session.session_id)).id == session.session_id
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None

    scenario(play)


def test_a_turn_with_tools_is_read_back_as_a_model_takes_it() -> None:
    items: list[Any] = [
        {"role": "user", "content": "Where is my order?"},
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "opaque"},
        {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "on its way"},
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "It is on its way.", "annotations": []}],
        },
    ]

    async def play(session: OpenAIConversationsSession, client: openai.AsyncOpenAI) -> None:
        await session.add_items(items)
        found: list[Any] = list(await session.get_items())
        for given, back in zip(items[1:4], found[1:4], strict=True):
            assert given.items() <= back.items()
        assert found[1]["id"] == "rs_1", "reasoning keeps what replays it"
        assert texts(found[4:]) == ["It is on its way."]
        other = OpenAIConversationsSession(openai_client=client)
        await other.add_items(found)
        assert await other.get_items() == found, "and what was read can be added elsewhere"

    scenario(play)
