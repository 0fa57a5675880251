"""What can go wrong with a server, and what a caller is told."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.backends.postgres.kit import backend_of, play, raw, sessions
from tests.contract.backends import quick_folder
from tests.servers import postgres
from tests.wait import coming
from tools.postgres import PASSWORD_ROLE, Server

import hansard
from hansard import (
    Closed,
    Conflict,
    Denied,
    FormatMismatch,
    Message,
    Store,
    TimedOut,
    Unavailable,
    ValidationError,
    connect,
)
from hansard.backends.postgres import errors, maintenance, schema
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.postgres.pool import Pool


@pytest.fixture
def url() -> Iterator[str]:
    """A store of its own on the server of this run."""
    target = postgres.target()
    assert target.url is not None
    yield target.url
    target.close()


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that these tests may stop, crash and fill."""
    with quick_folder() as folder:
        folder.chmod(0o755)
        server = Server(folder / "own")
        server.make()
        server.start(**postgres.QUICK)
        yield server
        server.stop()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


async def texts(store: Store, conversation: str = "c") -> list[str]:
    return [message.text async for message in store.iter_messages(conversation)]


# Opening


def test_a_wrong_password() -> None:
    async def check() -> None:
        async with raw() as connection:
            await connection.execute(
                f"DROP ROLE IF EXISTS {PASSWORD_ROLE}; CREATE ROLE {PASSWORD_ROLE} LOGIN PASSWORD 'x'"
            )
        url = postgres.shared().url_of(f"{PASSWORD_ROLE}:very-secret")
        with pytest.raises(Denied, match="check the user and password") as caught:
            await connect(url)
        assert "very-secret" not in str(caught.value)

    play(check)


def test_a_database_that_is_not_there() -> None:
    async def check() -> None:
        with pytest.raises(ValidationError, match=r'"nowhere" does not exist.*create it'):
            await connect(postgres.shared().url_of("postgres", "nowhere"))

    play(check)


def test_no_server_at_all(tmp_path: Path) -> None:
    async def check() -> None:
        for url in (f"postgresql://postgres@/db?host={tmp_path}", "postgresql://postgres@127.0.0.1:1/db"):
            with pytest.raises(Unavailable) as caught:
                await connect(url)
            assert caught.value.outcome == "not_applied"
            assert caught.value.retryable

    play(check)


def test_no_rights_to_make_tables() -> None:
    async def check() -> None:
        async with raw() as connection:
            await connection.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
        base = postgres.shared().url_of("reader")
        with pytest.raises(Denied, match="GRANT"):
            await connect(postgres.with_schema(postgres.new_schema(), base))

    play(check)


