"""A ring of three nodes that lose one of them, under writers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.cassandra import Node, free_port, why_absent

import hansard
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.options import CassandraOptions

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def _has_addresses() -> bool:
    """Not every system has more than one address for itself."""
    try:
        for address in ADDRESSES:
            with socket.socket() as one:
                one.bind((address, 0))
    except OSError:
        return False
    return True


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[list[Node]]:
    if reason := why_absent():
        pytest.skip(reason)
    if not _has_addresses():
        pytest.skip("this system has only one loopback address")
    ports = (free_port(ADDRESSES[0]), free_port(ADDRESSES[0]))
    nodes = [Node(tmp_path / address, address=address, seeds=ADDRESSES, ports=ports) for address in ADDRESSES]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait()
        asyncio.run(_know_each_other(nodes))
        yield nodes
    finally:
        for node in nodes:
            node.kill()


async def _know_each_other(nodes: list[Node]) -> None:
    for node in nodes:
        link = Link(CassandraOptions(hosts=(node.address,), port=node.port, keyspace="system"), "")
        await link.open()
        try:
            while len(await link.execute("SELECT peer FROM system.peers_v2")) < len(nodes) - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        finally:
            await link.close()


class Writers:
    """They append until they are told to stop. One that is refused tries again, with the same id."""

    def __init__(self, store: hansard.Store) -> None:
        self.store = store
        self.acknowledged: dict[str, str] = {}
        self.is_over = False
        self._enough: list[tuple[int, asyncio.Event]] = []

    async def reach(self, number: int) -> None:
        event = asyncio.Event()
        self._enough.append((number, event))
        await event.wait()

    async def write(self, name: str, conversation: str) -> None:
        number = 0
        while not self.is_over:
            id = f"{name}-{number}"
            try:
                await self.store.append(conversation, [hansard.Message("user", id, id=id)])
            except hansard.Unavailable:
                await asyncio.sleep(0.1)
                continue
            number += 1
            self.acknowledged[id] = conversation
            for wanted, event in self._enough:
                if len(self.acknowledged) >= wanted:
                    event.set()


@pytest.mark.timeout(600)
def test_a_ring_goes_on_without_one_node(ring: list[Node]) -> None:
    url = f"cassandra://{','.join(ADDRESSES)}:{ring[0].port}/ring?timeout=10"

    async def run() -> None:
        async with hansard.connect(url) as store:
            writers = Writers(store)
            places = [f"c{number}" for number in range(16)] + ["hot"] * 8
            tasks = [asyncio.create_task(writers.write(f"w{n}", place)) for n, place in enumerate(places)]
            await writers.reach(200)
            await asyncio.to_thread(ring[2].kill)
            await writers.reach(len(writers.acknowledged) + 400)
            writers.is_over = True
            await asyncio.gather(*tasks)
            for place in sorted(set(places)):
                stored = [each.id for each in await store.get_messages(place, last=100_000)]
                wanted = [id for id, conversation in writers.acknowledged.items() if conversation == place]
                assert len(set(stored)) == len(stored)
                assert set(wanted) <= set(stored)
            listed = (await store.list_conversations(limit=100)).items
            assert {each.id for each in listed} == set(places)
            assert await store.check() == []

    asyncio.run(run())
