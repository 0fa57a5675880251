"""Search by the query engine of a server. `test_same.py` and the contract compare what it finds with other backends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from tests.backends.redis.conftest import StartServer
from tests.servers import redis as redis_servers
from tests.servers import redisearch
from tests.wait import PATIENCE, until

import hansard
from hansard import Message, sync
from hansard.analysis import Lookup, parse_query
from hansard.backends.redis import RedisBackend, index, rows, search
from hansard.backends.redis.connection import RedisConnection
from hansard.backends.redis.index import RedisIndex
from hansard.backends.redis.nodes import SingleServer
from hansard.backends.redis.scripts import INDEX
from hansard.backends.redis.storage import RedisStorage
from hansard.contract.types import Context
from hansard.errors import TimedOut, Unavailable

TIME = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def engine() -> str:
    """A store on a server with a query engine."""
    if reason := redis_servers.why_no_engine():
        pytest.skip(reason)
    return redis_servers.fresh_engine()


def keys_of(url: str) -> list[str]:
    """The keys of the index: hashes, queues and states."""
    prefix = url.rpartition("=")[2]
    found = redis_servers.shared_engine().client().keys(f"{prefix}:*")
    return sorted(key.decode() for key in found if b":terms:" in key or key.endswith((b":unindexed", b":search")))


def texts(hits: Any) -> list[str]:
    return [hit.message.text for hit in hits]


def storage_of(store: hansard.Store) -> RedisStorage:
    backend = store.backend
    assert isinstance(backend, RedisBackend)
    return backend.storage


def test_a_store_says_whether_the_engine_is_used(engine: str, url: str, start: StartServer) -> None:
    with sync.connect(engine) as store:
        assert store.capabilities.search == "index"
        assert "query engine" in store.capabilities.remnants
    with sync.connect(engine.partition("?")[0] + "?db=1&prefix=other") as store:
        assert store.capabilities.search == "scan", "the engine knows only database 0"
    with sync.connect(url) as store:
        assert store.capabilities.search == "scan"
        store.append_message("c", "user", "found by a scan")
        assert texts(store.search("scan")) == ["found by a scan"]
        assert store.stats().unindexed is None


def test_doctor_says_which_way_is_used(engine: str, url: str) -> None:
    for where, detail in ((engine, "0 messages waiting"), (url, "none: searches scan the messages")):
        command = [sys.executable, "-m", "hansard", "doctor", "-u", where, "--json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
        (found,) = [each["detail"] for each in json.loads(done.stdout)["items"] if each["what"] == "index"]
        assert found == detail


def test_what_was_stored_before_is_found(engine: str) -> None:
    with sync.connect(engine) as store:
        for number in range(3):
            store.append(f"c{number}", [Message("user", f"old tea {each}") for each in range(150)])
        assert keys_of(engine) == [], "a tenant that nobody searches has no index"
        assert store.stats().unindexed == 450
        assert len(store.search("tea", order="newest", limit=100)) == 100
        assert store.stats().unindexed == 0
        store.append_message("c0", "user", "new tea")
        assert store.stats().unindexed == 1
        assert texts(store.search("new", order="newest")) == ["new tea"]


def test_the_index_is_left_with_the_messages(engine: str) -> None:
    with sync.connect(engine) as store:
        acme = store.tenant("acme")
        for view in (store, acme):
            view.append("c", [Message("user", f"tea {number}", id=str(number)) for number in range(5)], user_id="ann")
            assert len(view.search("tea")) == 5
        one = [key for key in keys_of(engine) if ":terms:" in key]
        assert len(one) == 10
        store.delete_message("c", "1")
        store.update_message("c", "2", content="coffee")
        left = [key for key in keys_of(engine) if ":terms:{default" in key]
        assert len(left) == 3, "both have left at once; the changed one waits"
        assert sorted(texts(store.search("tea"))) == ["tea 0", "tea 3", "tea 4"]
        store.erase_user("ann")
        assert [key for key in keys_of(engine) if ":terms:{default" in key or ":unindexed" in key] == []
        assert list(store.search("tea")) == []
        store.admin.delete_tenant("acme")
        assert [key for key in keys_of(engine) if "acme" in key] == []


def test_a_late_indexer_leaves_nothing_of_what_is_gone(engine: str) -> None:
    async def play() -> None:
        async with hansard.connect(engine) as store:
            await store.append_message("c", "user", "first")
            assert len(await store.search("first")) == 1
            await store.append("c", [Message("user", "secret", id="gone"), Message("user", "draft", id="changed")])
            nodes, queue = storage_of(store).nodes, storage_of(store).keys.unindexed("default")
            late = await nodes.ask(queue, ("ZRANGE", queue, 0, -1, "WITHSCORES"), write=False)
            waiting = list(zip(late[::2], late[1::2], strict=True))
            read = nodes.ask_many

            async def interrupted(commands: Any) -> Any:
                found = await read(commands)
                if commands[0][1][0] == "ZRANGEBYSCORE":
                    await store.delete_message("c", "gone")
                    await store.update_message("c", "changed", content="final")
                return found

            nodes.ask_many = interrupted  # type: ignore[method-assign]
            await storage_of(store)._index._index("default", waiting)
            nodes.ask_many = read  # type: ignore[method-assign]
            assert len([key for key in keys_of(engine) if ":terms:" in key]) == 1, "only that of the first message"
            assert [len(await store.search(word)) for word in ("secret", "draft", "final")] == [0, 0, 1]

    asyncio.run(play())


class LateScript:
    """The script of the index, which waits until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def run(self, *args: Any, **options: Any) -> Any:
        self.patch.undo()  # other indexers are on time
        self.reached.set()
        await self.gate.wait()
        return await INDEX.run(*args, **options)

    async def start(self, search: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.patch.setattr(index, "INDEX", self)
        task = asyncio.create_task(search)
        await self.reached.wait()
        return task


def test_a_late_indexer_does_not_bring_back_an_owner(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with hansard.connect(engine) as store:
            await store.append_message("c", "user", "tea", user_id="alice")
            late = LateScript(monkeypatch)
            search = await late.start(store.search("tea"))
            await store.update_conversation("c", user_id="bob")
            assert len(await store.user("bob").search("tea")) == 1
            late.gate.set()
            await search
            assert len(await store.user("bob").search("tea")) == 1
            assert len(await store.user("alice").search("tea")) == 0

    asyncio.run(play())


def test_an_indexer_finds_a_message_that_is_changed_before_it_was_indexed(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with hansard.connect(engine) as store:
            for id in ("owner", "flag"):
                await store.append(id, [Message("user", f"{id} tea", id=id)])
                late = LateScript(monkeypatch)
                searching = await late.start(store.search(id))
                if id == "owner":
                    await store.update_conversation(id, user_id="bob")
                else:
                    await store.update_message(id, id, pinned=True)
                late.gate.set()
                found = await searching
                assert (len(found), found.complete) == (1, True), id

    asyncio.run(play())


def test_check_finds_messages_that_are_indexed_for_another_user(engine: str) -> None:
    with sync.connect(engine) as store:
        store.append_message("c", "user", "tea", user_id="bob")
        assert len(store.search("tea")) == 1
        (entry,) = [key for key in keys_of(engine) if ":terms:" in key]
        for owner, problems in (("alice", 1), ("bob", 0), (None, 1)):
            tags = " ".join([index.tag("t", "default"), *([index.tag("u", owner)] if owner else [])])
            redis_servers.shared_engine().client().hset(entry, "k", tags)
            assert len(store.check()) == problems
        list(store.admin.reindex())
        assert store.check() == []


def test_a_late_indexer_leaves_nothing_of_a_deleted_tenant(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with hansard.connect(engine) as store:
            acme = store.tenant("acme")
            await acme.append_message("c", "user", "secret")
            late = LateScript(monkeypatch)
            search = await late.start(acme.search("secret"))
            await storage_of(store)._index.forget("acme")  # the last step of a deletion
            late.gate.set()
            await search
            assert keys_of(engine) == []

    asyncio.run(play())


def test_a_conversation_leaves_the_index_of_a_tenant_that_was_deleted_meanwhile(engine: str) -> None:
    async def play() -> None:
        async with hansard.connect(engine) as store:
            acme = store.tenant("acme")
            await acme.append_message("c", "user", "secret")
            assert len(await acme.search("secret")) == 1
            await storage_of(store)._index.forget("acme")
            await acme.delete_conversation("c")
            assert keys_of(engine) == []

    asyncio.run(play())


def meanwhile(patch: pytest.MonkeyPatch, times: int, do: Callable[[], Awaitable[Any]]) -> None:
    """Does something in each of the next searches, after what waits was indexed and before the engine is asked."""
    prepare, left = index.RedisIndex.prepare, iter(range(times))

    async def interrupted(self: index.RedisIndex, tenant: str) -> bytes | None:
        replaced = await prepare(self, tenant)
        if next(left, None) is not None:
            await do()
        return replaced

    patch.setattr(index.RedisIndex, "prepare", interrupted)


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_a_search_finds_a_message_that_is_changed_meanwhile(
    engine: str, monkeypatch: pytest.MonkeyPatch, order: Literal["newest", "relevance"]
) -> None:
    texts_of_tea = iter(f"{number} tea" for number in range(100))

    async def play() -> None:
        async with hansard.connect(engine) as store:

            async def flag() -> None:
                await store.update_message("c", "m", pinned=True)

            async def extend() -> None:
                await store.update_message("c", "m", content="some tea and more")

            async def replace() -> None:
                await store.update_message("c", "m", content=next(texts_of_tea))

            await store.append("c", [Message("user", "some tea", id="m")])
            for change, times, expected in (
                (flag, 9, (1, True)),
                (extend, 9, (1, True)),
                (replace, 2, (1, True)),
                (replace, 9, (0, False)),
                (flag, 0, (1, True)),
            ):
                with monkeypatch.context() as patch:
                    meanwhile(patch, times, change)
                    found = await store.search("tea", order=order)
                assert (len(found), found.complete) == expected, (change, times)

    asyncio.run(play())


def test_an_indexer_that_dies_is_followed_by_the_next_search(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.connect(engine) as store:
        store.append("c", [Message("user", f"tea {number}") for number in range(5)])
        with monkeypatch.context() as patch:
            patch.setattr(index, "columns", lambda text: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.search("tea")
        assert len(store.search("tea")) == 5
    with sync.connect(engine) as store:
        monkeypatch.setattr(index, "_PIECE", 2)
        assert list(store.admin.reindex())[-1:] == [5]
        assert len(store.search("tea")) == 5


def test_large_messages_are_indexed_a_few_at_a_time(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 10_000)
    pieces: list[int] = []
    real = index.RedisIndex._index

    async def counted(self: index.RedisIndex, tenant: str, waiting: Any) -> int:
        pieces.append(await real(self, tenant, waiting))
        return pieces[-1]

    monkeypatch.setattr(index.RedisIndex, "_index", counted)
    with sync.connect(engine) as store:
        store.append("large", [Message("user", f"tea {number} {'x ' * 2_000}") for number in range(5)])
        store.append("larger", [Message("user", f"tea {'y ' * 20_000}") for _ in range(2)])
        assert len(store.search("tea", token_cap=None)) == 7
    assert sorted(pieces) == [1, 1, 1, 2, 2]


def test_an_index_that_somebody_dropped_is_made_again(engine: str) -> None:
    prefix = engine.rpartition("=")[2]
    client = redis_servers.shared_engine().client()
    with sync.connect(engine) as store:
        store.append_message("c", "user", "tea")
        assert len(store.search("tea")) == 1
        client.execute_command("FT.DROPINDEX", f"{prefix}:search")
        assert len(store.search("tea")) == 1
        assert store.check() == []
        client.execute_command("FT.DROPINDEX", f"{prefix}:search", "DD")
        (problem,) = store.check()
        assert "1 messages are not in the search index" in problem.what
        assert list(store.admin.reindex())[-1:] == [1]
        assert len(store.search("tea")) == 1
        assert store.check() == []


def test_a_restarted_server_finds_the_same(start: StartServer) -> None:
    if reason := redis_servers.why_no_engine():
        pytest.skip(reason)
    redis_servers.shared_engine()
    server = start(loadmodule=redisearch.module(), appendonly="yes", appendfsync="always")
    with sync.connect(server.url) as store:
        store.append("c", [Message("user", f"tea {number}") for number in range(300)])
        assert len(store.search("tea", limit=100)) == 100
        store.append_message("c", "user", "not indexed yet")
        server.kill()
        server.start()
        assert len(store.search('"tea 299"')) == 1
        assert len(store.search("indexed")) == 1


def test_messages_of_one_time_are_all_found_in_order(engine: str) -> None:
    far = datetime(9000, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
    with sync.connect(engine) as store:
        times = [TIME] * 250 + [TIME + timedelta(microseconds=number) for number in range(10)]
        # The engine's floats cannot tell these apart.
        times += [far + timedelta(microseconds=number) for number in (3, 1, 2)]
        store.append("c", [Message("user", "tea", id=f"{n:03}", created_at=time) for n, time in enumerate(times)])
        found: list[str] = []
        cursor = None
        while cursor is not None or not found:
            page = store.search("tea", order="newest", limit=60, token_cap=None, cursor=cursor)
            found += [hit.message.id for hit in page]
            cursor = page.next_cursor
        expected = sorted(range(len(times)), key=lambda n: (times[n], n), reverse=True)
        assert found == [f"{n:03}" for n in expected]
        after = store.search("tea", order="newest", since=far + timedelta(microseconds=2), limit=10)
        assert [hit.message.id for hit in after] == ["260", "262"]


def cursors_of(url: str) -> int:
    """Returns how many cursors the engine keeps for searches."""
    info = redis_servers.shared_engine().client().execute_command("FT.INFO", f"{url.rpartition('=')[2]}:search")
    return int(info[b"cursor_stats"][b"index_total"])


def test_many_searches_at_once_share_the_cursors_of_the_engine(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COUNT", 2)

    async def play() -> None:
        async with hansard.connect(engine) as store:
            await store.append("c", [Message("user", f"tea {number}") for number in range(9)])
            found = await asyncio.gather(*(store.search("tea") for _ in range(200)))
            assert {len(each) for each in found} == {9}
            assert cursors_of(engine) == 0

    asyncio.run(play())


def test_two_first_searches_at_once_find_everything(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RedisIndex._index_until

    async def interrupted(self: RedisIndex, tenant: str, score: bytes) -> int:
        await self._queue_everything(tenant)  # as the other search does
        return await real(self, tenant, score)

    monkeypatch.setattr(RedisIndex, "_index_until", interrupted)

    async def play() -> None:
        async with hansard.connect(engine) as store:
            await store.append("c", [Message("user", f"tea {number}") for number in range(9)])
            assert len(await store.search("tea")) == 9

    asyncio.run(play())


def test_a_cancelled_search_leaves_no_cursor(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COUNT", 2)
    real = SingleServer.ask

    async def play() -> None:
        async with hansard.connect(engine) as store:
            await store.append("c", [Message("user", f"tea {number}") for number in range(9)])
            assert len(await store.search("tea")) == 9
            for name in ("FT.AGGREGATE", "FT.CURSOR"):
                reached = asyncio.Event()

                async def slow(
                    self: SingleServer, key: str, command: Any, name: str = name, reached: Any = reached, **options: Any
                ) -> Any:
                    if command[0] == name:
                        reached.set()
                        await asyncio.sleep(0)
                    return await real(self, key, command, **options)

                with monkeypatch.context() as patch:
                    patch.setattr(SingleServer, "ask", slow)
                    task = asyncio.create_task(store.search("tea"))
                    await reached.wait()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                assert cursors_of(engine) == 0, name

    asyncio.run(play())


def test_a_search_without_a_cursor_may_be_repeated(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COUNT", 2)
    with sync.connect(engine) as store:
        store.append("c", [Message("user", f"tea {number}") for number in range(9)])
        assert len(store.search("tea")) == 9
        client, name = redis_servers.shared_engine().client(), f"{engine.rpartition('=')[2]}:search"
        walk = ("FT.AGGREGATE", name, "*", "WITHCURSOR", "COUNT", 1)
        cursors = [client.execute_command(*walk)[1] for _ in range(128)]
        with pytest.raises(Unavailable, match="search-index-cursor-limit") as caught:
            store.search("tea")
        assert caught.value.retryable
        for cursor in cursors:
            client.execute_command("FT.CURSOR", "DEL", name, cursor)
        assert len(store.search("tea")) == 9


def test_a_ranking_compares_so_many_messages_and_says_so(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COUNT", 2)
    with sync.connect(engine) as store:
        store.append("c", [Message("user", f"some tea {number}") for number in range(9)])
        for most, expected in ((9, (9, True)), (8, (8, False)), (3, (3, False))):
            monkeypatch.setattr(search, "_MOST_RANKED", most)
            for query in ("tea", "some tea"):
                found = store.search(query, order="relevance")
                assert (len(found), found.complete) == expected, (query, most)
            assert cursors_of(engine) == 0
        assert store.search("tea", order="newest").complete


def test_appends_stay_one_trip_and_a_search_takes_few(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[int] = []
    exchange = RedisConnection._send

    async def counted(self: RedisConnection, commands: Any) -> Any:
        trips.append(len(commands))
        return await exchange(self, commands)

    monkeypatch.setattr(RedisConnection, "_send", counted)

    async def play() -> None:
        async with hansard.connect(engine) as store:
            storage, context = storage_of(store), Context("default", TIME)

            async def count(call: Callable[[], Awaitable[Any]]) -> int:
                trips.clear()
                await call()
                return len(trips)

            for _ in range(2):
                await store.append_message("c", "user", "some tea")
                await store.search("tea")
            assert await count(lambda: store.append_message("c", "user", "more tea")) == 1
            lookup = Lookup(parse_query("tea"))
            await storage.search(context, lookup)
            assert await count(lambda: storage.search(context, lookup)) == 4, "what waits, the engine, heads, messages"

    asyncio.run(play())


def test_a_server_that_refuses_writes_is_still_opened_and_searched(start: StartServer) -> None:
    if reason := redis_servers.why_no_engine():
        pytest.skip(reason)
    redis_servers.shared_engine()
    module = redisearch.module()
    primary = start(loadmodule=module)
    replica = start(loadmodule=module, replicaof=f"127.0.0.1 {primary.port}", repl_diskless_sync_delay=0)
    with sync.connect(primary.url) as store:
        store.append_message("c", "user", "tea")
        assert store.capabilities.search == "index"
        until(lambda: replica.client().dbsize() == primary.client().dbsize())
        with sync.connect(replica.url) as copy:
            assert copy.capabilities.search == "scan"
            assert texts(copy.search("tea")) == ["tea"]
        assert texts(store.search("tea")) == ["tea"]
        primary.client().config_set("maxmemory", 1)
        with sync.connect(primary.url) as full:
            assert full.capabilities.search == "index"
            assert texts(full.search("tea")) == ["tea"]
        primary.client().execute_command("FT.DROPINDEX", "hansard:search")
        with sync.connect(primary.url) as full:
            assert full.capabilities.search == "scan", "the index cannot be made"
            assert texts(full.search("tea")) == ["tea"]


def test_a_server_that_does_not_answer_in_time_is_not_opened_without_its_engine(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SingleServer.ask

    async def late(self: SingleServer, key: str, command: Any, **options: Any) -> Any:
        if command[0] == "FT.INFO":
            raise TimedOut("the server did not answer in time")
        return await real(self, key, command, **options)

    monkeypatch.setattr(SingleServer, "ask", late)
    with pytest.raises(TimedOut):
        sync.connect(engine)
    monkeypatch.undo()
    with sync.connect(engine) as store:
        assert store.capabilities.search == "index"
