"""What operations leave in the file: nothing when they are refused, and the same whichever way they are committed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import Message, Usage, sync
from hansard.backends.sqlite import SqliteBackend, SqliteStorage, transaction
from hansard.backends.sqlite.engine import WriteJob
from hansard.backends.sqlite.writer import SqliteWriter
from hansard.backends.stored import StoredBackend
from hansard.blocking import run_to_end
from hansard.contract.types import Append, Context, Draft, NewConversation, RecordWrite
from hansard.errors import Conflict, ConversationNotFound, HansardError
from hansard.rules import operations
from hansard.testing import Clock
from hansard.testing.contract.blobs import picture

CONTEXT = Context("default", Clock().now)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SqliteStorage]:
    storage = SqliteStorage(path, blocking=True)
    yield storage
    run_to_end(storage.close())


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(sql).fetchall()


def said(text: str, id: str | None = None, **options: Any) -> Append:
    draft = Draft(Message("user", text, id=id or "generated", format="text"), text, len(text), given_id=id is not None)
    return Append((draft,), NewConversation(), **options)


# The two ways of an append


def said_as(store: sync.Store, *messages: Message, id: str = "c", **options: Any) -> Callable[[], object]:
    return lambda: store.append(id, messages, **options)


def appends(store: sync.Store) -> Iterator[Callable[[], object]]:
    """Appends of every kind: most of them are plain, some ask what is stored, and some are refused."""
    say = partial(said_as, store)
    early = Clock().now - timedelta(days=3)
    yield say(Message("user", "first", id="a"))
    yield say(Message("user", "plain"), Message("assistant", "plain too"))
    yield say(Message("user", "given", id="b"), Message("user", "a long one " * 50, id="c"))
    yield say(Message("user", "given", id="b"), Message("user", "new", id="d"))
    yield say(Message("user", "other", id="b"), on_duplicate="error")
    yield say(Message("user", "twice", id="e", usage=Usage(input_tokens=1)), Message("user", "twice", id="e"))
    yield say(Message("assistant", "counted", usage=Usage(model="m", input_tokens=3, cost=0.5)))
    yield say(Message("user", "dated", created_at=early), Message("user", "pinned", pinned=True))
    yield say(Message("user", "too late"), expected_version=1)
    yield say(Message("user", "owned"), user_id="ann")
    yield say(Message("user", "owned again"), user_id="ann")
    yield say(Message("user", "not mine"), user_id="ben")
    yield lambda: store.user("ben").append("c", [Message("user", "unseen")])
    yield lambda: store.user("ann").append("c", [Message("user", "seen")])
    yield say(Message("user", picture(1), id="p", format="parts"))
    yield lambda: store.delete_message("c", "d").messages
    yield say(Message("user", "again", id="d"))
    yield say(Message("user", "again", id="d"), revive=True)
    yield say(Message("user", "nowhere"), branch="none")
    yield lambda: store.branch("c", at="c", branch_id="side").message_count
    yield say(Message("user", "on the side"))
    yield say(Message("user", "on main"), branch="main")
    yield say(Message("user", "new"), id="n", create=False)
    yield say(Message("user", "to be deleted"), id="d")
    yield lambda: store.delete_conversation("d").messages
    yield say(Message("user", "dated", id="f", created_at=early), id="d")
    yield say(Message("user", "anew"), Message("user", "dated", created_at=early), id="d", revive=True)
    yield say(Message("user", "dated", id="g", created_at=early), id="d")


def answers(store: sync.Store) -> list[object]:
    found: list[object] = []
    for append in appends(store):
        try:
            answer = append()
        except HansardError as error:
            answer = (type(error), str(error))
        found.append((answer.stored, answer.version) if isinstance(answer, hansard.Appended) else answer)
    return found


TABLES = {
    "conversations": "*",
    "branches": "*",
    "messages": "key, conversation, role, format, body, created_at, participant, scope, extra, pinned",
    "blob_uses": "*",
    "blobs": "*",
    "tombstones": "tenant, at",
    "usage": "*",
    "search_rows": "*",
}


def test_a_short_append_stores_what_the_operation_stores(tmp_path: Path) -> None:
    told, dumped = [], []
    for name in ("short", "operation"):
        path = tmp_path / f"{name}.db"
        backend: Any = SqliteBackend(path, blocking=True)
        if name == "operation":
            backend = StoredBackend(backend.storage)
        with sync.Store.over(backend, clock=Clock()) as store:
            told.append(answers(store))
            assert store.check() == []
        dumped.append({table: rows(path, f"SELECT {columns} FROM {table}") for table, columns in TABLES.items()})
    assert told[0] == told[1]
    assert dumped[0] == dumped[1]
    assert all(dumped[0].values())


def test_a_blob_that_was_put_before_belongs_to_the_message_that_is_appended(path: Path) -> None:
    with sync.Store.over(SqliteBackend(path, blocking=True), clock=Clock()) as store:
        store.append_message("d", "user", picture(1), format="parts")
        store.append_message("c", "user", "first")
        (message,) = store.get_messages("d")
        draft = run_to_end(SqliteBackend(path, blocking=True).read_rows(CONTEXT, "d", 0, 1, 1))[0].message
        assert draft.blobs
        body = msgspec.json.encode(draft.content).decode()
        again = Draft(msgspec.structs.replace(draft, id="x"), body, len(body), given_id=False)
        run_to_end(store.backend.append(CONTEXT, "c", Append((again,), None)))
        store.delete_conversation("d")
        assert store.get_messages("c")[-1].content == message.content
        assert store.check() == []


# Refusals


def test_a_refused_job_that_has_read_leaves_its_group_whole(storage: SqliteStorage) -> None:
    engine = storage.engine

    def add(id: str, append: Append) -> WriteJob[Any]:
        return WriteJob(lambda writer: transaction.append(writer, CONTEXT, id, append))

    run_to_end(storage.append(CONTEXT, "c", said("first", "m0")))
    jobs = [
        add("c", said("one", "m1")),
        add("c", said("other", "m0", on_duplicate="error")),
        add("c", said("two", "m2", expected_version=9)),
        add("none", said("three", "m3", expected_version=9)),
        add("c", said("four", "m4")),
    ]
    before = engine.commits
    engine._execute(jobs)
    assert engine.commits == before + 1
    assert [type(job.error) for job in jobs] == [type(None), Conflict, Conflict, Conflict, type(None)]
    found = rows(engine.path, "SELECT id FROM messages ORDER BY key")
    assert [id for (id,) in found] == ["m0", "m1", "m4"]
    assert rows(engine.path, "SELECT message_count, version, seq FROM conversations") == [(3, 3, 3)]


def test_a_refused_operation_takes_no_line(path: Path) -> None:
    with sync.Store.over(SqliteBackend(path, blocking=True)) as store:
        store.append_message("c", "user", "x", id="m")
        before = rows(path, "SELECT seq FROM sqlite_sequence")
        for refused in (
            lambda: store.branch("c", at="m", branch_id="main"),
            lambda: store.append_message("d", "user", "x", expected_version=7),
            lambda: store.create_conversation("c"),
        ):
            with pytest.raises(Conflict):
                refused()
        assert rows(path, "SELECT seq FROM sqlite_sequence") == before


# Lines


def used_lines(path: Path) -> list[int]:
    """All lines that branches own or read."""
    found = rows(path, "SELECT line, path FROM branches")
    return [segment for segment, _ in found] + [
        segment for _, read in found if read for segment, _ in msgspec.json.decode(read)
    ]


def test_a_line_is_never_given_twice(tmp_path: Path) -> None:
    """Two engines, which know nothing of each other's caches, take turns."""
    path, seen = tmp_path / "a.db", 0
    url = f"sqlite:///{path}"
    with sync.connect(url) as one, sync.connect(f"{url}?durability=normal") as two:
        for number in range(6):
            for store in (one, two):
                id = f"{number}-{store is one}"
                store.append(id, [Message("user", f"{n}", id=f"{n}") for n in range(4)])
                store.branch(id, at="1", branch_id="side")
                store.append_message(id, "user", "there")
                store.branch(id, branch_id="deep")
                store.pop_message(id, branch="side")
                store.replace_messages(id, [Message("user", "anew")], branch="main")
                (last,) = rows(path, "SELECT seq FROM sqlite_sequence WHERE name = 'branches'")[0]
                assert seen < min(rows(path, f"SELECT line FROM branches WHERE line > {seen}"))[0]
                assert max(used_lines(path)) <= last
                seen = last
                store.delete_conversation(f"{number - 1}-{store is one}")
        assert one.check() == []


