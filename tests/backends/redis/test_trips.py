"""How many round trips a call takes on one server: what is remembered is not asked for, and questions go together."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import hansard
from hansard.backends.redis.connection import RedisConnection
from hansard.errors import HansardError
from hansard.model import Message

PICTURE = base64.b64encode(bytes(range(256)) * 30).decode()
Count = Callable[[Awaitable[Any]], Awaitable[int]]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    trips: list[int] = []
    exchange = RedisConnection._send

    async def counted(self: RedisConnection, commands: Any) -> Any:
        trips.append(len(commands))
        return await exchange(self, commands)

    monkeypatch.setattr(RedisConnection, "_send", counted)

    async def count(call: Awaitable[Any]) -> int:
        trips.clear()
        with contextlib.suppress(HansardError):
            await call
        return len(trips)

    return count


def said(id: str, content: Any = "x") -> Message:
    return Message("user", content, id=id)


async def teach(store: hansard.Store) -> None:
    """A server that does not know a script yet takes one trip more."""
    await store.append("taught", [said("a"), said("b")])
    await store.delete_message("taught", "a")


def test_round_trips(url: str, count: Count) -> None:
    async def play() -> dict[str, int]:
        async with hansard.connect(url) as store:
            await teach(store)
            return {
                "append to a new conversation": await count(store.append("c", [said(str(n)) for n in range(20)])),
                "append": await count(store.append_message("c", "user", "x")),
                "append with an id": await count(store.append("c", said("with an id"))),
                "append what is stored": await count(store.append("c", said("with an id"))),
                "append with a blob": await count(store.append("c", said("picture", [PICTURE]))),
                "append for another version": await count(store.append_message("c", "user", "x", expected_version=1)),
                "update a message": await count(store.update_message("c", "1", content="y")),
                "update no message": await count(store.update_message("c", "none", content="y")),
                "update a conversation": await count(store.update_conversation("c", title="t")),
                "delete a message": await count(store.delete_message("c", "2")),
                "delete a message with a blob": await count(store.delete_message("c", "picture")),
                "pop": await count(store.pop_message("c")),
                "branch": await count(store.branch("c", at="5")),
                "switch": await count(store.switch_branch("c", "main")),
                "replace": await count(store.replace_messages("c", [said("new")])),
                "clear": await count(store.clear_messages("c")),
                "delete": await count(store.delete_conversation("c")),
            }

    # Where the Store drops what it derived from messages, it takes a look at the conversation and one at its shares.
    assert asyncio.run(play()) == {
        "append to a new conversation": 2,
        "append": 1,
        "append with an id": 1,
        "append what is stored": 2,
        "append with a blob": 1,
        "append for another version": 1,
        "update a message": 3,
        "update no message": 1,
        "update a conversation": 1,
        "delete a message": 4,
        "delete a message with a blob": 5,
        "pop": 5,
        "branch": 3,
        "switch": 1,
        "replace": 5,
        "clear": 4,
        "delete": 2,
    }


def test_a_list_in_a_view_asks_for_memberships_on_the_way(url: str, count: Count) -> None:
    async def play() -> None:
        async with hansard.connect(url) as store:
            ann = store.user("ann")
            assert await count(ann.list_conversations()) == 1, "there are no conversations to read"
            for id in ("a", "b", "c"):
                await store.append_message(id, "user", "x", user_id="ann")
            assert await count(ann.list_conversations()) == await count(store.list_conversations()) == 2
            page = await ann.list_conversations(limit=2)
            assert page.next_cursor is not None
            assert await count(ann.list_conversations(limit=2, after=page.next_cursor)) == 2
            await store.append_message("other", "user", "x", user_id="ben")
            await store.add_member("other", "ann")
            found = await ann.list_conversations()
            assert [each.id for each in found.items] == ["other", "c", "b", "a"]

    asyncio.run(play())


def test_an_append_that_was_overtaken_asks_for_all_at_once(url: str, count: Count) -> None:
    async def play() -> None:
        async with hansard.connect(url) as store, hansard.connect(url) as other:
            await teach(store)
            await store.append("c", said("1"))
            await other.append("c", said("2"))
            assert await count(store.append("c", said("3"))) == 3, (
                "the lost script, the state with the answers, a script"
            )

    asyncio.run(play())


def test_writes_to_one_conversation_do_not_wait_for_each_other(url: str, count: Count) -> None:
    async def play() -> None:
        async with hansard.connect(url) as store:
            await teach(store)
            await store.append("c", said("0"))
            many = [store.append("c", said(str(number))) for number in range(1, 65)]
            assert await count(asyncio.gather(*many)) <= 3
            assert [message.seq for message in await store.get_messages("c", last=65)] == list(range(1, 66))
            mixed: list[Awaitable[Any]] = [store.append("c", said("last")), store.update_conversation("c", title="t")]
            assert await count(asyncio.gather(*mixed)) <= 2
            assert await store.check() == []

    asyncio.run(play())
