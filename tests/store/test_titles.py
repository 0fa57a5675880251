"""Automatic titles: what happens while a titler works, and when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import hansard
from hansard import Message, Store


def test_a_title_that_is_set_while_the_titler_works_stays() -> None:
    async def run() -> None:
        stores: list[Store] = []

        async def titler(messages: Sequence[Message]) -> str:
            await stores[0].update_conversation("c", title="Mine")
            return "Made up"

        async with hansard.connect("memory://", auto_title=titler) as store:
            stores.append(store)
            await store.append_message("c", role="user", content="hello")
            conversation = await store.get_conversation("c")
            assert conversation is not None
            assert conversation.title == "Mine"

    asyncio.run(run())


def test_a_conversation_that_others_write_to_meanwhile_gets_its_title() -> None:
    async def run() -> None:
        stores: list[Store] = []

        async def titler(messages: Sequence[Message]) -> str:
            await stores[0].append_message("c", role="assistant", content="meanwhile")
            return "Greetings"

        async with hansard.connect("memory://", auto_title=titler) as store:
            stores.append(store)
            await store.append_message("c", role="user", content="hello")
            conversation = await store.get_conversation("c")
            assert conversation is not None
            assert conversation.title == "Greetings"

    asyncio.run(run())


def test_a_conversation_that_is_deleted_while_the_titler_works_stays_deleted() -> None:
    async def run() -> None:
        stores: list[Store] = []

        async def titler(messages: Sequence[Message]) -> str:
            await stores[0].delete_conversation("c")
            return "Gone"

        async with hansard.connect("memory://", auto_title=titler) as store:
            stores.append(store)
            assert await store.append_message("c", role="user", content="hello")
            assert await store.get_conversation("c") is None

    asyncio.run(run())


def test_a_titler_that_returns_no_text_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hansard.connect("memory://", auto_title=lambda messages: 7) as store:  # type: ignore[arg-type, return-value]
            await store.append_message("c", role="user", content="hello")
            conversation = await store.get_conversation("c")
            assert conversation is not None
            assert (conversation.title, conversation.message_count) == (None, 1)

    asyncio.run(run())
    assert "auto_title failed" in caplog.text


@pytest.mark.parametrize("created_first", [False, True])
def test_a_conversation_that_is_created_again_gets_a_title_again(*, created_first: bool) -> None:
    async def run() -> None:
        async with hansard.connect("memory://", auto_title=True) as store:
            for said in ("First things", "Second things"):
                if created_first:
                    await store.create_conversation("c")
                await store.append("c", [Message("system", "Be brief."), Message("user", said)])
                await store.append_message("c", role="user", content="More")
                conversation = await store.get_conversation("c")
                assert conversation is not None
                assert conversation.title == said
                await store.delete_conversation("c")

    asyncio.run(run())