def test_a_copied_line_that_no_branch_owns_is_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as source, sync.connect(f"sqlite:///{path}") as target:
        source.append("c", [Message("user", f"{n}", id=f"{n}") for n in range(4)])
        source.branch("c", branch_id="side")
        # The main branch goes on another line than the one that it shares with the other.
        source.pop_message("c", branch="main")
        source.copy_to(target)
        (last,) = rows(path, "SELECT seq FROM sqlite_sequence WHERE name = 'branches'")[0]
        assert max(used_lines(path)) <= last
        target.append_message("d", "user", "x")
        assert rows(path, "SELECT line FROM branches ORDER BY line DESC LIMIT 1") == [(last + 1,)]
        assert target.check() == []
        for branch in ("main", "side"):
            assert target.get_messages("c", branch=branch) == source.get_messages("c", branch=branch)


# What the writer remembers


def test_a_deletion_by_another_engine_is_not_undone_by_a_replay(tmp_path: Path) -> None:
    url, old = f"sqlite:///{tmp_path / 'a.db'}", Clock().now - timedelta(days=1)
    with sync.connect(url, clock=Clock()) as one, sync.connect(f"{url}?durability=normal", clock=Clock()) as two:
        for number in range(2):
            one.append("c", [Message("user", "dated", created_at=old)], revive=number > 0)
            one.append("c", [Message("user", "dated", created_at=old)], revive=number > 0)
            two.delete_conversation("c")
            with pytest.raises(Conflict, match="was deleted at"):
                one.append("c", [Message("user", "dated", created_at=old)])


