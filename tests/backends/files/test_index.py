"""The index may be lost, stale, damaged or unusable: answers stay right."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.backends.files import kit

from hansard import Limits, Message, Participant, TimedOut, Unavailable, sync
from hansard.backends.files import FilesBackend, catalog, journals, line_format, search
from hansard.backends.files.index import TenantIndex
from hansard.backends.files.records import RecordJournal
from hansard.backends.files.replay import JournalReplay
from hansard.backends.files.rows import QUERIES
from hansard.backends.files.tenant import SharedResources, Tenant
from hansard.backends.files.tenant_log import TenantLogState
from hansard.store.core import utc_now
from hansard.testing import Clock, state


def index_of(root: Path, tenant: str = "default") -> Path:
    return root / tenant / "_cache" / "index.sqlite"


def fill(root: Path) -> object:
    with kit.connect(root, Clock()) as store:
        for number in range(150):
            store.append_message(
                f"c{number}", "user", f"in {number}", user_id=f"u{number % 3}", agent_id=f"a{number % 4}"
            )
        return state(store)


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Changes lines and recomputes their checksums."""
    found = [line[: line.rindex(b',"check"')] + b"}" for line in path.read_bytes().splitlines()]
    changed = [line.replace(old, new) for line in found]
    assert changed != found
    path.write_bytes(b"".join(line_format.make_line(line, number) for number, line in enumerate(changed, 1)))


# --- losing the index -------------------------------------------------------------------------------------------------


def damage(path: Path, at: int = 5000) -> None:
    content = bytearray(path.read_bytes())
    for page in range(at, len(content), 4096):
        content[page : page + 900] = b"\xa5" * len(content[page : page + 900])
    path.write_bytes(bytes(content))


