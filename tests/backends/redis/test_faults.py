"""What a server, or the way to it, can do wrong: a clear error each, nothing half-written, and the next call works."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.backends.redis.conftest import StartServer
from tests.servers.redis import Server
from tests.wait import PATIENCE, until

import hansard
from hansard import sync
from hansard.backends.redis import RedisBackend
from hansard.errors import Closed, Denied, FormatMismatch, TimedOut, Unavailable, Unsupported
from hansard.model import Message


def texts(store: sync.Store, id: str = "c") -> list[object]:
    return [message.content for message in store.iter_messages(id)]


# Opening


def test_nobody_there() -> None:
    with socket.socket() as held:
        # Ours, so that nobody else comes to listen there; and we do not.
        held.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="cannot be reached") as refused:
            sync.connect(f"redis://127.0.0.1:{held.getsockname()[1]}")
    assert refused.value.outcome == "not_applied"


@pytest.mark.parametrize("credentials", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_password(start: StartServer, credentials: str) -> None:
    server = start(requirepass="right")
    with pytest.raises(Denied, match="refuses the login") as refused:
        sync.connect(f"redis://{credentials}127.0.0.1:{server.port}")
    assert "wrong" not in str(refused.value)
    with sync.connect(server.url) as store:
        store.append_message("c", "user", "in")


@contextmanager
def an_old_server(version: str) -> Iterator[int]:
    """A program that answers every command as a server of that version would answer INFO."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(65536):
                    answers = []
                    for command in data.split(b"*")[1:]:
                        info = f"redis_version:{version}\r\n".encode()
                        known = b"INFO" in command
                        answers.append(b"$%d\r\n%s\r\n" % (len(info), info) if known else b"-ERR unknown\r\n")
                    connection.sendall(b"".join(answers))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join(PATIENCE)


def test_a_server_that_is_too_old() -> None:
    with an_old_server("5.0.14") as port, pytest.raises(Unsupported, match=r"Redis 5\.0\.14: Hansard needs 6\.2"):
        sync.connect(f"redis://127.0.0.1:{port}?timeout=5")


def test_a_cluster_that_is_none(url: str, start: StartServer) -> None:
    server = start()
    with pytest.raises(Unavailable, match="cluster"):
        sync.connect(server.url.replace("redis://", "redis+cluster://"))


def test_a_foreign_keyspace(start: StartServer) -> None:
    server = start()
    server.client().set("hansard:something", "else")
    with pytest.raises(FormatMismatch, match="did not write"):
        sync.connect(server.url)
    with sync.connect(f"{server.url}?prefix=ours") as store:
        store.append_message("c", "user", "beside it")
    assert server.client().get("hansard:something") == b"else"


@pytest.mark.parametrize(
    ("value", "says"), [("2", "newer version"), ("0", "another program"), ("{}", "another program")]
)
def test_another_format(start: StartServer, value: str, says: str) -> None:
    server = start()
    server.client().set("hansard:format", value)
    with pytest.raises(FormatMismatch, match=says) as refused:
        sync.connect(server.url)
    assert (refused.value.found, refused.value.wanted) == (value, "1")


def test_a_format_of_another_type(start: StartServer) -> None:
    server = start()
    server.client().rpush("hansard:format", "1")
    with pytest.raises(FormatMismatch, match="another program"):
        sync.connect(server.url)


# Refusals: nothing was applied