@pytest.mark.parametrize("how", ["by a purge, in time", "with the tenant"])
def test_a_forgotten_deletion_no_longer_refuses_a_replay(path: Path, how: str) -> None:
    now = [Clock().now]
    dated = Message("user", "dated", created_at=now[0] - timedelta(days=1))
    with sync.Store.over(SqliteBackend(path, blocking=True), clock=lambda: now[0]) as store:
        store.append("c", [dated])
        store.delete_conversation("c")
        with pytest.raises(Conflict, match="was deleted at"):
            store.append("c", [dated])
        if how == "with the tenant":
            store.admin.delete_tenant("default")
        else:
            now[0] += timedelta(days=91)
            store.purge()
        assert store.append("c", [dated]).stored == 1


def test_a_message_that_grows_in_progress_counts_as_the_largest(path: Path) -> None:
    """Readers bound what they read by it, in other processes too."""
    with sync.Store.over(SqliteBackend(path, blocking=True)) as store:
        store.append_message("c", "assistant", "He", id="p", status="in_progress")
        store.update_message("c", "p", content="Hello " * 100)
        assert rows(path, "SELECT largest, version FROM conversations") == [(600, 1)]


# Records in the same commit


def test_records_are_written_with_an_append_or_not_at_all(storage: SqliteStorage) -> None:
    def write(id: str, append: Append, *records: RecordWrite) -> object:
        return run_to_end(
            storage.write(
                CONTEXT, id, partial(operations.append, append=msgspec.structs.replace(append, records=records))
            )
        )

    own, free = RecordWrite(("a",), "own", 1, conversation_id="c"), RecordWrite(("a",), "free", [2])
    write("c", said("one"), own, free)
    keys = [(("a",), "own"), (("a",), "free")]
    found = run_to_end(storage.get_records(CONTEXT, keys))
    assert [(each.value, each.revision, each.conversation_id) for each in found if each] == [
        (1, 1, "c"),
        ([2], 1, None),
    ]
    with pytest.raises(Conflict):
        write("c", said("two", "m2"), free, msgspec.structs.replace(own, expected_revision=7))
    with pytest.raises(ConversationNotFound):
        write("d", msgspec.structs.replace(said("two"), new=None), free)
    assert rows(storage.path, "SELECT count(*) FROM messages") == [(1,)]
    assert run_to_end(storage.get_records(CONTEXT, keys)) == found
    write("c", said("two", "m2"), msgspec.structs.replace(free, delete=True))
    run_to_end(storage.write(CONTEXT, "c", partial(operations.delete_conversation, expected_version=None)))
    assert run_to_end(storage.get_records(CONTEXT, keys)) == [None, None]


def test_what_breaks_inside_an_operation_is_undone(storage: SqliteStorage) -> None:
    async def breaks(tx: Any) -> None:
        await operations.append(tx, said("never"))
        raise Conflict("too late")

    run_to_end(storage.append(CONTEXT, "c", said("one")))

    def run(writer: SqliteWriter) -> None:
        run_to_end(breaks(transaction.SqliteTransaction(writer, CONTEXT, "c", writer.load("default", "c"))))

    jobs: list[WriteJob[Any]] = [
        WriteJob(run),
        WriteJob(lambda writer: transaction.append(writer, CONTEXT, "c", said("two", "m2"))),
    ]
    storage.engine._execute(jobs)
    assert isinstance(jobs[0].error, Conflict)
    assert rows(storage.path, "SELECT body FROM messages ORDER BY key") == [("one",), ("two",)]
    assert rows(storage.path, "SELECT message_count, version, seq FROM conversations") == [(2, 2, 2)]
