"""A primary that dies under its writers, and the standby that takes over. `HANSARD_KILLS=100` kills more of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.backends.postgres.kit import play, raw
from tests.contract.backends import quick_folder
from tests.servers import postgres
from tests.wait import coming
from tools.postgres import Server

from hansard import Denied, Message, MessageNotFound, Store, Unavailable, ValidationError, connect
from hansard.backends.postgres.options import parse
from hansard.urls import Url

ROUNDS = max(1, int(os.environ.get("HANSARD_KILLS", "4")) // 10)
WRITERS = 8
LEAST = 5
"""Messages that each writer must have stored before the primary dies, and after it."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as path:
        path.chmod(0o755)
        yield path


@pytest.fixture
def servers(folder: Path) -> Iterator[list[Server]]:
    """A primary and its standby; a test may add others. All are stopped in the end."""
    primary, standby = Server(folder / "s0"), Server(folder / "s1")
    primary.make()
    primary.start(**postgres.QUICK)
    made = [primary, standby]
    try:
        standby.follow(primary)
        standby.start(**postgres.QUICK)
        yield made
    finally:
        for each in made:
            each.stop()


def url_of(servers: list[Server], options: str = "") -> str:
    """A URL with several hosts. The store is to find the one that accepts writes."""
    return f"postgresql://postgres@/postgres?host={','.join(str(each.folder) for each in servers)}{options}"


async def wait_for_standby(primary: Server) -> None:
    """Makes every commit wait until the standby has it."""
    async with raw(primary.url) as connection:
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        await coming(lambda: connection.fetchval("SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication"))


