"""Group commit, sharing, faults of the disk, and what really lies in the file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.wait import PATIENCE, coming

import hansard
import hansard.sync
from hansard.backends.sqlite import SqliteBackend, engine, index, schema, storage
from hansard.backends.sqlite.tail_cache import TailCache
from hansard.backends.sqlite.writer import SqliteWriter
from hansard.executor import run_in_thread


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(sql).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[hansard.sync.Store]:
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        yield store


def test_what_lies_in_the_file_is_what_was_said(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "Guten Tag\0 😀", id="m1")
    store.append_message("c", "assistant", [{"type": "text", "text": "hi"}], id="m2", format="anthropic")
    found = rows(path, "SELECT id, role, format, body, key & 1073741823 FROM messages ORDER BY key")
    assert found == [
        ("m1", "user", None, "Guten Tag\0 😀", 1),
        ("m2", "assistant", "anthropic", '[{"type":"text","text":"hi"}]', 2),
    ]
    assert rows(path, "SELECT message_count, version, seq FROM conversations") == [(2, 2, 2)]


@pytest.mark.parametrize(("durability", "value"), [("full", 2), ("normal", 1), ("off", 0)])
def test_durability_is_what_was_asked_for(path: Path, durability: str, value: int) -> None:
    backend = SqliteBackend(path, durability=durability, blocking=True)
    found = backend.storage.engine.write(lambda writer: writer.execute("PRAGMA synchronous").fetchone()[0])
    assert found == value
    assert backend.capabilities.durability == ("machine" if durability == "full" else "process")
    backend.storage.engine.close()


def test_concurrent_appends_share_commits(path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append_message("c0", "user", "first")
            backend = store.backend
            assert isinstance(backend, SqliteBackend)
            before = backend.storage.engine.commits

            async def task(number: int) -> None:
                for turn in range(10):
                    await store.append_message(f"c{number}", "user", str(turn))

            await asyncio.gather(*(task(number) for number in range(32)))
            return backend.storage.engine.commits - before, (await store.stats()).messages

    commits, messages = asyncio.run(run())
    assert messages == 321
    assert commits < 160


def test_a_refused_job_does_not_disturb_its_batch(path: Path) -> None:
    async def run() -> list[object]:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.create_conversation("c")
            calls = [store.append("c", [hansard.Message("user", str(n))]) for n in range(20)]
            calls.insert(7, store.append("missing", [hansard.Message("user", "x")], create=False))
            calls.insert(12, store.append("c", [hansard.Message("user", "x")], expected_version=99))
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [m.text for m in await store.get_messages("c", last=100)] == [str(n) for n in range(20)]
            return [answer for answer in answers if isinstance(answer, BaseException)]

    refused = asyncio.run(run())
    assert [type(error) for error in refused] == [hansard.ConversationNotFound, hansard.Conflict]


def test_a_change_after_an_append_in_one_transaction_keeps_its_counts(path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append_message("c", "user", "one")
            await store.branch("c")
            # These queue up while the first one commits, and so share a transaction.
            await asyncio.gather(
                *(store.append_message("c", "user", str(n)) for n in range(5)),
                store.update_conversation("c", title="t"),
            )
            assert await store.check() == []
            assert [branch.message_count for branch in await store.list_branches("c")] == [1, 6]

    asyncio.run(run())


def test_a_job_that_breaks_is_undone_and_the_others_stand(path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append_message("c", "user", "before")
            backend = store.backend
            assert isinstance(backend, SqliteBackend)

            def breaks(writer: SqliteWriter) -> None:
                writer.execute("UPDATE conversations SET version = 99")
                writer.execute("SELECT nonsense")

            answers = await asyncio.gather(
                store.append_message("c", "user", "one"),
                backend.storage.engine.submit(breaks),
                store.append_message("c", "user", "two"),
                return_exceptions=True,
            )
            assert isinstance(answers[1], hansard.Corrupt), "the tables are not those that Hansard made"
            assert [m.text for m in await store.get_messages("c")] == ["before", "one", "two"]
            conversation = await store.get_conversation("c")
            assert conversation is not None
            assert conversation.version == 3
            assert await store.check() == []

    asyncio.run(run())


def test_async_and_blocking_stores_of_one_file_share_a_writer(path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            # A blocking call inside the running loop must neither hang nor lose anything.
            with hansard.sync.connect(f"sqlite:///{path}") as blocking:
                assert blocking.backend.storage.engine is store.backend.storage.engine  # type: ignore[attr-defined]
                for turn in range(20):
                    later = asyncio.create_task(store.append_message("c", "user", f"a{turn}"))
                    blocking.append_message("c", "user", f"b{turn}")
                    await later
            assert len(await store.get_messages("c", last=100)) == 40
            assert await store.check() == []

    asyncio.run(run())


def test_threads_may_share_a_blocking_store(store: hansard.sync.Store) -> None:
    def write(number: int) -> None:
        for turn in range(25):
            store.append_message("c", "user", f"{number}:{turn}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [message.text for message in store.get_messages("c", last=1000)]
    assert len(texts) == 100
    for number in range(4):
        assert [text for text in texts if text.startswith(f"{number}:")] == [f"{number}:{turn}" for turn in range(25)]


def test_another_process_makes_the_cache_stale(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    script = (
        "import hansard.sync\n"
        f"with hansard.sync.connect('sqlite:///{path}') as store:\n"
        "    store.append_message('c', 'user', 'two', id='m2')\n"
        "    store.delete_conversation('d')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    store.append_message("c", "user", "three")
    assert [(m.seq, m.text) for m in store.get_messages("c")] == [(1, "one"), (2, "two"), (3, "three")]
    assert store.check() == []


def test_a_forked_child_is_told_to_open_its_own(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.append_message("c", "user", "from the child")
        except hansard.Unavailable as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    assert b"before a fork" in os.read(reading, 1000)
    os.close(reading)


def test_a_forked_child_can_close_what_its_parent_was_writing(path: Path, store: hansard.sync.Store) -> None:
    engine = store.backend.storage.engine  # type: ignore[attr-defined]
    with engine._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # a child that hangs on the lock of a thread that it does not have
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_who_is_told_after_a_commit_cannot_undo_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            backend = store.backend
            assert isinstance(backend, SqliteBackend)
            # A watcher whose loop was closed without a word.
            loop = asyncio.new_event_loop()
            loop.close()
            signals = backend.storage.engine.signals
            signals._marks["default", "c"] = 1
            signals._waiters["default", "c"] = {(loop, asyncio.Event())}
            ids = await asyncio.gather(*(store.append_message("c", "user", str(n)) for n in range(5)))
            assert [message.id for message in await store.get_messages("c")] == ids

    asyncio.run(run())


def test_a_cache_that_breaks_after_a_commit_does_not_repeat_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("not today")

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append_message("c", "user", "first")
            await store.get_messages("c", last=5)  # its rows are kept from now on
            with monkeypatch.context() as patch:
                patch.setattr(TailCache, "add", broken)
                appends = [store.append_message("c", "user", str(number)) for number in range(5)]
                told = await asyncio.gather(*appends, return_exceptions=True)
            outcomes = [each.outcome for each in told if isinstance(each, hansard.Unavailable)]
            assert outcomes == ["unknown"] * 5
            assert [message.text for message in await store.get_messages("c")] == ["first", *"01234"]
            await store.append_message("c", "user", "last")
            assert [message.text for message in await store.get_messages("c", last=2)] == ["4", "last"]

    asyncio.run(run())


def test_whatever_breaks_on_the_writing_thread_leaves_nobody_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def broken(*given: object) -> None:
        asked.append(given)
        raise MemoryError("not today")

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append("a", [hansard.Message("user", "x")])
            await store.append("b", [hansard.Message("user", "x")])
            with monkeypatch.context() as patch:
                # After the commit of several, and while nothing is to be written.
                patch.setattr(engine.SqliteEngine, "_truncate_wal", broken)
                patch.setattr(index, "index_some", broken)
                gone = await asyncio.wait_for(
                    asyncio.gather(*(store.delete_conversation(id) for id in "ab"), return_exceptions=True), PATIENCE
                )
                assert [type(each) for each in gone] == [hansard.Unavailable] * 2
                asked.clear()
                await store.append_message("c", "user", "y")
                await coming(lambda: asked)
            await asyncio.wait_for(store.append_message("c", "user", "z"), PATIENCE)
            assert await store.get_conversation("a") is None
            assert len(await store.search("z")) == 1

    asyncio.run(run())


def test_a_writing_thread_that_cannot_be_had_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(hansard.Unavailable, match="start new thread"):
                    await asyncio.wait_for(store.append_message("c", "user", "x"), PATIENCE)
            await asyncio.wait_for(store.append_message("c", "user", "y"), PATIENCE)
            assert [message.content for message in await store.get_messages("c")] == ["y"]

    asyncio.run(run())


def test_appends_beside_many_branches_save_only_their_own(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    for _ in range(30):
        store.branch("c")
    engine = store.backend.storage.engine  # type: ignore[attr-defined]
    before = engine._connection.total_changes
    store.append_message("c", "user", "two")
    # The message, its place in the queue of the search index, the conversation's counters, the count of one branch.
    assert engine._connection.total_changes - before == 4


def test_messages_wait_for_the_index_in_the_order_of_arrival(path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:

            async def append(id: str, count: int) -> None:
                await store.append(id, [hansard.Message("user", "x") for _ in range(count)])

            await append("c", 3)
            await append("d", 1)
            await append("d", 2)
            await append("c", 1)
            # These share a transaction.
            await asyncio.gather(append("d", 2), append("c", 2), append("d", 1))

    asyncio.run(run())
    found = rows(path, "SELECT message >> 30, message & 1073741823 FROM search_rows ORDER BY n")
    segments = [(1, 3), (2, 1), (2, 2), (1, 1), (2, 2), (1, 2), (2, 1)]
    seqs = {1: iter(range(1, 10)), 2: iter(range(1, 10))}
    assert found == [(segment, next(seqs[segment])) for segment, count in segments for _ in range(count)]


def test_what_was_deleted_is_physically_gone(path: Path, store: hansard.sync.Store) -> None:
    secret = "the launch code is 0000"
    store.append_message("c", "user", secret, id="m1", metadata={"note": "very secret metadata"})
    store.append_message("c", "user", "harmless")
    store.append_message("d", "user", secret + " again")
    assert store.delete_message("c", "m1").physically_gone
    assert store.delete_conversation("d").physically_gone
    lying = b"".join(each.read_bytes() for each in path.parent.iterdir())
    assert b"launch code" not in lying
    assert b"very secret" not in lying
    assert b"harmless" in lying


def test_a_reader_that_holds_on_makes_the_receipt_say_so(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "the launch code is 0000", id="m1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM messages").fetchone()
        receipt = store.delete_message("c", "m1")
        assert receipt.messages == 1
        assert not receipt.physically_gone


def test_a_locked_file_is_an_error_that_says_so(
    path: Path, store: hansard.sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append_message("c", "user", "one")
    store.backend.storage.engine._connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(hansard.TimedOut, match="locked") as caught:
            store.append_message("c", "user", "two")
        assert caught.value.outcome == "not_applied"
        other.execute("ROLLBACK")
    store.append_message("c", "user", "three")
    assert [message.text for message in store.get_messages("c")] == ["one", "three"]


def test_a_full_disk_is_an_error_and_loses_nothing(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    engine = store.backend.storage.engine  # type: ignore[attr-defined]
    pages = engine._connection.execute("PRAGMA page_count").fetchone()[0]
    engine._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(hansard.Unavailable, match="full") as caught:
        store.append_message("c", "user", "x" * 100_000)
    assert caught.value.outcome == "not_applied"
    assert [message.text for message in store.get_messages("c")] == ["one"]
    engine._connection.execute("PRAGMA max_page_count = 100000")
    store.append_message("c", "user", "two")
    assert store.check() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_file_is_denied(path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        store.append_message("c", "user", "one")
    path.chmod(0o444)
    with pytest.raises(hansard.Denied):
        hansard.sync.connect(f"sqlite:///{path}").append_message("c", "user", "two")


def test_a_connection_that_may_not_write_is_denied(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    engine = store.backend.storage.engine  # type: ignore[attr-defined]
    engine._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(hansard.Denied, match="cannot be written"):
        store.append_message("c", "user", "two")
    engine._connection.execute("PRAGMA query_only = OFF")
    assert [message.text for message in store.get_messages("c")] == ["one"]


def test_a_damaged_file_is_reported_never_skipped(path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        for number in range(200):
            store.append_message("c", "user", f"message number {number} " * 20)
    data = bytearray(path.read_bytes())
    place = data.find(b"message number 100 ")
    page = place // 4096 * 4096
    data[page : page + 100] = b"\xff" * 100
    path.write_bytes(data)
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        with pytest.raises(hansard.Corrupt):
            store.get_messages("c", last=200)
        assert store.check()


def test_a_body_that_cannot_be_decoded_is_reported_with_its_place(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", [1, 2, 3], id="m1")
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("UPDATE messages SET body = '[1, 2'")
    with pytest.raises(hansard.Corrupt, match="'m1'") as caught:
        store.get_messages("c")
    assert "'c'" in str(caught.value.where)
    assert [problem.where for problem in store.check()] == ["default/c"]


def test_a_wrong_count_is_found_by_check(path: Path, store: hansard.sync.Store) -> None:
    store.append_message("c", "user", "one")
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("UPDATE conversations SET message_count = 5")
    assert "message_count is 5" in store.check()[0].what


def test_a_backup_is_whole_while_others_write(path: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append("c", [hansard.Message("user", str(n)) for n in range(2000)])

            async def write() -> None:
                for n in range(100):
                    await store.append_message("d", "user", str(n))

            writing = asyncio.create_task(write())
            copy = await store.backup(tmp_path / "copy.db")
            await writing
            with pytest.raises(hansard.ValidationError, match="never overwrites"):
                await store.backup(copy)

    asyncio.run(run())
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert len(list(copy.iter_messages("c"))) == 2000
        assert copy.check() == []


def test_large_bodies_are_read_off_the_event_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as store:
            await store.append_message("small", "user", "x")
            await store.append_message("large", "user", "word " * 400_000)
            threads: list[str] = []

            async def spy(function: Callable[..., Any], *args: Any) -> Any:
                threads.append("off the loop")
                return await run_in_thread(function, *args)

            monkeypatch.setattr(storage, "run_in_thread", spy)
            for count in (10, 1_000_000):
                assert len(await store.get_messages("small", last=count)) == 1
            assert threads == []
            assert len((await store.get_messages("large", last=10))[0].text) == 2_000_000
            assert threads == ["off the loop"]

    asyncio.run(run())


def test_settings_are_ours(path: Path) -> None:
    with closing(schema.prepare(path, "full", upgrade=False)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (4000,)
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)
        assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
