"""Three nodes that die, one and all, or answer nothing, under writers. `HANSARD_KILLS` repeats each more often."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest
from cassandra.cluster import ResponseFuture
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import ResultMessage
from cassandra.query import BatchStatement
from tests.wait import PATIENCE
from tools.cassandra import Node, free_port, why_absent

import hansard
from hansard import sync
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.connection import Link, Statement
from hansard.backends.cassandra.options import CassandraOptions, options_of
from hansard.testing import processes
from hansard.urls import Url

T = TypeVar("T")

pytestmark = pytest.mark.timeout(900)

ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
ROUNDS = max(1, int(os.environ.get("HANSARD_KILLS", "1")) // 10)

Fault = Callable[["Writers"], Coroutine[Any, Any, None]]


def _has_addresses() -> bool:
    """Not every system has more than one address for itself."""
    try:
        for address in ADDRESSES:
            with socket.socket() as one:
                one.bind((address, 0))
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Every test leaves it whole."""
    if reason := why_absent():
        pytest.skip(reason)
    if not _has_addresses():
        pytest.skip("this system has only one loopback address")
    folder = tmp_path_factory.mktemp("ring")
    ports = (free_port(ADDRESSES[0]), free_port(ADDRESSES[0]))
    nodes = [
        Node(folder / address, address=address, seeds=ADDRESSES, ports=ports, sync="group") for address in ADDRESSES
    ]
    try:
        _start(nodes)
        asyncio.run(_make_tables(nodes))
        yield nodes
    finally:
        for node in nodes:
            node.kill()


async def _make_tables(nodes: list[Node]) -> None:
    """With patience: three nodes that have just started take long to agree on new tables."""
    async with hansard.connect(_url(nodes, timeout=60)):
        pass


def _start(nodes: list[Node]) -> None:
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait()
    asyncio.run(_know_each_other(nodes))


async def _know_each_other(nodes: list[Node]) -> None:
    for node in nodes:
        link = Link(CassandraOptions(hosts=(node.address,), port=node.port, keyspace="system"), "")
        await link.open()
        try:
            while len(await link.execute("SELECT peer FROM system.peers_v2")) < len(ADDRESSES) - 1:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        finally:
            await link.close()


def _url(ring: list[Node], timeout: int = 10) -> str:
    """Of an empty store. Its requests wait so many seconds for a node that answers nothing."""
    return f"cassandra://{','.join(ADDRESSES)}:{ring[0].port}/ring?timeout={timeout}&prefix=t{secrets.token_hex(4)}"


