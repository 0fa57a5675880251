"""A cluster that changes under its users: a primary that dies under load, and slots that move to another node.

`HANSARD_KILLS=100` moves all slots of a node back and forth more often.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot
from tests.backends.redis.conftest import StartServer
from tests.servers.redis import Cluster, Server
from tests.wait import coming

import hansard
from hansard import sync
from hansard.errors import Unavailable, Unsupported
from hansard.model import Message

WRITERS = 12
MOVES = max(1, int(os.environ.get("HANSARD_KILLS", "4")) // 10)


class Load:
    """Writers that append one message after another, repeat what was in doubt, and remember what was acknowledged."""

    def __init__(self, store: hansard.Store) -> None:
        self.store = store
        self.acknowledged: dict[str, list[str]] = {f"c{number}": [] for number in range(WRITERS)}
        self.doubts = 0
        self.running = True

    async def write(self, conversation: str) -> None:
        number = 0
        while self.running:
            message = Message("user", number, id=f"{conversation}.{number}")
            try:
                await self.store.append(conversation, message)
            except Unavailable:
                self.doubts += 1
                await asyncio.sleep(0.02)
                continue
            self.acknowledged[conversation].append(message.id)
            number += 1
            # Hundreds of writes a second are load enough, while a cluster takes seconds to notice what has died.
            await asyncio.sleep(0.02)


def test_a_primary_that_dies_under_load(cluster: Cluster) -> None:
    """With WAIT, what was acknowledged is on the replica that takes over; calls recover by themselves."""
    url = f"{cluster.url}?wait_replicas=1&wait_timeout=500&timeout=15"

    async def play() -> Load:
        async with hansard.connect(url) as store:
            load = Load(store)
            tasks = [asyncio.create_task(load.write(name)) for name in load.acknowledged]
            await coming(lambda: all(load.acknowledged.values()))
            await asyncio.to_thread(cluster.primaries[0].kill)
            # Its replica takes over. Until there is a replica again, nothing there is as safe as was asked.
            await asyncio.to_thread(cluster.wait_for_failover, cluster.primaries[0])
            await coming(lambda: load.doubts)
            await asyncio.to_thread(cluster.primaries[0].start)
            back_at = {name: len(ids) for name, ids in load.acknowledged.items()}
            await coming(lambda: all(len(ids) >= back_at[name] + 20 for name, ids in load.acknowledged.items()))
            load.running = False
            await asyncio.gather(*tasks)
            return load

    load = asyncio.run(play())
    with sync.connect(cluster.url) as store:
        for name, ids in load.acknowledged.items():
            assert [message.id for message in store.iter_messages(name)][: len(ids)] == ids
        assert {each.id for each in store.list_conversations(limit=100).items} == set(load.acknowledged)
        assert store.check() == []


def test_slots_that_move(cluster: Cluster) -> None:
    """MOVED, ASK and TRYAGAIN: callers wait while a slot is on its way, and notice nothing else."""
    source, target = cluster.primaries[0], cluster.primaries[1]
    name = next(f"c{n}" for n in range(1000) if key_slot(f"{{default:c{n}}}".encode()) < 5000)
    slot = key_slot(f"{{default:{name}}}".encode())

    def move() -> None:
        here, there = (each.client().execute_command("CLUSTER MYID").decode() for each in (source, target))
        target.client().execute_command("CLUSTER SETSLOT", slot, "IMPORTING", here)
        source.client().execute_command("CLUSTER SETSLOT", slot, "MIGRATING", there)
        time.sleep(0.5)
        keys = source.client().execute_command("CLUSTER GETKEYSINSLOT", slot, 1000)
        assert len(keys) > 2
        for key in keys:
            source.client().execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            time.sleep(0.05)
        for each in (target, source, cluster.primaries[2]):
            each.client().execute_command("CLUSTER SETSLOT", slot, "NODE", there)

    with sync.connect(cluster.url) as store, ThreadPoolExecutor(1) as pool:
        store.append(name, Message("user", 0), user_id="u")
        moving = pool.submit(move)
        number = 0
        while not moving.done() or number < 5:
            number += 1
            store.append_message(name, "user", number)
            assert len(store.get_messages(name, last=3)) >= 2
        moving.result()
        store.append_message(name, "user", number + 1)
        assert [message.content for message in store.iter_messages(name)] == list(range(number + 2))
        assert [each.id for each in store.user("u").list_conversations().items] == [name]
        assert store.check() == []


class Resharding:
    """Moves every slot with keys from one node to another, as `redis-cli --cluster reshard` does it."""

    def __init__(self, source: Server, target: Server, nodes: list[Server]) -> None:
        self._source, self._target = source.client(), target.client()
        self._clients = [self._target, self._source, *(each.client() for each in nodes if each not in (source, target))]
        self._port = target.port
        self._ids = [client.execute_command("CLUSTER MYID").decode() for client in (self._source, self._target)]

    def run(self) -> int:
        slots = [slot for slot in range(16384) if self._keys(slot)]
        for slot in slots:
            self._move(slot)
        return len(slots)

    def _keys(self, slot: int) -> list[bytes]:
        found: list[bytes] = self._source.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
        return found

    def _move(self, slot: int) -> None:
        here, there = self._ids
        self._target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", here)
        self._source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", there)
        while keys := self._keys(slot):
            for key in keys:
                self._source.execute_command("MIGRATE", "127.0.0.1", self._port, key, 0, 5000)
        for client in self._clients:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", there)


def test_a_resharding_under_load(tmp_path: Path) -> None:
    """All data of a node moves to another while writers append: none of it is lost, stored twice or out of order."""
    cluster = Cluster(tmp_path)

    async def play() -> Load:
        async with hansard.connect(f"{cluster.url}?timeout=15") as store:
            load = Load(store)
            tasks = [asyncio.create_task(load.write(name)) for name in load.acknowledged]
            await coming(lambda: all(load.acknowledged.values()))
            for number in range(MOVES):
                source, target = cluster.primaries[number % 3], cluster.primaries[(number + 1) % 3]
                before = _total(load)
                assert await asyncio.to_thread(Resharding(source, target, cluster.primaries).run) > 0
                await coming(lambda before=before: _total(load) >= before + 3 * WRITERS)  # type: ignore[misc]
            load.running = False
            await asyncio.gather(*tasks)
            return load

    try:
        load = asyncio.run(play())
        with sync.connect(cluster.url) as store:
            for name, ids in load.acknowledged.items():
                stored = [message.id for message in store.iter_messages(name)]
                assert stored[: len(ids)] == ids
                assert len(stored) <= len(ids) + 1
            assert {each.id for each in store.list_conversations(limit=100).items} == set(load.acknowledged)
            assert store.check() == []
    finally:
        cluster.stop()


def test_a_node_of_a_cluster_is_not_a_server(cluster_url: str) -> None:
    node = cluster_url.partition("://")[2].partition(",")[0]
    with pytest.raises(Unsupported, match=r"redis\+cluster://"):
        sync.connect(f"redis://{node}")


def test_one_node_of_the_url_is_enough(cluster_url: str) -> None:
    scheme, _, rest = cluster_url.partition("://")
    nodes, _, options = rest.partition("?")
    first = nodes.split(",")[0]
    with sync.connect(f"{scheme}://127.0.0.1:1,{first}?{options}") as store:
        for number in range(20):
            store.append_message(f"c{number}", "user", number)
        assert len(store.list_conversations(limit=50).items) == 20


def test_a_server_killed_with_its_log_synced(start: StartServer, tmp_path: Path) -> None:
    """SIGKILL of the server, again and again, under load: everything acknowledged is there when it is back."""
    server = start(appendonly="yes", appendfsync="always")

    async def play() -> Load:
        async with hansard.connect(f"{server.url}?timeout=10") as store:
            assert store.capabilities.durability == "machine"
            load = Load(store)
            tasks = [asyncio.create_task(load.write(name)) for name in load.acknowledged]
            for _ in range(5):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(server.start)
                before = _total(load)
                await coming(lambda before=before: _total(load) >= before + WRITERS)  # type: ignore[misc]
            load.running = False
            await asyncio.gather(*tasks)
            return load

    load = asyncio.run(play())
    assert load.doubts > 0, "it was killed while somebody wrote"
    server.kill()
    server.start()
    with sync.connect(server.url) as store:
        for name, ids in load.acknowledged.items():
            assert [message.id for message in store.iter_messages(name)][: len(ids)] == ids
        assert store.check() == []


def _total(load: Any) -> int:
    return sum(len(ids) for ids in load.acknowledged.values())
