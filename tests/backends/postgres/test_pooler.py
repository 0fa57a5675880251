"""Behind a transaction pooler: nothing may rest on the session that a statement happens to meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.backends.postgres.kit import following, play, raw
from tests.contract.backends import quick_folder
from tests.servers import postgres
from tests.servers.pooler import Pooler, pooler
from tests.wait import PATIENCE

from hansard import Conflict, Message, Store, TimedOut, connect
from hansard.testing import Target


@pytest.fixture
def target() -> Iterator[Target]:
    target = postgres.target()
    yield target
    target.close()


def schema_of(target: Target) -> str:
    assert target.url is not None
    return target.url.rpartition("schema=")[2]


@asynccontextmanager
async def behind(target: Target, options: str) -> AsyncIterator[tuple[Store, Pooler]]:
    """A store that reaches the server through a pooler only."""
    async with connect(target.url):
        pass  # the tables are made
    with quick_folder() as folder:
        async with pooler(postgres.shared().folder, Path(folder)) as made:
            url = f"postgresql://postgres@/postgres?host={folder}&schema={schema_of(target)}&{options}"
            async with connect(url) as store:
                yield store, made


async def use_everything(store: Store) -> None:
    await store.append("c", [Message("user", "a", id="a"), Message("assistant", "b")], user_id="u")
    await store.append("c", Message("user", "a", id="a"))
    await store.append_message("c", "assistant", "c", usage={"input_tokens": 3, "model": "m"})
    await store.branch("c", at="a", branch_id="side")
    await store.append_message("c", "user", "d")
    await asyncio.gather(*(store.append_message(f"c{number % 5}", "user", str(number)) for number in range(30)))
    with pytest.raises(Conflict):
        await store.append("c", Message("user", "x"), expected_version=99)
    await store.records.put(["n"], "k", {"v": 1}, conversation_id="c")
    assert [record.key async for record in store.records.iter(["n"])] == ["k"]
    assert len((await store.list_conversations(user_id="u")).items) == 1
    assert len((await store.list_conversations(metadata={"no": 1})).items) == 0
    assert [message.text async for message in store.iter_messages("c")] == ["a", "d"]
    assert await store.check() == []
    await store.delete_conversation("c")
    assert (await store.stats()).conversations == 5


def test_everything_works_through_it(target: Target) -> None:
    async def check() -> None:
        async with behind(target, "pooler=true") as (store, made):
            assert store.capabilities.watch == "poll"
            await use_everything(store)
            assert made.transactions >= 20

    play(check)


def test_settings_hold_though_no_session_does(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as patient:
            await patient.append_message("c", "user", "x")
        async with (
            behind(target, "pooler=true&statement_timeout=2000") as (store, _),
            raw() as connection,
            connection.transaction(),
        ):
            await connection.execute(f"SELECT 1 FROM {schema_of(target)}.conversations FOR UPDATE")
            for _ in range(3):
                with pytest.raises(TimedOut):
                    await store.update_conversation("c", title="x")

    play(check)


@pytest.mark.parametrize("direct", [True, False])
def test_watching(target: Target, direct: bool) -> None:
    """Through the direct URL by listening, without one by looking; either way nothing is missed."""

    async def check() -> None:
        assert target.url is not None
        options = f"direct_url={quote(postgres.url(), safe='')}" if direct else "pooler=true&poll_interval=50"
        async with behind(target, options) as (store, _), connect(target.url) as other:
            assert store.capabilities.watch == ("push" if direct else "poll")
            last = await store.append_message("c", "user", "old")
            async with following(store, "c", after=last) as tail:
                for number in range(5):
                    coming = asyncio.ensure_future(anext(tail))
                    await asyncio.sleep(0.02)
                    await other.append_message("c", "user", str(number))
                    assert (await asyncio.wait_for(coming, PATIENCE)).text == str(number)

    play(check)