class Writers:
    """They append until they are told to stop. One that fails tries again, with the same id.

    Any error but `Unavailable` ends them, and the test.
    """

    def __init__(self, store: hansard.Store, *, gives_up: bool = False) -> None:
        self.store = store
        self.acknowledged: dict[str, str] = {}
        self._gives_up = gives_up
        """Each ends with its first error."""
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def reach(self, more: int) -> None:
        """Waits for so many further acknowledgements."""
        wanted = len(self.acknowledged) + more
        while len(self.acknowledged) < wanted:
            done, _ = await asyncio.wait(self._tasks, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def start(self, conversations: list[str]) -> None:
        self._tasks = [asyncio.create_task(self._write(f"w{n}", each)) for n, each in enumerate(conversations)]

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def _write(self, name: str, conversation: str) -> None:
        number = 0
        while not self._is_over:
            id = f"{name}-{number}"
            try:
                await self.store.append(conversation, [hansard.Message("user", id, id=id)])
            except hansard.Unavailable:
                if self._gives_up:
                    return
                await asyncio.sleep(0.1)
                continue
            number += 1
            self.acknowledged[id] = conversation


async def _verify(store: hansard.Store, acknowledged: dict[str, str], *, may_hold_more: bool = False) -> None:
    places = sorted(set(acknowledged.values()))
    for place in places:
        stored = [each.id for each in await store.get_messages(place, last=100_000)]
        wanted = {id for id, conversation in acknowledged.items() if conversation == place}
        assert len(set(stored)) == len(stored), "something is stored twice"
        assert wanted <= set(stored), "something acknowledged was lost"
        assert may_hold_more or wanted == set(stored)
    listed = {each.id for each in (await store.list_conversations(limit=100)).items}
    assert set(places) <= listed
    assert await store.check() == []


async def _write_through(url: str, conversations: list[str], fault: Fault) -> None:
    """Appends before, during and after a fault; then everything acknowledged is there once."""
    async with hansard.connect(url) as store:
        assert store.capabilities.durability == "machine"
        writers = Writers(store)
        writers.start(conversations)
        for _ in range(ROUNDS):
            await writers.reach(100)
            await fault(writers)
        await writers.stop()
        await _verify(store, writers.acknowledged)


def test_one_node_dies(ring: list[Node]) -> None:
    conversations = [f"c{number}" for number in range(64)] + ["hot"] * 16

    async def fault(writers: Writers) -> None:
        await asyncio.to_thread(ring[2].kill)
        await writers.reach(200)
        await asyncio.to_thread(ring[2].start)

    asyncio.run(_write_through(_url(ring), conversations, fault))


def test_one_node_answers_nothing(ring: list[Node]) -> None:
    conversations = [f"c{number}" for number in range(16)] + ["hot"] * 8

    async def fault(writers: Writers) -> None:
        ring[1].freeze()
        try:
            await writers.reach(100)
        finally:
            ring[1].thaw()
        await writers.reach(50)

    asyncio.run(_write_through(_url(ring), conversations, fault))


class StoppingLink(Link):
    """Stops the coordinator of a conditional batch some time after the batch was sent."""

    nodes: Sequence[Node] = ()
    delay: float | None = None
    stopped: Node | None = None

    async def swap(self, statements: Sequence[Statement]) -> bool:
        if self.delay is None:
            return await super().swap(statements)
        send = self.session.driver.execute_async
        sent: list[Any] = []

        def note(statement: Any) -> Any:
            sent.append(send(statement))
            return sent[-1]

        self.session.driver.execute_async = note
        asked = asyncio.create_task(super().swap(statements))
        while not sent:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.session.driver.execute_async = send
        await asyncio.sleep(self.delay)
        self.delay = None
        self.stopped = next(each for each in self.nodes if each.address == sent[0]._current_host.address)
        self.stopped.freeze()
        return await asked


def test_a_coordinator_stops_between_a_batch_and_its_answer(ring: list[Node]) -> None:
    """The writer finds out by another node, or says that it does not know; a retry stores nothing twice."""

    async def run() -> None:
        backend = CassandraBackend(*options_of(Url(_url(ring, timeout=3))))
        link = backend.storage.link
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend) as store:
            first = hansard.Message("user", "first", id="first")
            await _patiently(lambda: store.append("c", [first]))
            link.__class__ = StoppingLink
            assert isinstance(link, StoppingLink)
            link.nodes = ring
            texts = ["first"]
            for delay in (0.0, 0.003):
                texts.append(f"after {delay}")
                message = hansard.Message("user", texts[-1], id=texts[-1])
                link.delay = delay
                (answer,) = await asyncio.gather(store.append("c", [message]), return_exceptions=True)
                assert link.stopped is not None
                link.stopped.thaw()
                if isinstance(answer, BaseException):
                    assert isinstance(answer, hansard.Unavailable)
                    stored = [each.text for each in await _patiently(lambda: store.get_messages("c", last=10))]
                    assert answer.outcome == "unknown" or texts[-1] not in stored
                await _patiently(partial(store.append, "c", [message]))
                found = await _patiently(lambda: store.get_messages("c", last=10))
                assert [each.text for each in found] == texts
            assert await _patiently(store.check) == []

    asyncio.run(run())


def test_a_connection_dies_between_a_batch_and_its_answer(ring: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver must not repeat the batch on another node: that would refuse it, though it has happened."""
    receive = ResponseFuture._set_result
    cut: list[object] = []

    def lose(self: Any, host: object, connection: object, pool: object, response: object) -> None:
        if not cut and isinstance(self.query, BatchStatement) and isinstance(response, ResultMessage):
            cut.append(response)
            response = ConnectionShutdown("the connection was cut")
        receive(self, host, connection, pool, response)

    async def run() -> None:
        async with hansard.connect(_url(ring, timeout=60)) as store:
            await store.append_message("c", "user", "first")
            before = await store.get_conversation("c")
            assert before is not None
            with monkeypatch.context() as patch:
                patch.setattr(ResponseFuture, "_set_result", lose)
                await store.append_message("c", "user", "second", expected_version=before.version)
            assert cut
            assert [each.text for each in await store.get_messages("c")] == ["first", "second"]

    asyncio.run(run())


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats a call that takes longer than the short time-out, as it may on a busy machine."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except hansard.Unavailable:
            if time.monotonic() > give_up:
                raise


def test_all_nodes_die_at_once(ring: list[Node]) -> None:
    url = _url(ring)
    acknowledged: dict[str, str] = {}

    async def write() -> None:
        async with hansard.connect(url) as store:
            writers = Writers(store, gives_up=True)
            writers.acknowledged = acknowledged
            writers.start([f"c{number}" for number in range(16)] + ["hot"] * 8)
            await writers.reach(200)
            await asyncio.gather(*(asyncio.to_thread(node.kill) for node in ring))
            await writers.stop()

    async def verify() -> None:
        async with hansard.connect(url) as store:
            await _verify(store, acknowledged, may_hold_more=True)
            await store.append_message("hot", "user", "and again")

    for _ in range(ROUNDS):
        asyncio.run(write())
        _start(ring)
        asyncio.run(verify())


def test_four_processes_in_one_conversation(ring: list[Node]) -> None:
    url = _url(ring)
    with sync.connect(url) as store:
        writers = [processes.Writer(url, f"w{number}", batches=5 * ROUNDS, tasks=4) for number in range(4)]
        try:
            for writer in writers:
                writer.wait()
        finally:
            for writer in writers:
                writer.end()
        processes.verify(store, writers)
