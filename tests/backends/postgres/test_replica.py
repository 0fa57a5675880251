"""A replica: it can be read and watched, takes no writes, and takes over when the primary is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.backends.postgres.kit import following, play, raw
from tests.contract.backends import quick_folder
from tests.servers import postgres
from tests.wait import PATIENCE, coming
from tools.postgres import Server

from hansard import Denied, Message, Store, connect


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its replica."""
    with quick_folder() as folder:
        folder.chmod(0o755)
        primary, replica = Server(folder / "a"), Server(folder / "b")
        primary.make()
        primary.start(**postgres.QUICK)
        try:
            replica.follow(primary)
            replica.start(**postgres.QUICK)
            yield primary, replica
        finally:
            primary.stop()
            replica.stop()


async def count(store: Store) -> int:
    found = await store.get_conversation("c")
    return found.message_count if found else 0


def test_a_replica_can_be_read_and_watched(pair: tuple[Server, Server]) -> None:
    primary, replica = pair

    async def check() -> None:
        async with connect(primary.url) as writing:
            last = await writing.append_message("c", "user", "0")
            await coming(lambda: _has_tables(replica))
            async with connect(f"{replica.url}&poll_interval=50") as reading:
                await coming(lambda: count(reading))
                for write in (reading.append_message("c", "user", "x"), reading.delete_conversation("c")):
                    with pytest.raises(Denied, match="accepts no writes"):
                        await write
                async with following(reading, "c", after=last) as tail:
                    for number in range(1, 4):
                        await writing.append_message("c", "user", str(number))
                        assert (await asyncio.wait_for(anext(tail), PATIENCE)).text == str(number)

    play(check)


async def _has_tables(server: Server) -> bool:
    try:
        async with connect(server.url):
            return True
    except Denied:
        return False  # what the primary has made has not arrived yet


def test_a_replica_can_be_searched(pair: tuple[Server, Server]) -> None:
    """It can index nothing: what the primary has not indexed is looked at, however much it is."""
    primary, replica = pair

    async def check() -> None:
        async with connect(primary.url) as store:
            await store.append("c", [Message("user", f"word {number}") for number in range(150)])
            await coming(lambda: _has_tables(replica))
        # Nobody is left who could index it again.
        async with raw(primary.url) as connection:
            await connection.execute("DELETE FROM hansard.search")
            await connection.execute(
                "INSERT INTO hansard.search_queue SELECT tenant, conversation, line, seq FROM hansard.messages "
                "ON CONFLICT DO NOTHING"
            )
        async with connect(replica.url) as copy:
            await coming(lambda: _is_queued(replica, 150))
            found = await copy.search("word", order="newest", limit=100, token_cap=None)
            assert [hit.message.seq for hit in found] == list(range(150, 50, -1))

    play(check)


async def _is_queued(server: Server, messages: int) -> bool:
    async with raw(server.url) as connection:
        return bool(await connection.fetchval("SELECT count(*) = $1 FROM hansard.search_queue", messages))
