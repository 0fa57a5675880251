"""The search index: the whole suite once more with nothing left to the queue, and what is special to PostgreSQL."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from tests.backends.postgres.kit import backend_of, play, raw
from tests.servers import postgres
from tests.wait import PATIENCE, coming

import hansard
import hansard.sync
from hansard import Message, Store, connect
from hansard.analysis import VERSION, analyse, parse_query, searchable
from hansard.backends.postgres import index, index_statistics, index_task, lexemes, schema, search, search_sql
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.queries import in_schema
from hansard.backends.schemes import open_backend
from hansard.testing import Mode, Target
from hansard.testing.contract import TestJudged, TestSearching, clock, store  # noqa: F401
from hansard.testing.contract.judged import CORPUS, QUERIES


@pytest.fixture
def target() -> Iterator[Target]:
    target = postgres.target()
    yield target
    target.close()


@pytest.fixture
def mode() -> Mode:
    """The blocking API only drives the coroutines of the async one here."""
    return "async"


@pytest.fixture(autouse=True)
def _index_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search indexes what was appended before it."""
    monkeypatch.setattr(search, "TAIL", 0)


def url_of(target: Target) -> str:
    assert target.url is not None
    return target.url


def schema_of(target: Target) -> str:
    return url_of(target).rpartition("schema=")[2]


async def entries(target: Target, table: str = "search") -> int:
    async with raw() as connection:
        count: int = await connection.fetchval(f"SELECT count(*) FROM {schema_of(target)}.{table}")
        return count


async def texts(opened: Store, query: str, **options: Any) -> list[str]:
    found = await opened.search(query, order="newest", limit=100, token_cap=None, **options)
    return [hit.message.text for hit in found]


def everything(opened: hansard.sync.Store, query: str) -> list[str]:
    """The ids of all that a query finds, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = opened.search(query, order="newest", limit=100, token_cap=None, cursor=cursor)
        found += [hit.message.id for hit in page]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def write_terms(work: Any) -> None:
    """What a pass writes, inside a transaction of the test's."""
    given = ("", 0, 0, None, 100, 10**6, VERSION)
    found = await work.link.all("queued", work.tenant, *given)
    assert await index._index(work.link, work.tenant, index._entries(work.tenant, found)) == len(found) > 0


async def make_older(place: str) -> None:
    """A schema as it was before there was search in it."""
    async with raw() as connection:
        for table in ("search", "search_queue", "search_state"):
            await connection.execute(f"DROP TABLE {place}.{table}")
        await connection.execute(f"DELETE FROM {place}.migrations WHERE name IN ('0003_search', '0004_words')")


# Filling