class Load:
    """Writers that repeat what was in doubt under the same ids, and a live tail of the first one's conversation."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.acknowledged: dict[str, list[str]] = {f"c{number}": [] for number in range(WRITERS)}
        self.doubts = 0
        self.seen: list[str] = []
        self._stopped = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        # The tail begins behind this one, so it must see all the others, however late it begins.
        await self.store.append("c0", Message("user", "c0-0", id="c0-0"))
        self.acknowledged["c0"], self.seen = ["c0-0"], ["c0-0"]
        writers = [asyncio.create_task(self._write(name)) for name in self.acknowledged]
        watcher = asyncio.create_task(self._watch("c0"))
        try:
            yield
            self._stopped = True
            await asyncio.gather(*writers)
            await coming(lambda: watcher.done() or len(self.seen) >= len(self.acknowledged["c0"]))
        finally:
            for task in (*writers, watcher):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    async def _write(self, name: str) -> None:
        ids = self.acknowledged[name]
        while not self._stopped:
            id = f"{name}-{len(ids)}"
            try:
                await self.store.append(name, Message("user", id, id=id))
            except Unavailable:
                self.doubts += 1
                await asyncio.sleep(0.02)
            else:
                ids.append(id)

    async def _watch(self, name: str) -> None:
        """A tail that ends with an error is opened again after the last message that it has shown."""
        while True:
            try:
                async for message in self.store.watch(name, after=self.seen[-1] if self.seen else None):
                    self.seen.append(message.id)
            except Unavailable:
                await asyncio.sleep(0.02)
            except MessageNotFound:
                # When its first process dies, PostgreSQL shows commits that the standby does not have yet.
                assert self.seen.pop() not in self.acknowledged[name]

    async def goes_on(self) -> None:
        """Waits until every writer has stored some more."""
        least = {name: len(ids) + LEAST for name, ids in self.acknowledged.items()}
        await coming(lambda: all(len(ids) >= least[name] for name, ids in self.acknowledged.items()))


def test_a_primary_dies_under_its_writers(servers: list[Server], folder: Path) -> None:
    """Nothing acknowledged is lost or stored twice. The only error is `Unavailable`, and the open store recovers."""
    names = [Server(folder / f"s{number}") for number in range(ROUNDS + 1)]

    async def kill_and_promote(load: Load, primary: Server, standby: Server) -> None:
        await wait_for_standby(primary)
        await load.goes_on()
        before = load.doubts
        await asyncio.to_thread(primary.stop, signal.SIGKILL)
        # The standby still is one: it can be reached, but it is not taken for the primary.
        await coming(lambda: load.doubts >= before + WRITERS)
        with pytest.raises(Unavailable, match="target attribute") as caught:
            await connect(url_of([primary, standby]))
        assert caught.value.retryable
        await asyncio.to_thread(standby.promote)
        await load.goes_on()

    async def check() -> None:
        async with connect(url_of(names)) as store:
            load = Load(store)
            async with load.running():
                for round in range(ROUNDS):
                    if round:
                        servers.append(names[round + 1])
                        await asyncio.to_thread(servers[-1].follow, servers[-2])
                        await asyncio.to_thread(servers[-1].start, **postgres.QUICK)
                    await kill_and_promote(load, *servers[-2:])
            for name, ids in load.acknowledged.items():
                stored = [message.id async for message in store.iter_messages(name)]
                # The last write may have been in doubt when the writer stopped.
                assert stored[: len(ids)] == ids
                assert len(stored) <= len(ids) + 1
            assert load.seen[: len(load.acknowledged["c0"])] == load.acknowledged["c0"]
            assert [hit.message.id for hit in await store.search('"c3 2"')] == ["c3-2"]
            assert await store.check() == []

    play(check, patience=120 * ROUNDS)


def test_a_primary_that_became_a_standby(servers: list[Server], folder: Path) -> None:
    """A switch-over behind one address: the sessions at the old primary stay open, and are read-only from then on."""
    primary, standby = servers
    address = folder / "address"
    address.symlink_to(primary.folder)

    async def check() -> None:
        async with connect(f"postgresql://postgres@/postgres?host={address}") as store:
            await wait_for_standby(primary)
            await asyncio.gather(*(store.append_message(f"c{number}", "user", "before") for number in range(3)))
            async with raw(primary.url) as connection:
                await connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
                await connection.execute("SELECT pg_reload_conf()")
            async with raw(primary.url) as connection:
                await coming(lambda: connection.fetchval("SELECT current_setting('transaction_read_only') = 'on'"))
            with pytest.raises(Denied, match="accepts no writes"):
                await store.append_message("c0", "user", "too early")
            await store.get_conversation("c0")  # a session at the old primary is in the pool again
            await asyncio.to_thread(standby.promote)
            address.unlink()
            address.symlink_to(standby.folder)
            await store.append_message("c0", "user", "after")
            await store.update_conversation("c1", title="after")
            assert [message.text for message in await store.get_messages("c0")] == ["before", "after"]

    play(check)


def test_a_silent_server_does_not_use_up_the_time(folder: Path) -> None:
    """A machine that is gone answers nothing, not even that it refuses: the next one is asked in time."""
    (folder / "silent").mkdir()
    there = Server(postgres.shared().folder)

    async def check() -> None:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(folder / "silent" / ".s.PGSQL.5432"))
            silent.listen()
            both = f"postgresql://postgres@/postgres?host={folder / 'silent'},{there.folder}"
            async with connect(f"{both}&connect_timeout=8000&schema={postgres.new_schema()}") as store:
                await store.append_message("c", "user", "x")
                assert len(await store.get_messages("c")) == 1

    play(check)


WRITABLE = "target_session_attrs=read-write"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("//a:b@h1:1,h2/db", [f"//a:b@h1:1/db?{WRITABLE}", f"//a:b@h2/db?{WRITABLE}"]),
        ("//a@[::1]:5,h/db", [f"//a@[::1]:5/db?{WRITABLE}", f"//a@h/db?{WRITABLE}"]),
        ("///db?host=h1,h2&port=1,2", [f"///db?host=h1&port=1&{WRITABLE}", f"///db?host=h2&port=2&{WRITABLE}"]),
        ("///db?host=h1,h2&port=1", [f"///db?host=h1&port=1&{WRITABLE}", f"///db?host=h2&port=1&{WRITABLE}"]),
        ("//h/db", ["//h/db"]),
        ("//h1,h2/db?target_session_attrs=any", [f"//h{each}/db?target_session_attrs=any" for each in (1, 2)]),
        ("//h1,h2/db?target_session_attrs=prefer-standby", ["//h1,h2/db?target_session_attrs=prefer-standby"]),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, expected: list[str]) -> None:
    assert list(parse(Url(f"postgresql:{url}")).dsns) == [f"postgresql:{each}" for each in expected]


def test_ports_that_do_not_match_the_hosts() -> None:
    with pytest.raises(ValidationError, match="one for all hosts, or one for each"):
        parse(Url("postgresql:///db?host=h1,h2,h3&port=1,2"))