def test_a_server_that_is_too_old_or_keeps_no_unicode() -> None:
    schema.check_server(schema.OLDEST, "UTF8", "here")
    with pytest.raises(FormatMismatch, match="is PostgreSQL 13: Hansard needs 14 or newer"):
        schema.check_server(13, "UTF8", "here")
    with pytest.raises(FormatMismatch, match="stores text as SQL_ASCII"):
        schema.check_server(18, "SQL_ASCII", "here")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("pool_sise=3", "did you mean 'pool_size'"),
        ("pool_size=none", "a whole number"),
        ("durability=some", "one of full, normal"),
        ("direct_url=mysql://x", "must be a postgresql:// URL"),
        (f"schema={'x' * 64}", "at most 63 bytes"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(query: str, words: str) -> None:
    async def check() -> None:
        with pytest.raises(ValidationError, match=words) as caught:
            await connect(f"postgresql://me:very-secret@localhost/db?{query}")
        assert "very-secret" not in str(caught.value)

    play(check)


# Writing where one may not


@pytest.mark.parametrize("rights", ["ALL", "SELECT"])
def test_where_one_may_only_read(url: str, rights: str) -> None:
    """A server set to read only, as a replica is; or a role that may not write."""

    async def check() -> None:
        async with connect(url) as store:
            await store.append_message("c", "user", "before")
        name = schema_of(url)
        role = f"role_{name}"
        async with raw() as connection:
            await connection.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {name} TO {role}")
            await connection.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {name} TO {role}")
            if rights == "ALL":
                await connection.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        async with connect(postgres.with_schema(name, postgres.shared().url_of(role))) as store:
            assert await texts(store) == ["before"]
            for write in (
                store.append_message("c", "user", "x"),
                store.append_message("new", "user", "x"),
                store.update_conversation("c", title="x"),
                store.delete_conversation("c"),
            ):
                with pytest.raises(Denied, match="read only" if rights == "ALL" else "GRANT"):
                    await write
            assert await texts(store) == ["before"]
        async with raw() as connection:
            await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")

    play(check)


def test_a_statement_that_takes_too_long(url: str) -> None:
    async def check() -> None:
        async with connect(url) as patient, connect(f"{url}&statement_timeout=2000") as store:
            await patient.append_message("c", "user", "before")
            async with raw() as connection, connection.transaction():
                await connection.execute(f"SELECT 1 FROM {schema_of(url)}.conversations FOR UPDATE")
                for write in (store.append_message("c", "user", "x"), store.update_conversation("c", title="x")):
                    with pytest.raises(TimedOut, match="statement_timeout") as caught:
                        await write
                    assert caught.value.outcome == "not_applied"
            await patient.append_message("c", "user", "after")
            assert await texts(patient) == ["before", "after"]

    play(check)


def test_all_connections_are_busy(url: str) -> None:
    async def check() -> None:
        async with connect(f"{url}&pool_size=1&connect_timeout=5000") as store:
            async with backend_of(store).storage.engine.pool.borrow():
                with pytest.raises(TimedOut, match="all 1 connections"):
                    await store.get_conversation("c")
            assert await store.get_conversation("c") is None

    play(check)


def test_a_value_that_no_index_takes(url: str) -> None:
    """An entry of an index is bounded, and so is an id; but who raises that limit meets the other."""

    async def check() -> None:
        async with connect(url, limits=hansard.Limits(id_bytes=100_000)) as store:
            long = "".join(f"{number}" for number in range(20_000))
            with pytest.raises(ValidationError, match="cannot store a value"):
                await store.append_message(long, "user", "x")
            assert (await store.stats()).conversations == 0

    play(check)


def test_a_value_that_is_refused_is_its_callers_matter(url: str) -> None:
    """Those whose appends were on the same statement do not hear of it."""

    async def check() -> None:
        async with connect(url) as store:
            long = "".join(f"{number}" for number in range(20_000))
            bad = [Message("assistant", "x", usage=hansard.Usage(1, model=long))]
            good = [Message("assistant", "x", usage=hansard.Usage(1, model="m"))]
            appends = [store.append(f"c{number}", bad if number == 5 else good) for number in range(10)]
            answers = await asyncio.gather(*appends, return_exceptions=True)
            refused = [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)]
            assert refused == [5]
            assert isinstance(answers[5], ValidationError)
            assert (await store.stats()).messages == 9

    play(check)


# Writers at the same place


def test_records_that_several_processes_count_up(url: str) -> None:
    """Whoever was slower is told so by a conflict, however many there are."""

    async def count_up(store: Store) -> None:
        done = 0
        while done < 10:
            record = await store.records.get(["n"], "k")
            assert record is not None
            with contextlib.suppress(Conflict):
                await store.records.put(["n"], "k", record.value + 1, expected_revision=record.revision)
                done += 1

    async def check() -> None:
        async with connect(url) as one, connect(url) as other:
            await one.records.put(["n"], "k", 0)
            await asyncio.gather(*(count_up(store) for store in (one, other) * 4))
            record = await one.records.get(["n"], "k")
            assert record is not None
            assert record.value == 80

    play(check)


# Lost connections


async def kill_all(connection: Any) -> int:
    pids = await sessions(connection)
    for pid in pids:
        await connection.execute("SELECT pg_terminate_backend($1, 5000)", pid)
    return len(pids)


def test_connections_that_were_killed_while_idle(own: Server) -> None:
    async def check() -> None:
        async with raw(own.url) as connection, connect(postgres.with_schema("idle", own.url)) as store:
            for round in range(3):
                await store.append_message("c", "user", str(round))
                assert len(await texts(store)) == round + 1
                assert await kill_all(connection) > 0
            assert await texts(store) == ["0", "1", "2"]

    play(check)