def set_format(path: Path, number: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")


def spoil_rows(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE conversations SET head = '[nonsense'")


def spoil_places(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE messages SET offset = offset + 1")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def block(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"in the way")


LOSSES: dict[str, Callable[[Path], object]] = {
    "no cache": lambda tenant: shutil.rmtree(tenant / "_cache"),
    "no index": lambda tenant: (tenant / "_cache" / "index.sqlite").unlink(),
    "an empty index": lambda tenant: (tenant / "_cache" / "index.sqlite").write_bytes(b""),
    "no database": lambda tenant: (tenant / "_cache" / "index.sqlite").write_bytes(b"no database " * 1000),
    "a damaged index": lambda tenant: damage(tenant / "_cache" / "index.sqlite"),
    "half an index": lambda tenant: cut(tenant / "_cache" / "index.sqlite"),
    "nonsense in its rows": lambda tenant: spoil_rows(tenant / "_cache" / "index.sqlite"),
    "wrong places of messages": lambda tenant: spoil_places(tenant / "_cache" / "index.sqlite"),
    "an older format": lambda tenant: set_format(tenant / "_cache" / "index.sqlite", -1),
    "a newer format": lambda tenant: set_format(tenant / "_cache" / "index.sqlite", 99),
    "a file in the place of its folder": lambda tenant: block(tenant / "_cache"),
    "no locks": lambda tenant: shutil.rmtree(tenant / "_locks"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losing_the_index_changes_no_answer(tmp_path: Path, loss: str) -> None:
    expected = fill(tmp_path)
    LOSSES[loss](tmp_path / "default")
    with kit.connect(tmp_path, Clock()) as store:
        assert state(store) == expected
        store.append_message("c7", "user", "more")
        store.update_conversation("c6", agent_id="a0")
        store.delete_conversation("c9")
        assert kit.contents(store, "c7") == ["in 7", "more"]
        assert len(store.list_conversations(agent_id="a0", limit=100).items) == 39
        assert store.check() == []


@pytest.mark.parametrize("loss", ["no cache", "no index"])
def test_losing_the_index_under_an_open_store_changes_no_answer(tmp_path: Path, loss: str) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store, kit.connect(tmp_path) as other:
        assert other.list_conversations(limit=1).items
        LOSSES[loss](tmp_path / "default")
        store.append_message("c3", "user", "newest")
        assert other.list_conversations(limit=1).items[0].id == "c3"
        other.append_message("c5", "user", "newest")
        assert store.list_conversations(limit=1).items[0].id == "c5"


def test_an_index_of_a_newer_format_is_not_changed(tmp_path: Path) -> None:
    fill(tmp_path)
    set_format(index_of(tmp_path), 99)
    before = index_of(tmp_path).read_bytes()
    with kit.connect(tmp_path) as store:
        store.append_message("c3", "user", "newest")
        assert store.list_conversations(limit=1).items[0].id == "c3"
    assert index_of(tmp_path).read_bytes() == before


def test_files_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    fill(tmp_path)
    cache = tmp_path / "default" / "_cache"
    shutil.rmtree(cache)
    (cache / "index").mkdir(parents=True)
    for name in ("changes.log", "catalog.json", "index/c.index"):
        (cache / name).write_bytes(b"old")
    with kit.connect(tmp_path) as store:
        assert len(store.list_conversations(limit=100).items) == 100
    assert sorted(path.name for path in cache.iterdir()) == ["behind", "index.sqlite"]


def test_lines_in_the_index_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    read: list[bytes] = []
    real = JournalReplay.apply

    def apply(replay: JournalReplay, line: bytes, at: int) -> None:
        read.append(line)
        real(replay, line, at)

    monkeypatch.setattr(JournalReplay, "apply", apply)
    with kit.connect(tmp_path) as store:
        assert len(store.list_conversations(user_id="u1", limit=50).items) == 50
        assert kit.contents(store, "c7") == ["in 7"]
        assert read == []
        store.append_message("c7", "user", "more")
        assert len(read) == 1


def test_little_memory_changes_no_answer(tmp_path: Path) -> None:
    expected = fill(tmp_path)
    common = SharedResources(tmp_path, durable=False, snapshots=False, timeout=10)
    common.spaces._max_weight = common.tenants._max_weight = 1
    with sync.Store.over(FilesBackend(common, blocking=True)) as store:
        assert state(store) == expected
        for number in range(20):
            store.append_message(f"c{number}", "user", "more")
            store.user(f"u{number}").records.put(["n"], "k", number)
            store.tenant(f"t{number}").append_message("c", "user", "x")
        assert [len(cache.values()) for cache in (common.tenants, common.spaces)] == [1, 1]
        assert kit.contents(store, "c3") == ["in 3", "more"]
        assert len(store.admin.tenants()) == 21


# --- changes by others ------------------------------------------------------------------------------------------------


def test_a_journal_edited_by_hand_is_read_at_once(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "first word")
        store.append_message("c", "user", "second word")
        assert kit.contents(store, "c") == ["first word", "second word"]
        kit.let_time_pass()
        for old, new in ((b"first word", b"third word"), (b"second word", b"a word that is longer")):
            edit(kit.journal(tmp_path, "c"), old, new)
            assert new.decode() in kit.contents(store, "c")
        kit.journal(tmp_path, "c").unlink()
        assert store.get_conversation("c") is None
        assert store.list_conversations().items == [], "reading it has updated the index"


def test_a_journal_edited_by_hand_is_listed_after_the_next_opening(tmp_path: Path) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store:
        store.update_conversation("c1", title="before")
        store.list_conversations()
        kit.let_time_pass()
        edit(kit.journal(tmp_path, "c1", "a1"), b'"before"', b'"by hand"')
        kit.journal(tmp_path, "c2", "a2").unlink()
    with kit.connect(tmp_path) as store:
        titles = {each.id: each.title for each in store.list_conversations(user_id="u1", limit=100).items if each.title}
        assert titles == {"c1": "by hand"}
        assert len(store.list_conversations(user_id="u2", limit=100).items) == 49


def test_a_journal_added_or_removed_by_hand(tmp_path: Path) -> None:
    fill(tmp_path)
    elsewhere = tmp_path / "aside.jsonl"
    kit.journal(tmp_path, "c0", "a0").rename(elsewhere)
    with kit.connect(tmp_path) as store:
        assert store.get_conversation("c0") is None
        assert len(store.list_conversations(user_id="u0", limit=100).items) == 49
    elsewhere.rename(kit.journal(tmp_path, "c0", "a2"))
    with kit.connect(tmp_path) as store:
        assert kit.contents(store, "c0") == ["in 0"]
        assert len(store.list_conversations(user_id="u0", limit=100).items) == 50
        store.append_message("c0", "user", "back")
    assert kit.journal(tmp_path, "c0", "a0").exists(), "a writer moves it to its folder"


def test_a_listing_sees_what_another_handle_writes(tmp_path: Path) -> None:
    clock = Clock()
    with kit.connect(tmp_path, clock) as store, kit.connect(tmp_path, clock, mode="snapshot") as other:

        def check() -> None:
            assert [each.id for each in other.list_conversations().items] == [
                each.id for each in store.list_conversations().items
            ]

        for number in range(6):
            (store, other)[number % 2].append_message(f"c{number}", "user", "x")
            check()
        other.append_message("c1", "user", "again")
        check()
        assert store.list_conversations(limit=1).items[0].id == "c1"
        store.update_conversation("c3", archived=True)
        check()
        store.delete_conversation("c2")
        check()
        store.admin.delete_tenant("default")
        check()
        other.append_message("new", "user", "x")
        check()


# --- a writer that stops between the journal and the index ------------------------------------------------------------

KILLED = """
import base64, os, sys
from hansard import Limits, Message, sync
from hansard.backends.files.index import TenantIndex
store = sync.connect(sys.argv[1], limits=Limits(blob_bytes=64))
def die(*_, **__):
    os._exit(7)
TenantIndex.mark = die
store.append("c", [Message("user", sys.argv[2])])
"""


def kill(root: Path, content: str) -> None:
    """A process appends a message and is killed before the index has it."""
    command = [sys.executable, "-c", KILLED, f"file://{root}?durability=process", content]
    assert subprocess.run(command, check=False, timeout=60).returncode == 7


def test_a_kill_between_journal_and_index_is_repaired_by_a_reader(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        store.append_message("d", "user", "x")
        assert store.list_conversations(limit=1).items[0].id == "d"
        kill(tmp_path, "two")
        assert kit.contents(store, "c") == ["one", "two"]
        assert store.list_conversations(limit=1).items[0].id == "c"
        kill(tmp_path, "three")
        store.append_message("c", "user", "four")
        assert kit.contents(store, "c") == ["one", "two", "three", "four"]
        assert store.check() == []


def test_a_kill_between_journal_and_index_is_repaired_by_the_next_opening(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        store.append_message("d", "user", "x")
    kill(tmp_path, "two")
    with kit.connect(tmp_path) as store:
        assert [each.id for each in store.list_conversations().items] == ["c", "d"]
        assert store.stats().messages == 3


def test_a_blob_that_only_a_journal_refers_to_stays(tmp_path: Path) -> None:
    picture = "QUJD" * 40
    with kit.connect(tmp_path, limits=Limits(blob_bytes=64)) as store:
        store.append("c", [Message("user", "x")])
        store.append("d", [Message("user", picture)])
        assert store.stats().blobs == 1
        kill(tmp_path, picture)
        assert store.delete_conversation("d").blobs == 0, "c refers to it"
        assert kit.contents(store, "c") == ["x", picture]
        assert store.delete_conversation("c").blobs == 1


# --- check ------------------------------------------------------------------------------------------------------------

SPOILED = {
    "an offset": ("UPDATE messages SET offset = offset + 1 WHERE id = 'm2'", "default/c: the index differs from"),
    "a missing message": ("DELETE FROM messages WHERE id = 'm2'", "default/c: the index differs from"),
    "a state": ("UPDATE conversations SET head = replace(head, 'plain', 'other')", "default/c: the index differs from"),
    "nonsense": ("UPDATE conversations SET head = '[nonsense' WHERE name = 'c'", "index.sqlite: the index is damaged"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_check_reports_an_index_that_differs(tmp_path: Path, how: str) -> None:
    sql, expected = SPOILED[how]
    with kit.connect(tmp_path) as store:
        store.create_conversation("c", title="plain")
        store.append("c", [Message("user", str(number), id=f"m{number}") for number in range(3)])
        store.append_message("d", "user", "x")
        assert store.check() == []
        store.list_conversations()
        assert store.check() == []
        with contextlib.closing(sqlite3.connect(index_of(tmp_path), isolation_level=None)) as connection:
            connection.execute(sql)
        (problem,) = store.check()
        assert expected in f"{problem.where}: {problem.what}"
        assert "hansard reindex" in problem.what
        list(store.admin.reindex())
        assert store.check() == []


def test_a_check_reports_an_index_that_is_behind(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        store.list_conversations()
        kill(tmp_path, "two")
        (problem,) = store.check()
        assert (problem.where, "is behind" in problem.what) == ("default/c", True)
        list(store.admin.reindex())
        assert store.check() == []


# --- lines that are not in the index yet ------------------------------------------------------------------------------

KILLED_LATER = """
import os, sys
from hansard import sync
store = sync.connect(sys.argv[1])
for number in range(3):
    store.append_message("c", "user", f"more {number}")
os._exit(7)
"""


def marks(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "default" / "_cache" / "behind").iterdir())


def test_lines_of_a_killed_writer_are_listed_at_once(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        store.append_message("d", "user", "x")
        assert store.list_conversations(limit=1).items[0].id == "d"
        assert marks(tmp_path) == []
        command = [sys.executable, "-c", KILLED_LATER, f"file://{tmp_path}?durability=process"]
        assert subprocess.run(command, check=False, timeout=60).returncode == 7
        assert marks(tmp_path) == ["c"]
        assert store.list_conversations(limit=1).items[0].message_count == 4
        assert marks(tmp_path) == []
        assert found(store, "more") == ["more 0", "more 1", "more 2"]


def test_data_that_another_process_deleted_does_not_come_back(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store, kit.connect(tmp_path) as other:
        store.append_message("c", "user", "one")
        store.append_message("d", "user", "x")
        assert other.delete_conversation("c")
        assert [each.id for each in store.list_conversations().items] == ["d"]
        store.append_message("d", "user", "y")
        other.admin.delete_tenant("default")
        other.append_message("e", "user", "x")
        store.append_message("f", "user", "x")
    with kit.connect(tmp_path) as store:
        assert {each.id for each in store.list_conversations().items} == {"e", "f"}


def test_the_index_is_updated_after_many_writes(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        for number in range(journals._UNSAVED + 10):
            store.append_message(f"c{number % 7}", "user", str(number))
        with contextlib.closing(sqlite3.connect(index_of(tmp_path))) as connection:
            (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
        assert journals._UNSAVED - 7 <= count < journals._UNSAVED + 10
        assert store.stats().messages == journals._UNSAVED + 10


def test_a_mark_that_cannot_be_written_fails_no_write(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        assert len(store.list_conversations().items) == 1
        block(tmp_path / "default" / "_cache" / "behind")
        store.append_message("d", "user", "x")
        assert {each.id for each in store.list_conversations().items} == {"c", "d"}


# --- an index that cannot be written ----------------------------------------------------------------------------------


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write to the index fails, as on a full disk."""
    real = TenantIndex.writing

    @contextlib.contextmanager
    def fail(index: TenantIndex) -> Iterator[sqlite3.Connection]:
        with real(index) as connection:
            if not index._current().is_private:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            yield connection

    monkeypatch.setattr(TenantIndex, "writing", fail)


def test_an_index_that_cannot_be_written_fails_no_write(tmp_path: Path, unwritable: None) -> None:
    with kit.connect(tmp_path) as store:
        for number in range(3):
            store.append_message("c", "user", f"{number}", id=f"m{number}")
        store.append_message("d", "user", "x")
        assert kit.contents(store, "c") == ["0", "1", "2"]
        assert {each.id for each in store.list_conversations().items} == {"c", "d"}
        store.delete_message("c", "m1")
        assert store.delete_conversation("d")
        assert kit.contents(store, "c") == ["0", "2"]
        assert store.check() == []


def test_a_private_index_follows_what_others_write(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    with kit.connect(tmp_path / "store") as store:
        store.append_message("c", "user", "one")
        cache = tmp_path / "store" / "default" / "_cache"
        block(cache)
        with kit.connect(tmp_path / "store") as other:
            assert kit.contents(other, "c") == ["one"]
            for number in range(3):
                store.append_message(f"d{number}", "user", "x")
                assert other.list_conversations(limit=1).items[0].id == f"d{number}"
            store.delete_conversation("d1")
            assert {each.id for each in other.list_conversations().items} == {"c", "d0", "d2"}


def test_processes_that_wait_too_long_for_the_index_still_write(tmp_path: Path) -> None:
    with kit.connect(tmp_path, timeout="1") as store:
        store.append_message("c", "user", "one")
        with contextlib.closing(sqlite3.connect(index_of(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.append_message("c", "user", "two")
        assert kit.contents(store, "c") == ["one", "two"]
        assert store.list_conversations().items[0].message_count == 2


# --- deleting ---------------------------------------------------------------------------------------------------------

DELETIONS: dict[str, Callable[[sync.Store], object]] = {
    "a summary": lambda store: store.delete_message("c", "0"),
    "the conversation": lambda store: store.delete_conversation("c"),
    "the tenant": lambda store: store.admin.delete_tenant("default"),
}


@pytest.mark.parametrize("how", DELETIONS)
def test_deleted_data_is_in_no_index(tmp_path: Path, how: str) -> None:
    """Neither at once, nor after another process that had it in memory closes."""
    with kit.connect(tmp_path) as store:
        store.append("c", [Message("user", str(number), id=str(number)) for number in range(30)])
        store.append_message("d", "user", "x")
        store.add_summary("c", "She told her PIN. " * 100, from_seq=1, to_seq=3)
        with kit.connect(tmp_path) as other:
            assert other.list_conversations().items
            DELETIONS[how](other)
            assert b"PIN" not in kit.everything(tmp_path)
        assert b"PIN" not in kit.everything(tmp_path)
    assert b"PIN" not in kit.everything(tmp_path)


def test_a_purge_removes_old_titles_from_the_index(tmp_path: Path) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store:
        store.update_conversation("c7", title="a title to forget")
        store.update_conversation("c7", title="another")
        store.delete_conversation("c7")
        store.purge()
        assert b"a title to forget" not in kit.everything(tmp_path)


def test_the_latest_deletion_counts_whatever_the_order_of_lines() -> None:
    state, now = TenantLogState(), utc_now()
    for at in (now, now - timedelta(hours=1)):
        line = line_format.make_line(b'{"tombstones":{"d":"%b"}}' % at.isoformat().encode(), 1)
        state.apply(line, 0)
    assert state.tombstones == {"d": now}


def test_a_deletion_that_a_lock_interrupts_is_reported_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
        store.records.put(["n"], "k", 1, conversation_id="c")

        def busy(*_: object) -> int:
            raise TimedOut("another writer has held the records for too long")

        monkeypatch.setattr(RecordJournal, "delete_conversation_records", busy)
        with pytest.raises(Unavailable) as caught:
            store.delete_conversation("c")
        assert caught.value.outcome == "unknown"
        monkeypatch.undo()
        assert store.get_conversation("c") is None
        store.purge()
        assert store.check() == []
        assert store.records.get(["n"], "k") is None


def test_a_journal_of_a_newer_format_keeps_blobs_but_fails_no_deletion(tmp_path: Path) -> None:
    picture = "QUJD" * 40
    with kit.connect(tmp_path, limits=Limits(blob_bytes=64)) as store:
        store.append("c", [Message("user", picture)])
        store.append("d", [Message("user", "x")])
        edit(kit.journal(tmp_path, "d"), b'"hansard":1', b'"hansard":9')
        receipt = store.delete_conversation("c")
        assert (receipt.conversations, receipt.blobs) == (1, 0), "d may refer to the blob"


# --- search -----------------------------------------------------------------------------------------------------------


def found(store: sync.Store, query: str) -> list[str]:
    return sorted(hit.message.text for hit in store.search(query, limit=100))


@pytest.mark.parametrize("loss", LOSSES)
def test_losing_the_index_changes_no_search(tmp_path: Path, loss: str) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store:
        assert found(store, "17 OR 18") == ["in 17", "in 18"]
    LOSSES[loss](tmp_path / "default")
    with kit.connect(tmp_path) as store:
        assert found(store, "17 OR 18") == ["in 17", "in 18"]
        store.append_message("c3", "user", "in 17 as well")
        assert found(store, "17") == ["in 17", "in 17 as well"]


def test_a_search_finds_what_another_handle_wrote_at_once(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store, kit.connect(tmp_path, mode="snapshot") as other:
        for number in range(5):
            writer, reader = (store, other)[:: (-1) ** number]
            writer.append_message("c", "user", f"parcel {number}", id=f"m{number}")
            assert len(found(reader, "parcel")) == number + 1
        store.update_message("c", "m1", content="letter")
        assert found(other, "letter") == ["letter"]
        assert len(found(other, "parcel")) == 4
        other.delete_message("c", "m2")
        assert found(store, "parcel") == ["parcel 0", "parcel 3", "parcel 4"]


def test_a_rewritten_journal_is_not_analysed_again(tmp_path: Path) -> None:
    with kit.connect(tmp_path, mode="snapshot") as store:
        for number in range(20):
            store.append_message("c", "user", f"parcel {number}", id=f"m{number}")
        assert len(found(store, "parcel")) == 20
        store.append_message("c", "user", "parcel 20")
    with contextlib.closing(sqlite3.connect(index_of(tmp_path))) as connection:
        (indexed,) = connection.execute("SELECT indexed FROM search_state").fetchone()
        (last,) = connection.execute("SELECT max(n) FROM messages").fetchone()
    assert (last, indexed) == (21, 20)


def test_a_journal_edited_by_hand_is_found_after_a_reindex(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "a parcel")
        assert found(store, "parcel") == ["a parcel"]
        kit.let_time_pass()
        edit(kit.journal(tmp_path, "c"), b"a parcel", b"a letter")
        assert list(store.admin.reindex())[-1] == 1
        assert (found(store, "parcel"), found(store, "letter")) == ([], ["a letter"])


def test_terms_of_another_version_are_made_again(tmp_path: Path) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store:
        assert found(store, "17") == ["in 17"]
    with contextlib.closing(sqlite3.connect(index_of(tmp_path), isolation_level=None)) as connection:
        connection.execute("UPDATE search SET words = 'nonsense'")
        connection.execute("UPDATE search_state SET version = 1")
    with kit.connect(tmp_path) as store:
        assert found(store, "17") == ["in 17"]
        assert found(store, "nonsense") == []


@pytest.mark.parametrize("how", ["a message", "the conversation", "all messages"])
def test_the_words_of_deleted_messages_are_in_no_index(tmp_path: Path, how: str) -> None:
    with kit.connect(tmp_path) as store:
        for number in range(30):
            store.append_message("d", "user", f"parcel {number}")
        secret = store.append_message("c", "user", "the password is swordfishes")
        store.append_message("c", "user", "more")
        assert found(store, "swordfishes")
        assert b"swordfish" in kit.everything(tmp_path)
        if how == "a message":
            store.delete_message("c", secret)
        elif how == "the conversation":
            store.delete_conversation("c")
        else:
            store.clear_messages("c")
        assert found(store, "swordfishes") == []
        assert b"swordfish" not in kit.everything(tmp_path)
    assert b"swordfish" not in kit.everything(tmp_path)


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_every_query_is_used() -> None:
    folder = Path(catalog.__file__).parent
    code = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    assert [name for name in QUERIES if f'"{name}"' not in code] == []


@pytest.mark.parametrize("sort", ["last_message_at", "updated_at"])
@pytest.mark.parametrize("owner", ["", "user_id", "agent_id"])
@pytest.mark.parametrize("newest_first", [True, False])
def test_a_listing_walks_an_index_and_sorts_nothing(tmp_path: Path, sort: str, owner: str, newest_first: bool) -> None:
    fill(tmp_path)
    sql = catalog._sql(sort == "updated_at", owner, True, True, newest_first)
    values = [*(["x"] if owner else []), 1, "a", 2, "b"]
    with contextlib.closing(sqlite3.connect(index_of(tmp_path))) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values * (2 if sort == "updated_at" else 1)).fetchall()
    described = "\n".join(row[3] for row in plan)
    assert "TEMP B-TREE" not in described, described
    assert "SCAN conversations\n" not in described + "\n", described
    assert "USING INDEX by_" in described, described


# --- caches -----------------------------------------------------------------------------------------------------------


def title_of(store: sync.Store) -> str | None:
    found = store.get_conversation("c")
    assert found is not None
    return found.title


def test_an_unchanged_journal_is_read_without_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.connect(tmp_path) as store:
        store.create_conversation("c", title="one")
        with monkeypatch.context() as patched:
            patched.setattr(TenantIndex, "connection", None)
            assert title_of(store) == "one"
        with kit.connect(tmp_path) as other:
            other.update_conversation("c", title="two")
        assert title_of(store) == "two"


def test_an_append_does_not_wait_for_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    connect = TenantIndex._connect

    def traced(self: TenantIndex, path: str | None = None) -> sqlite3.Connection:
        connection = connect(self, path)
        connection.set_trace_callback(lambda sql: statements.append(sql.split()[0]))
        return connection

    monkeypatch.setattr(TenantIndex, "_connect", traced)
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one")
        statements.clear()
        store.append_message("c", "user", "two")
        assert statements == []


def test_a_deletion_is_stored_though_the_index_fails(tmp_path: Path) -> None:
    with kit.connect(tmp_path, timeout="1") as store:
        store.append_message("c", "user", "one")
        with contextlib.closing(sqlite3.connect(index_of(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="'c' is deleted, but not all") as raised:
                store.delete_conversation("c")
            assert raised.value.outcome == "unknown"
            other.execute("ROLLBACK")
        assert not store.list_conversations().items
        store.append_message("c", "user", "two")
        assert kit.contents(store, "c") == ["two"]


def test_an_erased_user_is_named_in_no_file(tmp_path: Path) -> None:
    ada = Participant("user", "ada-of-acme")
    with kit.connect(tmp_path) as store:
        store.append("own", Message("user", "hello there", participant=ada), user_id=ada.id)
        store.append(
            "another's", [Message("user", "me too", participant=ada), Message("assistant", "ok")], user_id="bob"
        )
        store.user(ada.id).records.put(["n"], "k", 1)
        assert store.list_conversations(user_id=ada.id).items
        assert found(store, "hello")
        assert ada.id.encode() in kit.everything(tmp_path)
        store.erase_user(ada.id)
        assert ada.id.encode() not in kit.everything(tmp_path)
    assert ada.id.encode() not in kit.everything(tmp_path)


def test_a_pass_of_the_search_index_holds_few_long_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PASS_BYTES", 1000)
    passes = list_of_passes(monkeypatch)
    with sync.connect(f"file://{tmp_path}") as store:
        store.append("c", [Message("user", f"n{number} " + "heron " * 100) for number in range(5)])
        assert [hit.message.seq for hit in store.search("n4")] == [5]
    assert max(passes) == 2


def list_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each pass indexes, from now on."""
    passes: list[int] = []
    index_some = search.index_some

    def noted(tenant: Tenant) -> int:
        passes.append(index_some(tenant))
        return passes[-1]

    monkeypatch.setattr(search, "index_some", noted)
    return passes
