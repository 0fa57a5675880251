"""What another process does between two statements of a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.backends.postgres.kit import backend_of, opened, play
from tests.servers import postgres

from hansard import Conflict, ConversationNotFound, Message
from hansard.backends.postgres import state_cache
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.engine import PostgresEngine

EARLIER = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture
def url() -> Iterator[str]:
    target = postgres.target()
    assert target.url is not None
    yield target.url
    target.close()


def after_asking(
    patch: pytest.MonkeyPatch, query: str, value: str, act: Callable[[], Awaitable[Any]], method: str = "all"
) -> list[str]:
    """Runs `act` once, after the first statement of this name that has this value. Returns a list that then says so."""
    original = getattr(PostgresConnection, method)
    done: list[str] = []

    async def ask(self: PostgresConnection, *given: Any) -> Any:
        answer = await original(self, *given)
        if not done and query in str(given) and value in str(given):
            done.append(query)
            await act()
        return answer

    patch.setattr(PostgresConnection, method, ask)
    return done


def test_a_head_that_is_forgotten_while_others_are_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation exists all the same: an append that must not create it is not refused."""
    monkeypatch.setattr(state_cache, "_MOST", 2)

    async def scenario() -> None:
        async with opened(url) as store:
            await store.append_message("warm", "user", "first")

            async def forget() -> None:
                for id in ("x", "y"):
                    await store.tenant("other").append_message(id, "user", "hello")
                assert backend_of(store).storage.engine.states.get("default", "warm") is None

            done = after_asking(monkeypatch, "find_heads", "'cold'", forget)
            # The first goes alone, the others together behind it.
            await asyncio.gather(
                store.append_message("lead", "user", "a"),
                store.append_message("cold", "user", "b"),
                store.append_message("warm", "user", "second", create=False),
            )
            assert done
            assert [message.text for message in await store.get_messages("warm")] == ["first", "second"]
            with pytest.raises(ConversationNotFound):
                await store.append_message("missing", "user", "c", create=False)

    play(scenario)


def replay(*, id: str = "m") -> Message:
    return Message("user", "from before", id=id, created_at=EARLIER)


def test_a_conversation_made_and_deleted_before_a_replay_makes_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:

            async def make_and_delete() -> None:
                await other.append_message("c", "user", "hello")
                await other.delete_conversation("c")

            done = after_asking(monkeypatch, "find_tombstones", "", make_and_delete, "together")
            with pytest.raises(Conflict, match="was deleted"):
                await store.append("c", replay())
            assert done
            assert await store.get_conversation("c") is None

    play(scenario)


def test_a_deletion_that_commits_while_a_replay_waits_for_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened(url) as store, opened(url) as other:
            deletion: list[asyncio.Task[Any]] = []
            is_deleted, may_commit = asyncio.Event(), asyncio.Event()
            commit = PostgresEngine.commit

            async def make_and_begin_to_delete() -> None:
                await other.append_message("c", "user", "hello")
                monkeypatch.setattr(PostgresEngine, "commit", held)
                deletion.append(asyncio.create_task(other.delete_conversation("c")))
                await is_deleted.wait()
                monkeypatch.setattr(PostgresEngine, "commit", commit)
                asyncio.get_running_loop().call_later(0.5, may_commit.set)

            async def held(self: PostgresEngine, *given: Any) -> None:
                is_deleted.set()
                await may_commit.wait()
                await commit(self, *given)

            done = after_asking(monkeypatch, "find_heads", "'c'", make_and_begin_to_delete)
            with pytest.raises(Conflict, match="was deleted"):
                await store.append("c", replay())
            assert done
            assert (await deletion[0]).conversations == 1
            assert await store.get_conversation("c") is None

    play(scenario)