def test_an_append_that_the_driver_did_not_send_is_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection was just being told that it is over: nothing is in doubt."""

    async def check() -> None:
        async with connect(url) as store:
            await store.append_message("c", "user", "0")
            original, refusals = (
                PostgresConnection.one,
                [asyncpg.InternalClientError("cannot switch to state 11; another operation")],
            )

            async def refusing(self: PostgresConnection, name: str, *values: Any) -> Any:
                if refusals:
                    raise refusals.pop()
                return await original(self, name, *values)

            monkeypatch.setattr(PostgresConnection, "one", refusing)
            await store.append_message("c", "user", "1")
            assert await texts(store) == ["0", "1"]

    play(check)


def test_connections_that_are_killed_at_work(own: Server) -> None:
    """Calls finish, or say what may have become of them; what was acknowledged is there, once and in order."""

    async def check() -> None:
        stored: dict[str, list[str]] = {f"c{number}": [] for number in range(8)}
        unsure: set[str] = set()
        stop = asyncio.Event()

        async def write(store: Store, conversation: str) -> None:
            number = 0
            while not stop.is_set():
                id = f"{conversation}-{number}"
                try:
                    await store.append(conversation, Message("user", id, id=id if number % 2 else ""))
                    stored[conversation].append(id)
                    number += 1
                except Unavailable as error:
                    if error.outcome == "unknown":
                        unsure.add(id)
                        number += 1

        async with raw(own.url) as connection, connect(postgres.with_schema("work", own.url)) as store:
            writers = [asyncio.ensure_future(write(store, conversation)) for conversation in stored]
            for least in range(6, 66, 6):
                await coming(lambda least=least: sum(map(len, stored.values())) >= least)  # type: ignore[misc]
                await kill_all(connection)
            stop.set()
            await asyncio.gather(*writers)
            for conversation, ids in stored.items():
                found = await texts(store, conversation)
                assert [each for each in found if each not in unsure] == ids
                assert len(found) == len(set(found))
            assert await store.check() == []

    play(check)


async def kill_those_that_wait(connection: Any) -> None:
    """For this connection, that is: tests of other processes are on the same server, and wait for others."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    for row in await coming(lambda: connection.fetch(waiting)):
        await connection.execute("SELECT pg_terminate_backend($1, 5000)", row[0])


def test_an_append_whose_answer_is_lost(url: str) -> None:
    """One statement writes and commits: when it is cut off, nobody knows."""

    async def check() -> None:
        async with connect(url) as store, raw() as connection:
            await store.append_message("c", "user", "before")
            async with connection.transaction():
                await connection.execute(f"SELECT 1 FROM {schema_of(url)}.conversations FOR UPDATE")
                write = asyncio.ensure_future(store.append_message("c", "user", "lost"))
                await kill_those_that_wait(connection)
                with pytest.raises(Unavailable) as caught:
                    await write
                assert caught.value.outcome == "unknown"
            assert await texts(store) == ["before"]

    play(check)


def test_a_transaction_that_is_cut_off_before_its_commit_is_run_again(url: str) -> None:
    async def check() -> None:
        async with connect(url) as store, raw() as connection:
            await store.append_message("c", "user", "before")
            async with connection.transaction():
                await connection.execute(f"SELECT 1 FROM {schema_of(url)}.conversations FOR UPDATE")
                write = asyncio.ensure_future(store.update_conversation("c", title="kept"))
                await kill_those_that_wait(connection)
                await asyncio.sleep(0.05)
                assert not write.done()
            assert (await write).title == "kept"

    play(check)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_is_restarted_in_the_middle(own: Server, how: signal.Signals) -> None:
    async def check() -> None:
        place = f"restart_{how.name.lower()}"
        async with connect(postgres.with_schema(place, own.url)) as store:
            await store.append("c", [Message("user", str(number), id=f"a{number}") for number in range(3)])
            acknowledged, tried = 3, 3

            async def write() -> None:
                nonlocal acknowledged, tried
                while True:
                    number = tried
                    await store.append("c", Message("user", str(number), id=f"a{number}"))
                    tried, acknowledged = number + 1, acknowledged + 1

            writer = asyncio.ensure_future(write())
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own.stop, how)
            with pytest.raises(Unavailable):
                await writer
            with pytest.raises(Unavailable) as caught:
                await store.get_messages("c")
            assert caught.value.outcome == "not_applied"
            with pytest.raises(Unavailable) as caught:
                await store.append_message("c", "user", "while it is down")
            assert caught.value.outcome == "not_applied"
            await asyncio.to_thread(own.start, **postgres.QUICK)
            # The one that was on its way is retried, as a careful client does: it is there once.
            await store.append("c", Message("user", str(tried), id=f"a{tried}"))
            assert await texts(store) == [str(number) for number in range(tried + 1)]
            assert await store.check() == []

    play(check)


