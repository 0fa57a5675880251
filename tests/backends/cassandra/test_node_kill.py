"""kill -9 of the node, under writers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.cassandra import Node, why_absent

import hansard


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    if reason := why_absent():
        pytest.skip(reason)
    node = Node(tmp_path / "node", sync="group")
    node.start()
    yield node
    node.kill()


async def _write(store: hansard.Store, conversation: str, acknowledged: dict[str, int], enough: asyncio.Event) -> None:
    """Until the node is gone."""
    for number in range(10_000):
        id = f"{conversation}-{number}"
        try:
            appended = await store.append(conversation, [hansard.Message("user", id, id=id)])
        except hansard.Unavailable:
            return
        acknowledged[id] = appended.messages[0].seq
        if len(acknowledged) >= 200:
            enough.set()


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(node: Node) -> None:
    acknowledged: dict[str, int] = {}
    names = [f"c{number}" for number in range(8)]

    async def write() -> None:
        async with hansard.connect(f"{node.url}/kills?timeout=5") as store:
            assert store.capabilities.durability == "machine"
            enough = asyncio.Event()
            # Two for each conversation, which append the same.
            writers = [asyncio.create_task(_write(store, name, acknowledged, enough)) for name in [*names, *names]]
            await enough.wait()
            await asyncio.to_thread(node.kill)
            await asyncio.gather(*writers)

    async def verify() -> None:
        async with hansard.connect(f"{node.url}/kills") as store:
            stored = {each.id: each.seq for name in names for each in await store.get_messages(name, last=10_000)}
            assert acknowledged.items() <= stored.items()
            assert sorted(each.id for each in (await store.list_conversations()).items) == names
            assert await store.check() == []
            await store.append_message("c0", "user", "and again")

    asyncio.run(write())
    node.start()
    asyncio.run(verify())
