"""The live tail over LISTEN and NOTIFY: one NOTIFY a commit, and nothing lost while nobody hears."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.backends.postgres.kit import backend_of, following, play, raw
from tests.servers import postgres
from tests.wait import PATIENCE, coming

from hansard import Store, connect
from hansard.backends.postgres.watch import EVERYTHING, mark_of, payload_of
from hansard.testing import Target


@pytest.fixture
def target() -> Iterator[Target]:
    target = postgres.target()
    yield target
    target.close()


class Heard:
    """What is notified on a store's channel."""

    def __init__(self) -> None:
        self.payloads: list[str] = []

    def __call__(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        self.payloads.append(payload)


def test_one_notify_a_commit(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as store, raw() as connection:
            heard = Heard()
            await connection.add_listener(backend_of(store).storage.engine.channel, heard)
            await asyncio.gather(*(store.append_message(f"c{number}", "user", "x") for number in range(64)))
            await store.append_message("c1", "user", "y")
            await store.update_conversation("c1", title="t")
            await connection.fetch("SELECT 1")
            marks = [set(payload.split()) for payload in heard.payloads]
            # The first caller goes alone, the others together.
            assert sum(len(each) for each in marks[:-2]) == 64
            assert len(marks) <= 5
            assert marks[-2:] == [{mark_of("default", "c1")}] * 2
            await connection.remove_listener(backend_of(store).storage.engine.channel, heard)

    play(check)


def test_what_is_refused_or_only_read_tells_nobody(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as store, raw() as connection:
            heard = Heard()
            await connection.add_listener(backend_of(store).storage.engine.channel, heard)
            await store.get_messages("c")
            await store.delete_conversation("c")
            await store.records.put(["n"], "k", 1)
            await connection.fetch("SELECT 1")
            assert heard.payloads == []
            await connection.remove_listener(backend_of(store).storage.engine.channel, heard)

    play(check)


def test_a_long_payload_wakes_everybody() -> None:
    assert payload_of("t", []) is None
    assert payload_of("t", ["a"]) == mark_of("t", "a") != mark_of("t", "b")
    assert payload_of("t", [str(number) for number in range(5000)]) == EVERYTHING


async def listener_of(connection: Any, store: Store) -> int | None:
    channel = backend_of(store).storage.engine.channel
    found = await connection.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1", f"%{channel}%"
    )
    return None if found is None else int(found)


def test_nothing_is_lost_while_the_listener_is_gone(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as store, connect(target.url) as other, raw() as connection:
            last = await store.append_message("c", "user", "old")
            async with following(store, "c", after=last) as tail:
                await other.append_message("c", "user", "0")
                assert (await asyncio.wait_for(anext(tail), PATIENCE)).text == "0"
                for number in range(1, 6):
                    next_one = asyncio.ensure_future(anext(tail))
                    pid = await coming(lambda: listener_of(connection, store))
                    await connection.execute("SELECT pg_terminate_backend($1, 5000)", pid)
                    await other.append_message("c", "user", str(number))
                    assert (await asyncio.wait_for(next_one, PATIENCE)).text == str(number)

    play(check)


def test_many_watchers_share_one_connection(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as store, connect(target.url) as other, raw() as connection:
            old = [await store.append_message(f"c{number}", "user", "old") for number in range(20)]
            tails: list[Any] = [store.watch(f"c{number}", after=old[number]) for number in range(20)]
            waiting = [asyncio.ensure_future(anext(tail)) for tail in tails]
            await coming(lambda: listener_of(connection, store))
            await asyncio.sleep(0.2)  # for others that there should not be
            listening = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1",
                f"%{backend_of(store).storage.engine.channel}%",
            )
            assert listening == 1
            await asyncio.gather(*(other.append_message(f"c{number}", "user", str(number)) for number in range(20)))
            found = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
            assert [message.text for message in found] == [str(number) for number in range(20)]
            for tail in tails:
                await tail.aclose()

    play(check)