def test_the_index_is_filled_behind_the_appends(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", f"word {number}") for number in range(450)])
            await opened.tenant("acme").append_message("c", "user", "word")

            async def is_filled() -> bool:
                return await entries(target) == 451 and await entries(target, "search_queue") == 0

            # While it is still open: closing must not be what fills it.
            assert await coming(is_filled)

    play(check)


def test_what_the_queue_has_is_found_too(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TAIL", 100)
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", f"word {number}") for number in range(30)])
            await backend_of(opened).catch_up()
            await opened.append("c", [Message("user", f"word {number}") for number in range(30, 60)])
            assert (await entries(target), await entries(target, "search_queue")) == (30, 30)
            assert (await opened.stats()).unindexed == (await opened.admin.stats()).unindexed == 30
            assert (await opened.tenant("acme").stats()).unindexed == 0
            assert await texts(opened, "word") == [f"word {number}" for number in range(59, -1, -1)]
            counted = await opened.search("word", limit=100, token_cap=None)
            assert len(counted) == 60
            assert counted.complete
            assert await texts(opened.tenant("acme"), "word") == []

    play(check)


def test_what_a_process_left_behind_is_indexed_by_one_that_finds_it(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TAIL", 100)

    async def check() -> None:
        with monkeypatch.context() as never:
            never.setattr(index_task, "IDLE", 600.0)
            async with connect(target.url) as dying:
                await dying.append("c", [Message("user", f"word {number}") for number in range(30)])
                await dying.append("d", [Message("user", f"word {number}") for number in range(30, 60)])
                await dying.tenant("acme").append_message("c", "user", "word")
        assert (await entries(target), await entries(target, "search_queue")) == (0, 61)
        async with connect(target.url) as opened:
            assert await texts(opened, "word") == [f"word {number}" for number in range(59, -1, -1)]

            async def is_filled() -> bool:
                # Only of the tenant that was searched.
                return (await entries(target), await entries(target, "search_queue")) == (60, 1)

            await coming(is_filled)
            assert await texts(opened, "word") == [f"word {number}" for number in range(59, -1, -1)]
            assert await opened.check() == []

    play(check)


def test_who_may_not_index_leaves_it_to_others_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a replica, which may become the primary later."""
    monkeypatch.setattr(search, "TAIL", 100)
    monkeypatch.setattr(index_task, "REFUSED", 0.5)
    place = postgres.place_of_the_ordinary()
    url = postgres.with_schema(place, postgres.shared().url_of(postgres.ORDINARY))

    async def is_indexed() -> bool:
        async with raw(postgres.shared().url) as connection:
            return bool(await connection.fetchval(f"SELECT count(*) = 1 FROM {place}.search"))

    async def check() -> None:
        with monkeypatch.context() as never:
            never.setattr(index_task, "IDLE", 600.0)
            async with connect(url) as dying:
                await dying.append_message("c", "user", "word")
        async with raw(postgres.shared().url) as connection:
            await connection.execute(f"REVOKE INSERT ON {place}.search FROM {postgres.ORDINARY}")
        async with connect(url) as opened:
            filler = backend_of(opened).storage.filler
            assert await texts(opened, "word") == ["word"]
            await coming(lambda: filler._refused_until)
            assert await texts(opened, "word") == ["word"]
            assert not await is_indexed()
            async with raw(postgres.shared().url) as connection:
                await connection.execute(f"GRANT INSERT ON {place}.search TO {postgres.ORDINARY}")

            async def comes_back() -> bool:
                assert await texts(opened, "word") == ["word"]
                return await is_indexed()

            await coming(comes_back)

    try:
        play(check)
    finally:
        postgres.drop(place)


def test_a_long_tail_is_looked_at_page_by_page(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can index it, as on a replica, it may be all that there is: never all of it is in memory."""
    monkeypatch.setattr(index_task, "IDLE", 60.0)
    monkeypatch.setattr(search, "_PAGE", 7)
    pages: list[int] = []
    long_bodies: list[int] = []
    looked = search.PostgresSearch._matching

    async def spied(self: search.PostgresSearch, found: list[Any]) -> list[Any]:
        pages.append(len(found))
        long_bodies.append(sum(len(row[search_sql.BODY]) > search._LONG for row in found))
        return await looked(self, found)

    async def denied(*_: object) -> int:
        raise hansard.Denied("a replica")

    monkeypatch.setattr(search.PostgresSearch, "_matching", spied)
    monkeypatch.setattr(index, "catch_up_tenant", denied)

    async def check() -> None:
        async with connect(target.url) as opened:
            for id, kind in (("c", "x"), ("d", "y")):
                await opened.append(id, [Message("user", f"word {id} {number}") for number in range(30)])
                await opened.update_conversation(id, metadata={"kind": kind})
            expected = [f"word d {number}" for number in range(29, -1, -1)]
            assert await texts(opened, "word", metadata={"kind": "y"}) == expected
            assert len(pages) > 8
            assert max(pages) == 7
            first = await opened.search("word", order="newest", limit=4, token_cap=None)
            assert [hit.message.text for hit in first] == expected[:4]
            rest = await opened.search("word", order="newest", limit=2, token_cap=None, cursor=first.next_cursor)
            assert [hit.message.text for hit in rest] == expected[4:6]
            assert len(await opened.search("word OR 7", limit=100, token_cap=None)) == 60
            best = await opened.search("word OR 7", limit=2, token_cap=None)
            assert {hit.message.text for hit in best} == {"word c 7", "word d 7"}
            # The rows come in any order, and no page has two long bodies.
            long = Message("user", "long " * (search._LONG // 4))
            await opened.append("e", [long, long, Message("user", "long enough")])
            pages.clear()
            long_bodies.clear()
            assert len(await texts(opened, "long", conversation_id="e")) == 3
            assert sum(pages) == 3
            assert sum(long_bodies) == 2
            assert max(long_bodies) == 1

    play(check)


def test_what_was_imported_is_indexed(target: Target) -> None:
    with hansard.sync.connect("memory://") as source:
        source.append("c", [Message("user", "word")] * 1200)
        with hansard.sync.connect(url_of(target)) as opened:
            opened.import_(list(source.export()))
            assert asyncio.run(entries(target)) == 1200


def test_what_is_committed_later_than_its_number_is_not_passed_over(target: Target) -> None:
    """A pass between the insert of a message and its commit must not make anybody believe that it was indexed."""

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append_message("a", "user", "word first")
            await opened.append_message("b", "user", "word second")
            place = schema_of(target)
            late = connection.transaction()
            await late.start()
            await connection.execute(
                f"INSERT INTO {place}.messages SELECT tenant, conversation, line, seq + 1, 'late', role, format, "
                f"'word late', size, created_at, participant, participant_kind, scope, extra, pinned "
                f"FROM {place}.messages WHERE conversation = 'a'"
            )
            await connection.execute(f"INSERT INTO {place}.search_queue VALUES ('default', 'a', 1, 2)")
            await connection.execute(
                f"UPDATE {place}.conversations SET seq = 2, message_count = 2 WHERE tenant = 'default' AND id = 'a'"
            )
            await opened.append_message("b", "user", "word third")
            assert await texts(opened, "word") == ["word third", "word second", "word first"]
            await late.commit()
            assert await texts(opened, "word") == ["word third", "word second", "word late", "word first"]
            assert await opened.check() == []

    play(check)


def test_processes_index_beside_each_other(target: Target) -> None:
    script = (
        "import sys, hansard.sync\n"
        f"with hansard.sync.connect({url_of(target)!r}) as opened:\n"
        "    for number in range(150):\n"
        "        id = opened.append_message(f'c{number % 7}', 'user', f'word {sys.argv[1]} {number}')\n"
        "        if number % 10 == 0:\n"
        "            opened.update_message(f'c{number % 7}', id, content=f'changed {sys.argv[1]} {number}')\n"
        "        if number % 10 == 5:\n"
        "            opened.delete_message(f'c{number % 7}', id)\n"
        "        if number % 25 == 0:\n"
        "            assert opened.search('word OR changed', order='newest')\n"
    )
    starts = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(3)]
    assert [start.wait(100) for start in starts] == [0] * 3
    with hansard.sync.connect(url_of(target)) as opened:
        found = everything(opened, "word")
        assert len(found) == 3 * 120
        assert len(everything(opened, "changed")) == 3 * 15
        assert opened.check() == []
        list(opened.admin.reindex())
        assert everything(opened, "word") == found


def test_a_pass_that_dies_leaves_everything_as_it_was(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append("c", [Message("user", f"word {number}") for number in range(20)])
            engine = backend_of(opened).storage.engine

            async def dying(work: Any) -> None:
                await write_terms(work)
                pid = await work.link.connection.fetchval("SELECT pg_backend_pid()")
                await connection.execute("SELECT pg_terminate_backend($1)", pid)

            with pytest.raises(hansard.Unavailable):
                await engine.write("default", dying)
            assert (await entries(target), await entries(target, "search_queue")) == (0, 20)
            assert len(await texts(opened, "word")) == 20
            assert await opened.check() == []

    play(check)


def test_a_message_that_cannot_be_read_is_told_and_stops_nobody_else(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append("a", [Message("user", {"word": 1}, format="json")])
            await opened.append("b", [Message("user", f"word {number}") for number in range(5)])
            await connection.execute(f"UPDATE {schema_of(target)}.messages SET body = '{{' WHERE conversation = 'a'")
            assert len(await texts(opened, "word", conversation_id="b")) == 5
            with pytest.raises(hansard.Corrupt):
                await opened.search("word")

    play(check)


# Owners


def test_an_owner_is_known_to_the_index(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", f"word {number}") for number in range(3)])
            await opened.append("d", [Message("user", "word of ben")], user_id="ben")
            assert await texts(opened.user("ann"), "word") == []
            await opened.append_message("c", "user", "word 3", user_id="ann")
            assert await texts(opened.user("ann"), "word") == ["word 3", "word 2", "word 1", "word 0"]
            await opened.update_conversation("c", user_id="ben")
            assert await texts(opened.user("ann"), "word") == []
            assert len(await texts(opened, "word", user_id="ben")) == 5
            assert await opened.check() == []

    play(check)


async def slow_pass(opened: Store) -> tuple[asyncio.Task[None], asyncio.Event]:
    """A pass that has written its terms, and commits only when it may end."""
    is_under_way, may_end = asyncio.Event(), asyncio.Event()

    async def slow(work: Any) -> None:
        await write_terms(work)
        is_under_way.set()
        await may_end.wait()

    passing = asyncio.create_task(backend_of(opened).storage.engine.write("default", slow))
    await is_under_way.wait()
    return passing, may_end


def test_an_owner_who_comes_while_messages_are_indexed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append waits for the pass, and takes back what it has indexed for nobody."""
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append_message("c", "user", "word 0")
            passing, may_end = await slow_pass(opened)
            appending = asyncio.create_task(opened.append_message("c", "user", "word 1", user_id="ann"))
            async with connect(target.url) as other:
                await asyncio.wait_for(other.append_message("c", "user", "word 2"), PATIENCE)
                await asyncio.wait_for(other.append_message("d", "user", "word 3"), PATIENCE)
            assert not appending.done()
            may_end.set()
            await asyncio.gather(passing, appending)
            assert await texts(opened.user("ann"), "word") == ["word 1", "word 2", "word 0"]
            assert await opened.check() == []

    play(check)


def test_appends_do_not_wait_for_a_pass_and_deletions_do(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened:
            id = await opened.append_message("c", "user", "word 0")
            passing, may_end = await slow_pass(opened)
            deleting = asyncio.create_task(opened.delete_message("c", id))
            await asyncio.wait_for(opened.append_message("d", "user", "word 1"), PATIENCE)
            assert not deleting.done()
            may_end.set()
            await asyncio.gather(passing, deleting)
            assert await texts(opened, "word") == ["word 1"]
            assert await entries(target) == 1
            assert await opened.check() == []

    play(check)


# Building anew, and checking


def test_built_anew_it_says_the_same(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append("c", [Message("user", f"word {number}") for number in range(20)])
            await opened.tenant("other").append("c", [Message("user", "word")])
            before = await texts(opened, "word")
            await connection.execute(f"UPDATE {schema_of(target)}.search SET terms = ''")
            assert await texts(opened, "word") == []
            assert [done async for done in opened.admin.reindex()][-1] == 21
            assert await texts(opened, "word") == before
            assert len(await texts(opened.tenant("other"), "word")) == 1
            assert await opened.check() == []

    play(check)


def test_what_another_process_indexes_meanwhile_is_done_too(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, connect(target.url) as other:
            await opened.append("c", [Message("user", f"word {number}") for number in range(20)])
            await opened.tenant("acme").append("c", [Message("user", "word")])
            own = index.catch_up_tenant

            async def beaten(engine: Any, tenant: str) -> None:
                assert await index.sweep(backend_of(other).storage.engine, tenant, index.LONG_PASS) == 0
                await own(engine, tenant)

            monkeypatch.setattr(index, "catch_up_tenant", beaten)
            assert [done async for done in opened.admin.reindex()][-1] == 21
            assert await entries(target) == 21

    play(check)


def test_others_read_and_write_while_it_is_built_anew(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_PAGE", 3)

    async def check() -> None:
        async with connect(target.url) as opened:
            for number in range(20):
                await opened.append_message(f"c{number:02}", "user", f"word {number}")
            expected = 20
            async for _ in opened.admin.reindex():
                await opened.append_message(f"c{expected % 20:02}", "user", f"word {expected}")
                expected += 1
                assert len(await texts(opened, "word")) == expected
            assert expected > 26
            assert await opened.check() == []

    play(check)


def test_check_compares_index_and_messages(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            ids = [message.id for message in (await opened.append("c", [Message("user", "some words")] * 4)).messages]
            assert len(await texts(opened, "words")) == 4
            assert await opened.check() == []
            place = schema_of(target)
            await connection.execute(f"UPDATE {place}.search SET terms = strip(terms) WHERE seq = 1")
            await connection.execute(f"DELETE FROM {place}.search WHERE seq = 2")
            await connection.execute(f"INSERT INTO {place}.search_queue VALUES ('default', 'c', 1, 3)")
            await connection.execute(f"INSERT INTO {place}.search VALUES ('default', 'c', 1, 99, 0, false, '')")
            await connection.execute(f"INSERT INTO {place}.search VALUES ('default', 'no', 1, 1, 0, false, '')")
            problems = [problem.what for problem in await opened.check()]
            assert len(problems) == 5, problems
            assert any(ids[0] in what and "other words" in what for what in problems)
            assert any(ids[1] in what and "not in the search index" in what for what in problems)
            assert any(ids[2] in what and "waits for it" in what for what in problems)
            assert sum("are gone" in what for what in problems) == 2
            assert [done async for done in opened.admin.reindex()]
            assert await opened.check() == []

    play(check)


def test_strays_are_found_page_by_page(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement looks at all of a large index, which would take longer than a statement may."""
    monkeypatch.setattr(index, "_PAGE", 3)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            for number in range(10):
                await opened.append(f"c{number:02}", [Message("user", "word")] * 2)
            await opened.tenant("zeta").append_message("c", "user", "word")
            await backend_of(opened).catch_up()
            place = schema_of(target)
            await connection.execute(
                f"INSERT INTO {place}.search SELECT tenant, conversation || 'x', line, seq, 0, false, '' "
                f"FROM {place}.search WHERE conversation IN ('c00', 'c07', 'c09', 'c')"
            )
            assert [problem.what[:2] for problem in await opened.check()] == ["6 "]
            assert [problem.what[:2] for problem in await opened.tenant("zeta").check()] == ["1 "]
            assert await opened.tenant("acme").check() == []
            seen: list[int] = []
            one = PostgresConnection.one

            async def spied(self: PostgresConnection, name: str, *values: Any) -> Any:
                if name in ("delete_strays", "count_strays"):
                    assert values[2] == 3
                    seen.append(1)
                return await one(self, name, *values)

            monkeypatch.setattr(PostgresConnection, "one", spied)
            assert [done async for done in opened.admin.reindex()][-1] == 21
            assert len(seen) > 5
            assert await entries(target) == 21
            assert await opened.check() == await opened.tenant("zeta").check() == []

    play(check)


def test_an_index_of_another_version_is_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 60.0)

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append_message("c", "user", "word")
            await connection.execute(f"UPDATE {schema_of(target)}.search_state SET version = 99, filling = 99")
            with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
                await opened.search("word")
            assert [problem.where for problem in await opened.check()] == ["search index"]
            # Newer processes fill it: what we would add, they would not find.
            await backend_of(opened).catch_up()
            assert await entries(target) == 0
            assert [done async for done in opened.admin.reindex()]
            assert await texts(opened, "word") == ["word"]

    play(check)


def test_an_upgrade_builds_an_older_index_anew_and_leaves_a_newer_one(target: Target) -> None:
    async def upgraded(connection: Any, version: int) -> None:
        await connection.execute(f"UPDATE {schema_of(target)}.search_state SET version = $1, filling = $1", version)
        await (await open_backend(url_of(target), upgrade=True)).close()

    async def check() -> None:
        async with connect(target.url) as opened, raw() as connection:
            await opened.append("c", [Message("user", f"word {number}") for number in range(20)])
            await opened.tenant("zeta").append_message("c", "user", "word")
            await upgraded(connection, VERSION + 1)
            with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
                await opened.search("word")
            await upgraded(connection, VERSION - 1)
            assert len(await texts(opened, "word")) == 20
            assert await entries(target) == 21
            assert await opened.check() == await opened.tenant("zeta").check() == []

    play(check)


def test_an_older_schema_is_indexed_after_its_upgrade(target: Target) -> None:
    from tests.backends.postgres.test_schema import prepare

    async def check() -> None:
        place = schema_of(target)
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", f"old word {number}") for number in range(250)])
        await make_older(place)
        with pytest.raises(hansard.FormatMismatch, match="hansard upgrade"):
            await connect(target.url)
        await prepare(place, upgrade=True)
        assert (await entries(target), await entries(target, "search_queue")) == (0, 250)
        async with connect(target.url) as opened:
            assert len(await texts(opened, "old")) == 100
            assert await entries(target) == 250
            assert await opened.check() == []

    play(check)


def test_what_is_committed_during_an_upgrade_is_indexed_too(target: Target) -> None:
    """An older process may have written before the upgrade, and be committed after it has begun."""
    from tests.backends.postgres.test_schema import prepare

    async def check() -> None:
        place = schema_of(target)
        async with connect(target.url) as opened:
            await opened.append_message("c", "user", "old word")
        await make_older(place)
        async with raw() as late, raw() as connection:
            transaction = late.transaction()
            await transaction.start()
            await late.execute(
                f"INSERT INTO {place}.messages SELECT tenant, conversation, line, seq + 1, 'late', role, format, "
                f"body, size, created_at, participant, participant_kind, scope, extra, pinned FROM {place}.messages"
            )
            upgrade = asyncio.create_task(prepare(place, upgrade=True))

            async def has_come() -> bool:
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass"
                return upgrade.done() or bool(await connection.fetchval(waits, f"{place}.messages"))

            await coming(has_come)
            await transaction.commit()
            await upgrade
        assert await entries(target, "search_queue") == 2

    play(check)


# What a tsvector cannot say


LONG_WORD = "ก" + "่" * 3000
LOOSE = [
    "near far " * 300,  # more places of one word than a tsvector keeps
    " ".join(f"w{number}" for number in range(17_000)) + " deep phrase",  # more places than it counts
    f"{LONG_WORD} end",
    "far near deep then phrase",
    "it's back\\slash 'quoted' \"twice\" %_ C++ 50% €",
    "plain",
    "",
]
LOOSE_QUERIES = [
    *("near", '"near far"', '"far near"', '"near near"', "near -far", 'deep -"deep phrase"', '"deep phrase"'),
    *("w16999", '"w16998 w16999"', '"w16999 w16998"', '-"w16998 w16999" deep', "w169*", '"w1 w2 w3"*', "deep phrase"),
    *("plain -w9", "plain", "end", LONG_WORD, LONG_WORD[:90] + "*", LONG_WORD[:101], LONG_WORD[:100]),
    *(f"end -{LONG_WORD}", f"plain -{LONG_WORD}", "back\\slash", "'quoted'", "C++", "50%", "€", "its"),
]


async def assert_found(opened: Store, queries: list[str], expected: list[Message]) -> None:
    terms = {message.seq: analyse(searchable(message)) for message in expected}
    for text in queries:
        query = parse_query(text)
        matching = [seq for seq, each in terms.items() if query.matches(each)]
        found = await opened.search(text, order="newest", limit=100, token_cap=None)
        assert [hit.message.seq for hit in found] == matching[::-1], text[:50]
        assert found.complete


def test_what_is_beyond_the_bounds_of_a_tsvector_is_found_all_the_same(target: Target) -> None:
    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", text) for text in LOOSE])
            messages = await opened.get_messages("c")
            assert [lexemes.vector_of(each, ()).loose for each in messages] == [True] * 3 + [False] * 4
            await assert_found(opened, LOOSE_QUERIES, messages)
            assert await opened.check() == []

    play(check)


@pytest.mark.parametrize(("most", "lexeme"), [(900, "\3deeply"), (10, lexemes.ANY)])
def test_messages_with_more_words_than_a_tsvector_holds(
    target: Target, monkeypatch: pytest.MonkeyPatch, most: int, lexeme: str
) -> None:
    """With a smaller bound than the real one: to analyse a megabyte of different words takes seconds."""
    monkeypatch.setattr(lexemes, "MOST_BYTES", most)

    async def check() -> None:
        async with connect(target.url) as opened:
            marks = [f"{chr(ord('b') + number // 20)}{chr(ord('b') + number % 20)}" for number in range(60)]
            many = " ".join(f"deeply{mark}word filler{mark}" for mark in marks)
            await opened.append(
                "c", [Message("user", text) for text in (many, "deeply word", "plain", f"{many} plain")]
            )
            messages = await opened.get_messages("c")
            assert f"'{lexeme}'" in lexemes.vector_of(messages[0], ()).text
            one, other = f"deeply{marks[7]}word", f"filler{marks[7]}"
            queries = ["deeply", one, "deeplyzzword", "dee*", "deeply*", f"{one[:8]}*", f"plain -{one}", "plain", "no"]
            queries += [f'"{one} {other}"', f'"{other} {one}"', f"plain {one}", "n*", f"{one} -{other}", "zzzzzz*"]
            await assert_found(opened, queries, messages)
            assert await opened.check() == []

    play(check)


def test_the_server_takes_a_tsvector_up_to_our_bounds() -> None:
    def terms(places: list[int]) -> dict[str, list[int]]:
        size = 6 + 3 + 2 * len(places)
        return {f"{number:06}": places for number in range(lexemes.MOST_BYTES // size)}

    async def check() -> None:
        async with raw() as connection:
            for given in (terms([]), terms([1]), terms([1, 16383])):
                assert lexemes.MOST_BYTES - 20 < lexemes._size(given.items()) <= lexemes.MOST_BYTES
                text = " ".join(f"'{term}':{','.join(map(str, at))}".rstrip(":") for term, at in given.items())
                assert await connection.fetchval("SELECT length($1::text::tsvector)", text) == len(given)

    play(check)


def test_random_queries_find_what_matches_and_nothing_else(target: Target) -> None:
    chance = random.Random(4)
    pieces = [
        *(
            "near",
            "far",
            "nearly",
            "GitHub",
            "user_id",
            "東京",
            "タワー",
            "한국어",
            "Straße",
            "Müller",
            "C++",
            "a",
            "🙂",
        ),
        *("\0", "\1", "\2", "\ud800", "\\", "'", '"', "''", "\\'", ":*", "&", "|", "!", "<->", "(", ")", "%", "ก่"),
    ]

    def text(most: int) -> str:
        return chance.choice(("", " ")).join(chance.choices(pieces, k=chance.randint(1, most)))

    def query() -> str:
        joints = (" ", " ", " OR ", " -", '"', '" "', "* ", ' -"')
        return "".join(piece + chance.choice(joints) for piece in chance.choices(pieces, k=chance.randint(1, 5)))

    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", text(12).replace("\ud800", "")) for _ in range(150)])
            messages = [message async for message in opened.iter_messages("c")]
            terms = {each.seq: analyse(searchable(each)) for each in messages}
            hits = 0
            for given in [query() for _ in range(400)]:
                parsed = parse_query(given)
                expected = [seq for seq, each in terms.items() if parsed.matches(each)]
                found = await opened.search(given, order="newest", limit=100, token_cap=None)
                assert [hit.message.seq for hit in found] == expected[::-1][:100], given
                assert found.complete
                hits += len(found)
            assert hits > 1000

    play(check)


# Steps


@pytest.mark.parametrize(("walked", "sorted_"), [(0, 10**6), (5, 3), (10**6, 0), (3, 0)])
def test_every_step_finds_the_same(target: Target, monkeypatch: pytest.MonkeyPatch, walked: int, sorted_: int) -> None:
    monkeypatch.setattr(search, "_WALKED", walked)
    monkeypatch.setattr(search, "_SORTED", sorted_)
    monkeypatch.setattr(search, "_SORTED_EACH", 0)
    monkeypatch.setattr(search, "_WALKED_EACH", 0)

    async def check() -> None:
        async with connect(target.url) as opened:
            for number in range(40):
                words = "word" + " rare" * (number % 9 == 0) + " even" * (number % 2 == 0)
                await opened.append_message(f"c{number % 3}", "user", f"{words} {number}", user_id=f"u{number % 3}")
            await opened.tenant("acme").append("c0", [Message("user", "word rare even")] * 3)
            for query, options in (("word", {}), ("rare", {}), ("even -rare", {}), ("word", {"user_id": "u1"}),
                                   ("even", {"conversation_id": "c2"}), ("word", {"roles": ["tool"]})):  # fmt: skip
                pages: list[str] = []
                cursor = None
                while True:
                    page = await opened.search(query, order="newest", limit=4, cursor=cursor, **options)
                    assert page.complete
                    pages += [hit.message.text for hit in page]
                    cursor = page.next_cursor
                    if cursor is None:
                        break
                assert pages == await texts(opened, query, **options), query
                parsed = parse_query(query)
                assert len(pages) == sum(
                    parsed.matches(analyse("word" + " rare" * (n % 9 == 0) + " even" * (n % 2 == 0)))
                    and options.get("user_id") in (None, f"u{n % 3}")
                    and options.get("conversation_id") in (None, f"c{n % 3}")
                    and "roles" not in options
                    for n in range(40)
                )

    play(check)


def test_the_judged_suite_behind_the_second_wall_and_a_pooler() -> None:
    """No index of terms is used there, and nothing is kept in a session."""
    place = postgres.place_of_the_ordinary()

    async def check() -> None:
        url = postgres.with_schema(place, postgres.shared().url_of(postgres.ORDINARY))
        async with connect(f"{url}&rls=true&pooler=true") as opened:
            corpus = [Message("user", content, id=id) for id, content in CORPUS.items()]
            await opened.append("c", corpus)
            await opened.tenant("acme").append("c", corpus)
            for query, expected in QUERIES:
                found = await opened.search(query, order="newest", limit=100, token_cap=None)
                assert sorted(hit.message.id for hit in found) == sorted(expected.split()), query
            assert len(await opened.search("order")) > 0
            await opened.admin.delete_tenant("acme")
            assert await opened.check() == []
            assert [done async for done in opened.admin.reindex()]
            assert await opened.check() == []

    try:
        play(check)
    finally:
        postgres.drop(place)


def test_an_upgrade_behind_the_second_wall_sees_every_tenant() -> None:
    from hansard.backends.postgres.hosts import direct_hosts
    from hansard.backends.postgres.options import parse
    from hansard.urls import Url

    place = postgres.place_of_the_ordinary()
    url = postgres.with_schema(place, postgres.shared().url_of(postgres.ORDINARY))

    async def check() -> None:
        async with connect(f"{url}&rls=true") as opened:
            await opened.append_message("c", "user", "old word")
            await opened.tenant("acme").append_message("c", "user", "old word of acme")
        await make_older(place)
        options = parse(Url(url))
        link = await direct_hosts(options).connect({})
        try:
            await schema.prepare(link, options, upgrade=True)
        finally:
            await link.close()
        async with raw() as connection:
            walls = "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = $1::text::regclass"
            for table in ("search", "search_queue"):
                assert await connection.fetchval(walls, f"{place}.{table}")
        async with connect(url) as opened:
            assert await texts(opened, "old") == ["old word"]
            assert await texts(opened.tenant("acme"), "old") == ["old word of acme"]

    try:
        play(check)
    finally:
        postgres.drop(place)


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_a_tenant_with_most_messages_is_not_looked_up(
    target: Target, order: Literal["newest", "relevance"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hit would be looked up in a list as long as the store.

    Messages without the term of their tenant are found if it is not looked up.
    """
    monkeypatch.setattr(index_statistics, "_SECONDS", 0.0)

    async def run(sql: str, *values: str) -> None:
        async with raw() as connection:
            await connection.execute(in_schema(sql, schema_of(target)), *values)

    async def check() -> None:
        async with connect(target.url) as opened:
            acme = opened.tenant("acme")
            await opened.append("c", [Message("user", f"word {number}") for number in range(3)])
            await acme.append("c", [Message("user", f"word {number}") for number in range(9)])
            assert len(await opened.search("word", order=order)) == 3
            assert len(await acme.search("word", order=order)) == 9
            await run("UPDATE hansard.search SET terms = ts_delete(terms, $1::text)", lexemes.of_tenant("default"))
            await run("ANALYZE hansard.search")
            assert len(await opened.search("word", order=order)) == 0
            assert len(await acme.search("word", order=order)) == 9
            await acme.delete_conversation("c")
            await acme.append_message("d", "user", "word")
            assert len(await acme.search("word", order=order)) == 1
            await run("ANALYZE hansard.search")
            assert len(await opened.search("word", order=order)) == 3
            assert len(await acme.search("word", order=order)) == 1

    play(check)


def test_a_common_word_is_not_looked_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no new message has it: the list of all its messages would be read, and not used."""
    monkeypatch.setattr(index_statistics, "_SECONDS", 0.0)
    monkeypatch.setattr(index_statistics, "MOST", 30)

    def denied(*_: object) -> str:
        raise AssertionError("looked up")

    async def check() -> None:
        async with connect(target.url) as opened:
            await opened.append("c", [Message("user", f"river {number}") for number in range(40)])
            await opened.append("c", [Message("user", f"lake {number}") for number in range(600)])
            expected = [f"river {number}" for number in range(39, -1, -1)]
            assert await texts(opened, "river") == expected
            async with raw() as connection:
                await connection.execute(in_schema("ANALYZE hansard.search", schema_of(target)))
            monkeypatch.setattr(search_sql.Statement, "looked_up", denied)
            assert await texts(opened, "river") == expected
            assert await texts(opened, "river OR pond") == expected
            first = await opened.search("river", order="newest", limit=30, token_cap=None)
            rest = await opened.search("river", order="newest", limit=30, token_cap=None, cursor=first.next_cursor)
            assert [hit.message.text for hit in (*first, *rest)] == expected
            assert len(await texts(opened, "lake")) == 100
            with pytest.raises(AssertionError, match="looked up"):
                await texts(opened, "river -7")

    play(check)


def test_a_word_that_only_others_use_is_looked_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the search would walk over all messages of the largest tenant."""
    monkeypatch.setattr(index_statistics, "_SECONDS", 0.0)
    monkeypatch.setattr(index_statistics, "MOST", 30)

    async def check() -> None:
        async with connect(target.url) as opened:
            acme = opened.tenant("acme")
            await acme.append("c", [Message("user", f"river {number}") for number in range(40)])
            await acme.search("river")
            for is_common in (False, True):
                await opened.append("c", [Message("user", f"lake {number}") for number in range(60)])
                await opened.search("lake")
                async with raw() as connection:
                    await connection.execute(in_schema("ANALYZE hansard.search", schema_of(target)))
                known = await backend_of(opened).storage._statistics.known(opened._view.context())
                assert known.largest == "default"
                assert ("lake" in known.common, "river" in known.common) == (is_common, False)

    play(check)