def test_out_of_memory(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        store.append("c", Message("user", "before", id="a"))
        before = store.get_conversation("c")
        server.client().config_set("maxmemory", 1)
        with pytest.raises(Unavailable, match="out of memory") as refused:
            store.append("c", [Message("user", "x"), Message("user", "y")])
        assert (refused.value.outcome, refused.value.retryable) == ("not_applied", True)
        with pytest.raises(Unavailable, match="out of memory"):
            store.records.put(["n"], "k", 1)
        with pytest.raises(Unavailable, match="out of memory"):
            store.update_conversation("c", title="t")
        assert store.get_conversation("c") == before
        # What frees memory works all the same.
        assert store.delete_message("c", "a")
        server.client().config_set("maxmemory", 0)
        store.append_message("c", "user", "after")
        assert texts(store) == ["after"]
        assert store.check() == []


def test_a_replica(start: StartServer) -> None:
    primary = start()
    with sync.connect(primary.url) as store:
        store.append_message("c", "user", "x")
    replica = start(replicaof=f"127.0.0.1 {primary.port}", repl_diskless_sync_delay=0)
    until(lambda: replica.client().get("hansard:format") == b"1")
    with sync.connect(replica.url) as store:
        assert texts(store) == ["x"]
        with pytest.raises(Unavailable, match="only reads") as refused:
            store.append_message("c", "user", "y")
        assert refused.value.outcome == "not_applied"
        replica.client().execute_command("REPLICAOF", "NO", "ONE")
        store.append_message("c", "user", "y")
        assert texts(store) == ["x", "y"]


def test_too_few_replicas(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        server.client().config_set("min-replicas-to-write", 1)
        with pytest.raises(Unavailable, match="fewer replicas") as refused:
            store.append_message("c", "user", "x")
        assert refused.value.outcome == "not_applied"
        server.client().config_set("min-replicas-to-write", 0)
        store.append_message("c", "user", "y")
        assert texts(store) == ["y"]


def test_a_disk_that_fails(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        store.append_message("c", "user", "x")
        client = server.client()
        client.config_set("save", "3600 1")
        (server.folder / "dump.rdb").mkdir()
        client.execute_command("BGSAVE")
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        with pytest.raises(Unavailable, match="disk") as refused:
            store.append_message("c", "user", "y")
        assert refused.value.outcome == "not_applied"
        assert [problem.what for problem in store.check()] == [
            "the last write of the snapshot failed (rdb_last_bgsave_status:err)"
        ]
        client.config_set("save", "")
        store.append_message("c", "user", "z")
        assert texts(store) == ["x", "z"]


def test_forgotten_scripts(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        for number in range(3):
            store.append_message("c", "user", number)
            server.client().script_flush()
            assert texts(store) == list(range(number + 1))


def test_a_server_that_is_loading(start: StartServer) -> None:
    server = start(appendonly="yes", appendfsync="always")
    with sync.connect(f"{server.url}?timeout=5") as store:
        for number in range(4):
            store.append_message(f"c{number}", "user", "x")
        server.kill()
        # A setting that servers have for their own tests: each key takes so many microseconds to load.
        server.settings |= {"key_load_delay": 20_000, "loading_process_events_interval_bytes": 1024}
        server.start()
        until(lambda: _answers(store))
        assert texts(store, "c3") == ["x"]


def _answers(store: sync.Store) -> bool:
    try:
        store.append("new", Message("user", "x", id="m"))
    except Unavailable:
        return False
    return True


# The way to the server


def test_a_connection_lost_while_a_write_is_on_its_way(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        store.append("c", Message("user", "x", id="a"))
        with paused(server), ThreadPoolExecutor(1) as pool:
            killing = pool.submit(_kill_those_that_wait, server)
            with pytest.raises(Unavailable) as lost:
                store.append("c", Message("user", "y", id="b"))
            killing.result()
        assert lost.value.outcome == "unknown"
        store.append("c", Message("user", "y", id="b"))
        assert texts(store) == ["x", "y"]
        assert store.check() == []


def test_an_answer_that_does_not_come(start: StartServer) -> None:
    server = start()
    with sync.connect(f"{server.url}?timeout=3") as store:
        store.append("c", Message("user", "x", id="a"))
        with paused(server), pytest.raises(TimedOut) as late:
            store.append("c", Message("user", "y", id="b"))
        assert late.value.outcome == "unknown"
        store.append("c", [Message("user", "y", id="b"), Message("user", "z", id="c")])
        assert texts(store) == ["x", "y", "z"]


def test_an_idle_connection_that_was_dropped(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        store.append_message("c", "user", "x")
        _kill_connections(server)
        assert texts(store) == ["x"], "a read may simply be repeated"
        time.sleep(1.2)
        store.append_message("c", "user", "y")
        assert texts(store) == ["x", "y"]


def test_many_lose_the_same_connection(start: StartServer) -> None:
    """Nobody hangs, each is told the truth, and what was acknowledged is there."""
    server = start()

    async def play() -> None:
        async with hansard.connect(server.url) as store:
            await store.append_message("c0", "user", "first")
            untouched: set[str] = set()

            async def append(number: int) -> str | None:
                try:
                    return await store.append_message(f"c{number % 3}", "user", number, id=f"m{number}")
                except Unavailable as error:
                    if error.outcome == "not_applied":
                        untouched.add(f"m{number}")
                    return None

            with paused(server):
                calls = [asyncio.create_task(append(number)) for number in range(50)]
                await asyncio.to_thread(_kill_those_that_wait, server)
            done = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
            there = {each.id for n in range(3) for each in await store.get_messages(f"c{n}", last=100)}
            assert {id for id in done if id} <= there
            assert not untouched & there
            assert await store.check() == []

    asyncio.run(play())


def test_a_cancelled_call_does_not_reach_others(start: StartServer) -> None:
    server = start()

    async def play() -> None:
        async with hansard.connect(server.url) as store:
            await store.append_message("c", "user", "first")
            with paused(server):
                calls = [asyncio.create_task(store.append_message("c", "user", n, id=f"m{n}")) for n in range(6)]
                await asyncio.to_thread(until, lambda: _waiting(server))
                calls[0].cancel()
                calls[3].cancel()
            done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)
            failed = [each for each in done if isinstance(each, Exception)]
            assert not failed
            there = {message.id for message in await store.get_messages("c", last=20)}
            assert {"m1", "m2", "m4", "m5"} <= there
            assert await store.check() == []

    asyncio.run(play())


def test_a_restart(start: StartServer) -> None:
    server = start(appendonly="yes", appendfsync="always")
    with sync.connect(server.url) as store:
        store.append_message("c", "user", "x", user_id="u")
        server.kill()
        with pytest.raises(Unavailable, match="cannot be reached"):
            store.get_messages("c")
        with pytest.raises(Unavailable) as lost:
            store.append_message("c", "user", "lost")
        assert lost.value.outcome == "unknown", "who knows what it read before it died"
        with pytest.raises(Unavailable) as lost:
            store.append_message("c", "user", "lost")
        assert lost.value.outcome == "not_applied", "nobody to send it to"
        server.start()
        store.append_message("c", "user", "y")
        assert texts(store) == ["x", "y"]
        assert [each.id for each in store.user("u").list_conversations().items] == ["c"]


def test_a_fork(url: str) -> None:
    with sync.connect(url) as store:
        store.append_message("c", "user", "x")
        backend = store.backend
        assert isinstance(backend, RedisBackend)
        backend.storage.nodes._alive._pid += 1
        with pytest.raises(Unavailable, match="fork"):
            store.get_messages("c")
        backend.storage.nodes._alive._pid -= 1


def test_closing_waits_for_what_was_asked(url: str) -> None:
    async def play() -> None:
        store = await hansard.connect(url)
        await store.append_message("c", "user", "first")
        calls = [asyncio.create_task(store.append_message("c", "user", number)) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*calls)) == 20
        with pytest.raises(Closed):
            await store.append_message("c", "user", "late")

    asyncio.run(play())


# Settings


def test_the_settings_decide_what_is_claimed(start: StartServer) -> None:
    server = start()
    with sync.connect(server.url) as store:
        assert store.capabilities.durability == "process"
    server.client().config_set("appendonly", "yes")
    with sync.connect(server.url) as store:
        assert store.capabilities.durability == "process"
    server.client().config_set("appendfsync", "always")
    with sync.connect(server.url) as store:
        assert store.capabilities.durability == "machine"


def test_a_server_that_may_evict_is_reported(start: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    server = start(maxmemory_policy="allkeys-lru")
    with sync.connect(server.url) as store:
        assert "noeviction" in caplog.text
        (problem,) = store.check()
        assert problem.where == "server"
        assert "'allkeys-lru'" in problem.what
        server.client().config_set("maxmemory-policy", "noeviction")
        assert store.check() == []


def test_where_the_settings_are_secret(start: StartServer, tmp_path: Path) -> None:
    server = start(appendonly="yes", appendfsync="always")
    server.client().acl_setuser("app", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config"])
    with sync.connect(f"redis://app:pw@127.0.0.1:{server.port}") as store:
        store.append_message("c", "user", "x")
        assert store.capabilities.durability == "process", "no more than we know"
        assert store.check() == []


# Replicas


def test_waiting_for_replicas(start: StartServer) -> None:
    primary = start()
    replica = start(replicaof=f"127.0.0.1 {primary.port}", repl_diskless_sync_delay=0)
    until(lambda: replica.client().info("replication")["master_link_status"] == "up")
    with (
        sync.connect(f"{primary.url}?wait_replicas=1&wait_timeout=5000") as patient,
        sync.connect(f"{primary.url}?wait_replicas=1&wait_timeout=200") as store,
    ):
        patient.append("c", Message("user", "x", id="a"))
        assert replica.client().zcard("hansard:{default:c}:messages:1") == 1
        replica.kill()
        with pytest.raises(Unavailable, match="only 0 of 1 replicas") as late:
            store.append("c", Message("user", "y", id="b"))
        assert late.value.outcome == "unknown"
        assert texts(store) == ["x", "y"], "it is stored, but not as safely as was asked"


# Words


@contextmanager
def paused(server: Server) -> Iterator[None]:
    """The server takes writes, and does not run them."""
    client = server.client()
    client.execute_command("CLIENT", "PAUSE", int(PATIENCE * 1000), "WRITE")
    try:
        yield
    finally:
        client.execute_command("CLIENT", "UNPAUSE")


def _waiting(server: Server) -> int:
    """How many have sent a command that a pause holds back."""
    waiting: int = server.client().info("clients")["blocked_clients"]
    return waiting


def _kill_those_that_wait(server: Server) -> None:
    until(lambda: _waiting(server))
    _kill_connections(server)


def _kill_connections(server: Server) -> None:
    server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