def test_a_cancelled_call_leaves_nothing_half_done(url: str) -> None:
    async def check() -> None:
        async with connect(f"{url}&pool_size=2") as store:
            await store.append_message("c", "user", "0")
            for number in range(60):
                calls = (
                    store.append("c", [Message("user", "x"), Message("user", "y")]),
                    store.update_conversation("c", title=str(number)),
                    store.get_messages("c"),
                )
                tasks = [asyncio.ensure_future(call) for call in calls]
                await asyncio.sleep(0.0002 * number)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await store.append_message("c", "user", "last")
            found = await texts(store)
            assert found[-1] == "last"
            assert found[1:-1] == ["x", "y"] * ((len(found) - 2) // 2)
            assert await store.check() == []

    play(check)


def test_a_full_disk() -> None:
    error = errors.translate(asyncpg.DiskFullError("could not extend file: No space left on device"), "here")
    assert isinstance(error, Unavailable)
    assert (error.outcome, error.retryable) == ("not_applied", True)
    assert "wrote nothing" in str(error)


# Closing


def test_after_closing(url: str) -> None:
    async def check() -> None:
        store = await connect(url)
        await store.append_message("c", "user", "x")
        await store.close()
        await store.close()
        for call in (store.get_messages("c"), store.append_message("c", "user", "y"), store.update_conversation("c")):
            with pytest.raises(Closed):
                await call

    play(check)


def test_what_is_on_its_way_is_finished_before_closing(url: str) -> None:
    async def check() -> None:
        store = await connect(url)
        writes = [asyncio.ensure_future(store.append_message(f"c{number}", "user", "x")) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*writes)
        async with connect(url) as again:
            assert (await again.stats()).conversations == 20

    play(check)


def test_old_and_silent_connections_are_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with connect(f"{url}&pool_size=1") as store, raw() as connection:
            pool: Pool = backend_of(store).storage.engine.pool
            await store.get_conversation("c")
            (first,) = pool._idle
            monkeypatch.setattr("hansard.backends.postgres.pool._LIFETIME", 0.0)
            await store.get_conversation("c")
            (second,) = pool._idle
            assert second is not first
            monkeypatch.undo()
            # Idle for long: asked before it is used.
            second.used_at -= 100
            pid = second.connection.get_server_pid()
            await connection.execute("SELECT pg_terminate_backend($1, 5000)", pid)
            await store.get_conversation("c")
            (third,) = pool._idle
            assert third.connection.get_server_pid() != pid

    play(check)


def test_a_call_that_is_cancelled_while_its_connection_is_tried_leaves_none_open(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        tried = asyncio.Event()

        async def silent(_: Any) -> bool:
            tried.set()
            await asyncio.sleep(60)
            return True

        async with connect(f"{url}&pool_size=1") as store:
            await store.get_conversation("c")
            (link,) = backend_of(store).storage.engine.pool._idle
            link.used_at -= 100
            with monkeypatch.context() as patched:
                patched.setattr("hansard.backends.postgres.pool._answers", silent)
                call = asyncio.create_task(store.get_conversation("c"))
                await tried.wait()
                call.cancel()
                await asyncio.wait([call])
            assert call.cancelled()
            assert link.connection.is_closed()
            assert await store.get_conversation("c") is None

    play(check)


def test_a_forked_child_is_told_to_open_its_own(url: str) -> None:
    async def check() -> None:
        async with connect(url) as store:
            await store.append_message("c", "user", "x")
            with warnings.catch_warnings():
                # Newer Pythons advise against a fork beside threads: this is what becomes of one.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                os._exit(_in_the_child(store))
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert await texts(store) == ["x"]

    play(check)


def _in_the_child(store: Store) -> int:
    """Steps the coroutines by hand: the event loop is the parent's."""
    try:
        store.get_messages("c").send(None)
    except Unavailable as error:
        refused = "before a fork" in str(error)
    else:
        return 1
    try:
        store.close().send(None)
    except StopIteration:
        return 0 if refused else 2
    return 3


# Tenants


def test_a_deletion_does_not_go_back_for_what_is_made_behind_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that did waited for each other, and one beside many writers came to no end."""
    monkeypatch.setattr(maintenance, "_TENANT_PAGE", 2)
    ask, pages = PostgresConnection.all, itertools.count(1)

    async def check() -> None:
        async with connect(url) as store, connect(url) as other:
            for id in ("b", "c", "d", "e", "f"):
                await store.append_message(id, "user", "x")

            async def late(self: PostgresConnection, name: str, *args: Any) -> Any:
                found = await ask(self, name, *args)
                if name.startswith("lock_") and next(pages) == 2:
                    await other.append_message("a", "user", "made behind it")
                return found

            with monkeypatch.context() as patch:
                patch.setattr(PostgresConnection, "all", late)
                receipt = await store.admin.delete_tenant("default")
            assert (receipt.conversations, receipt.messages) == (5, 5)
            assert await texts(store, "a") == ["made behind it"]
            assert [each.id for each in (await store.list_conversations()).items] == ["a"]
            assert await store.check() == []
            assert (await store.admin.delete_tenant("default")).conversations == 1

    play(check)
