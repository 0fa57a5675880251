"""The search index of a file: the whole suite once more with nothing left to the tail, and what is special to it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from tests.contract.backends import quick_folder
from tests.wait import PATIENCE, coming

import hansard.sync
from hansard.backends.schemes import open_backend
from hansard.backends.shared.full_text import columns_of
from hansard.backends.sqlite import SqliteBackend, check, engine, index, read_cache, search
from hansard.errors import Corrupt, FormatMismatch
from hansard.model import Message, Source
from hansard.testing import Target
from hansard.testing.contract import TestJudged, TestSearching, clock, mode, store  # noqa: F401


@pytest.fixture
def target() -> Iterator[Target]:
    with quick_folder() as folder:
        yield Target(f"sqlite:///{folder}/hansard.db", folder=folder)


@pytest.fixture(autouse=True)
def _index_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search indexes what was appended before it."""
    monkeypatch.setattr(search, "TAIL", 0)


def places(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        count: int = raw.execute("SELECT count(*) FROM search_places").fetchone()[0]
        return count


def test_the_index_is_filled_behind_the_appends(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as opened:
            await opened.append("c", [Message("user", f"word {number}") for number in range(50)])
            # While it is still open: closing must not be what fills it.
            await coming(lambda: places(path) == 50)

    asyncio.run(run())


def test_the_index_is_filled_beside_writers_while_somebody_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    monkeypatch.setattr(engine, "_SEARCHED_SECONDS", PATIENCE)
    monkeypatch.setattr(engine, "_IDLE_SECONDS", PATIENCE)

    async def write(opened: hansard.Store, name: str) -> None:
        for number in range(10):
            await opened.append_message(name, "user", f"word {number}")

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as opened:
            for name in ("a", "b"):
                async with asyncio.TaskGroup() as group:
                    for number in range(32):
                        group.create_task(write(opened, f"{name}{number}"))
                if name == "a":
                    assert places(path) == 0, "writers alone are not held up"
                    assert len(await opened.search("word", limit=1)) == 1
            await coming(lambda: places(path) > 640 - 64)

    asyncio.run(run())


def test_the_blocking_api_fills_it_now_and_then(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
        for _ in range(1005):
            opened.append_message("c", "user", "word")
        assert places(tmp_path / "a.db") == 1000
        opened.append("c", [Message("user", "word")] * 1500)
        assert places(tmp_path / "a.db") == 1000, "whoever loads is not held up"


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_a_search_ends_while_others_write_faster_than_it_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["newest", "relevance"]
) -> None:
    monkeypatch.setattr(search, "TAIL", 100)
    passes: list[object] = []
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
        opened.append("c", [Message("user", f"word{number} common") for number in range(1500)])
        # As if as many messages arrived meanwhile as were indexed.
        monkeypatch.setattr(index, "index_many", passes.append)
        assert [hit.message.text for hit in opened.search("word7", order=order)] == ["word7 common"]
    assert len(passes) == 2
    assert places(tmp_path / "a.db") == 0


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_a_search_beside_writers_does_not_wait_for_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["newest", "relevance"]
) -> None:
    monkeypatch.setattr(search, "TAIL", 100)
    passes: list[object] = []
    monkeypatch.setattr(index, "index_many", passes.append)
    # As if another write arrived at once, always.
    monkeypatch.setattr(engine, "_IDLE_SECONDS", 3600.0)
    monkeypatch.setattr(engine, "_BULK_IDLE_SECONDS", 3600.0)
    # As if the last search was long ago.
    monkeypatch.setattr(engine, "_SEARCHED_SECONDS", 0.0)

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
            await opened.append("c", [Message("user", f"word{number} common") for number in range(900)])
            assert [hit.message.text for hit in await opened.search("word7", order=order)] == ["word7 common"]
            assert not passes
            await opened.append("c", [Message("user", "another")] * 200)
            assert [hit.message.text for hit in await opened.search("word7", order=order)] == ["word7 common"]
            assert len(passes) == 1

    async def read() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
            assert len(await opened.search("word7", order=order)) == 1

    asyncio.run(run())
    asyncio.run(read())
    assert len(passes) > 1, "without a writer, the first search fills the index"


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_a_search_indexes_what_other_processes_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["newest", "relevance"]
) -> None:
    monkeypatch.setattr(search, "TAIL", 100)

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db") as opened:
            await opened.append_message("c", "user", "ours")
            await coming(lambda: places(tmp_path / "a.db") == 1)
            # With another durability it has an engine of its own, as another process has.
            with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as other:
                other.append("d", [Message("user", f"word{number}") for number in range(150)])
            assert [hit.message.text for hit in await opened.search("word7", order=order)] == ["word7"]
            assert places(tmp_path / "a.db") == 151

    asyncio.run(run())


def test_a_ranking_reads_only_conversations_of_messages_that_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that are not indexed yet: beside 64 writers, they are of 64 conversations that have changed."""
    monkeypatch.setattr(search, "TAIL", 100)
    read: set[int] = set()
    read_homes = read_cache.ReadConnection._read_homes

    def noted(self: read_cache.ReadConnection, missing: set[int]) -> None:
        read.update(missing)
        read_homes(self, missing)

    monkeypatch.setattr(read_cache.ReadConnection, "_read_homes", noted)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
        for number in range(30):
            opened.append_message(f"c{number}", "user", f"word{number} common")
        assert [hit.conversation.id for hit in opened.search("word7")] == ["c7"]
    assert places(tmp_path / "a.db") == 0
    assert len(read) == 1


@pytest.mark.parametrize("order", ["newest", "relevance"])
def test_the_owner_of_a_conversation_searches_it_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["newest", "relevance"]
) -> None:
    reads: list[object] = []
    read = engine.SqliteEngine.read

    def counted(self: engine.SqliteEngine, run: Any) -> Any:
        reads.append(run)
        return read(self, run)

    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        ada = opened.user("ada")
        ada.append_message("c", "user", "a word")
        assert len(ada.search("word", conversation_id="c", order=order)) == 1
        monkeypatch.setattr(engine.SqliteEngine, "read", counted)
        assert len(ada.search("word", conversation_id="c", order=order)) == 1
    assert len(reads) == 1, "who else sees the conversation is not asked"


def test_what_was_imported_is_indexed(tmp_path: Path) -> None:
    with hansard.sync.connect("memory://") as source:
        source.append("c", [Message("user", "word")] * 1200)
        segments = list(source.export())
        with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
            opened.import_(segments)
        with hansard.sync.connect(f"sqlite:///{tmp_path}/b.db") as other:
            source.copy_to(other)
    assert places(tmp_path / "a.db") == places(tmp_path / "b.db") == 1200


def test_a_pass_holds_few_long_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds their texts and their words: two hundred of a megabyte would take 400 MB."""
    monkeypatch.setattr(index, "PASS_CHARACTERS", 1000)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append("c", [Message("user", f"n{number} " + "heron " * 100) for number in range(7)])
        assert list(opened.admin.reindex()) == [2, 4, 6, 7]
        assert [hit.message.seq for hit in opened.search("n6")] == [7]
        assert opened.check() == []


def test_built_anew_it_says_the_same(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append("c", [Message("user", f"word {number}") for number in range(20)])
        opened.tenant("other").append("c", [Message("user", "word")])
        before = [hit.message.id for hit in opened.search("word", order="newest", limit=100)]
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            raw.execute("INSERT INTO search (search) VALUES ('delete-all')")
            raw.commit()
        assert opened.search("word") == []
        assert list(opened.admin.reindex())[-1] == 21
        assert [hit.message.id for hit in opened.search("word", order="newest", limit=100)] == before
        assert len(opened.tenant("other").search("word")) == 1
        assert opened.check() == []


def test_check_compares_index_and_messages(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        ids = [message.id for message in opened.append("c", [Message("user", "some words here")] * 3).messages]
        assert len(opened.search("words")) == 3
        assert opened.check() == []
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            entries = dict(
                raw.execute("SELECT m.id, p.entry FROM search_places p JOIN messages m ON m.key = p.message")
            )
            raw.execute(
                "INSERT INTO search (search, rowid, words, more, owner) "
                "VALUES ('delete', ?, 'some word here', 'words', 'c1')",
                (entries[ids[0]],),
            )
            raw.execute("DELETE FROM search_places WHERE entry = ?", (entries[ids[1]],))
            raw.execute("INSERT INTO search_places VALUES (99, 99)")
            raw.commit()
        problems = [problem.what for problem in opened.check()]
        assert len(problems) == 4
        assert any(ids[0] in what and "other words" in what for what in problems)
        assert any("words of 1 messages that it does not list" in what for what in problems)
        assert any(ids[1] in what and "not in the search index" in what for what in problems)
        assert any("are gone" in what for what in problems)
        list(opened.admin.reindex())
        assert opened.check() == []


@pytest.mark.parametrize(
    ("do", "columns"),
    [
        ("delete", ("some word here", "words", "c1")),
        ("add", ("else", "", "")),
        ("add", ("", "else", "")),
        ("add", ("", "", "c99")),
    ],
    ids=str,
)
def test_check_finds_one_wrong_word(tmp_path: Path, do: str, columns: tuple[str, str, str]) -> None:
    """Wherever it is, and in whichever column: one that is too much, too."""
    long = "some words " * 100
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        for number in range(30):
            opened.append("c" if number % 2 else f"c{number}", Message("user", long, id=f"m{number}"))
        opened.append("c", Message("user", "some words here", id="here"))
        opened.tenant("other").append_message("c", "user", "some words here")
        assert len(opened.search("here")) == 1
        list(opened.admin.reindex())
        assert [found for found in opened.admin.check() if isinstance(found, hansard.Problem)] == []
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            (entry,) = raw.execute(
                "SELECT p.entry FROM search_places p JOIN messages m ON m.key = p.message WHERE m.id = 'here'"
            ).fetchone()
            if do == "delete":
                sql = "INSERT INTO search (search, rowid, words, more, owner) VALUES ('delete', ?, ?, ?, ?)"
            else:
                sql = "INSERT INTO search (rowid, words, more, owner) VALUES (?, ?, ?, ?)"
            raw.execute(sql, (entry, *columns))
            raw.commit()
        assert [(problem.where, "'here'" in problem.what) for problem in opened.check()] == [("default/c", True)]
        assert opened.tenant("other").check() == []
        found = [each for each in opened.admin.check() if isinstance(each, hansard.Problem)]
        assert [problem.where for problem in found] == ["default/c"]


def test_check_compares_in_constant_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages share a few sums. Two that have each other's words are still found, and told from the others."""
    sums: list[int] = []
    differences = check.IndexAudit.differences

    def counted(self: check.IndexAudit) -> list[hansard.Problem]:
        sums.append(len(self._sums))
        return differences(self)

    monkeypatch.setattr(check, "_SHARED_SUMS", 1)
    monkeypatch.setattr(check.IndexAudit, "differences", counted)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append("c", [Message("user", f"w{number}", id=f"m{number}") for number in range(60)])
        list(opened.admin.reindex())
        assert opened.check() == []
        assert sums == [1]
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            sql = "SELECT m.id, p.entry FROM search_places p JOIN messages m ON m.key = p.message"
            entries = dict(raw.execute(sql))
            columns = {id: columns_of(f"w{id[1:]}", None, 1) for id in ("m7", "m50")}
            for id, other in (("m7", "m50"), ("m50", "m7")):
                delete = "INSERT INTO search (search, rowid, words, more, owner) VALUES ('delete', ?, ?, ?, ?)"
                raw.execute(delete, (entries[id], *columns[id]))
                add = "INSERT INTO search (rowid, words, more, owner) VALUES (?, ?, ?, ?)"
                raw.execute(add, (entries[id], *columns[other]))
            raw.commit()
        found = [problem.what for problem in opened.check()]
        assert len(found) == 2
        assert all(any(f"'{id}'" in what for what in found) for id in ("m7", "m50"))


def test_check_names_no_more_than_anybody_reads(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append("c", [Message("user", "some words here")] * 300)
        list(opened.admin.reindex())
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            raw.execute("INSERT INTO search (search) VALUES ('delete-all')")
            raw.commit()
        problems = opened.check()
        assert len(problems) == 101
        assert "200 messages more" in problems[-1].what


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (
            "DELETE FROM search_entries WHERE entry IN (SELECT min(entry) FROM search_entries)",
            "is not in the search index",
        ),
        ("UPDATE search_entries SET words = 9 WHERE entry IN (SELECT min(entry) FROM search_entries)", "other words"),
        ("DELETE FROM search_idx", "are not found"),
        ("DELETE FROM search_data WHERE id > 100", "it cannot be read"),
        ("UPDATE search_data SET block = zeroblob(length(block)) WHERE id > 100", "it cannot be read"),
    ],
)
def test_check_names_the_index_where_it_is_damaged_and_goes_on(tmp_path: Path, damage: str, what: str) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        for number in range(20):
            opened.append(f"c{number}", [Message("user", f"q{number}x{at} some words") for at in range(60)])
        list(opened.admin.reindex())
        assert opened.check() == []
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            raw.execute(damage)
            raw.execute("UPDATE conversations SET message_count = 7 WHERE id = 'c19'")
            raw.commit()
        found = opened.check()
        assert [
            what in each.what and "hansard reindex" in each.what for each in found if each.where != "default/c19"
        ] == [True]
        assert any(each.where == "default/c19" for each in found), "what comes after it is looked at as well"
        list(opened.admin.reindex())
        assert {problem.where for problem in opened.check()} == {"default/c19"}


def test_a_check_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """And what is written meanwhile is none of its concern."""

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db") as opened:
            for number in range(50):
                await opened.append(f"c{number}", [Message("user", f"word {number}")] * 20)
            async for found in opened.admin.check():
                assert isinstance(found, int)
                message = await opened.append_message("c1", "user", "late word")
                await opened.delete_message("c1", message)
            async for _ in opened.admin.check():
                break
            task = asyncio.create_task(opened.check())
            await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await opened.check() == []

    asyncio.run(run())


def test_deleted_words_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append("c", [Message("user", f"filler{number}") for number in range(200)])
        secret = opened.append_message("c", "user", "zyxwvut")
        kept = opened.append_message("c", "user", "staysxyz")
        assert len(opened.search("zyxwvut")) == 1
        assert b"zyxwvut" in path.read_bytes() + path.with_name("a.db-wal").read_bytes()
        receipt = opened.delete_message("c", secret)
        assert receipt.physically_gone
        assert b"zyxwvut" not in path.read_bytes()
        opened.update_message("c", kept, content="changed")
        assert opened.search("staysxyz") == []
        opened.purge()
        assert b"staysxyz" not in path.read_bytes()


def segments(path: Path) -> set[int]:
    with closing(sqlite3.connect(path)) as raw:
        return {segment for (segment,) in raw.execute("SELECT DISTINCT segid FROM search_idx")}


def test_a_large_index_is_cleaned_by_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SMALL", 10)
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        words = [" ".join(f"w{number * 37 % 9973}x{part}" for part in range(40)) for number in range(400)]
        for start in range(0, 400, 100):
            opened.append("c", [Message("user", text) for text in words[start : start + 100]])
            opened.search("w1x1")
        secret = opened.append_message("c", "user", "zyxwvut")
        assert len(opened.search("zyxwvut")) == 1
        before = segments(path)
        receipt = opened.delete_message("c", secret)
        assert not receipt.physically_gone, "the receipt does not promise what is not done"
        assert segments(path) == before | {max(before) + 1}, "a deletion rewrites nothing in a large index"
        assert opened.search("zyxwvut") == []
        opened.purge()
        assert b"zyxwvut" not in path.read_bytes()


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        gone = opened.append_message("c", "user", "zyxwvut")
        kept = opened.append_message("c", "user", "word")
        opened.append("c", [Message("user", f"w{number}x") for number in range(200)])
        assert len(opened.search("word")) == 1
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("UPDATE search_state SET version = 1")
            raw.commit()
        with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
            opened.search("word")
        assert [problem.where for problem in opened.check()] == ["search index"]
        # Nothing touches it, or takes it for one of ours, until it is built anew.
        opened.append("c", [Message("user", "late word")] * 1200)
        assert not opened.delete_message("c", gone).physically_gone
        opened.update_message("c", kept, content="another word")
        opened.update_conversation("c", user_id="ann")
        assert not opened.purge(), "a sweep ends, though it cannot clean the index"
        with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
            opened.search("word")
        list(opened.admin.reindex())
        assert len(opened.search("another word")) == 1
        assert len(opened.user("ann").search("word", order="newest", limit=100)) > 10
        assert opened.check() == []
    assert b"zyxwvut" not in path.read_bytes()


def test_an_upgrade_builds_an_older_index_anew_and_leaves_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append("c", [Message("user", f"w{number}x") for number in range(200)])
        assert len(opened.search("w7x")) == 1

    def upgraded(version: int) -> None:
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("UPDATE search_state SET version = ?", (version,))
            raw.commit()
        asyncio.run(_upgrade(f"sqlite:///{path}"))

    upgraded(99)
    with hansard.sync.connect(f"sqlite:///{path}") as opened, pytest.raises(hansard.FormatMismatch):
        opened.search("w7x")
    upgraded(1)
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        assert len(opened.search("w7x")) == 1
        assert opened.stats().unindexed == 0
        assert opened.check() == []


def test_a_bulk_load_is_indexed_in_its_own_commits(tmp_path: Path) -> None:
    asyncio.run(_load_in_bulk(tmp_path / "a.db"))


async def _load_in_bulk(path: Path) -> None:
    async with hansard.connect(f"sqlite:///{path}") as opened:
        backend = cast(SqliteBackend, opened.backend)
        # A tail from before, and messages of one second, more than a slot holds.
        await opened.append("old", [Message("user", f"tail{number}") for number in range(60)])
        at = datetime(2026, 1, 2, tzinfo=UTC)
        with backend.bulk_load():
            for start in range(0, 9_000, 3_000):
                said = [Message("user", f"w{n}x said", id=f"m{n}", created_at=at) for n in range(start, start + 3_000)]
                await opened.append(f"c{start}", said, user_id="ann")
            calls = [
                {"type": "tool_use", "id": f"t{n}", "name": "ring", "input": {"bird": f"v{n}x"}} for n in range(60)
            ]
            source = Source("d1", "plumage")
            await opened.append("calls", [Message("assistant", [call], sources=(source,)) for call in calls])
            await opened.append_message("c0", "user", "few are left to the tail")
        assert (await opened.stats()).unindexed == 61
        assert await opened.delete_message("c0", "m7")
        assert [hit.message.id for hit in await opened.search("w8500x")] == ["m8500"]
        assert len(await opened.user("ann").search("said", order="newest", limit=20)) == 20
        await backend.catch_up()
        assert (await opened.stats()).unindexed == 0
        assert [hit.message.id for hit in await opened.search("tail7")], "the tail was not passed over"
        assert len(await opened.search("ring v8x plumage")) == 1
        assert not await opened.search("w7x")
        assert await opened.check() == []
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(DISTINCT segid) FROM search_idx").fetchone() <= (2,), "it was merged"
        assert dict(raw.execute("SELECT k, v FROM search_config WHERE k LIKE '%merge' OR k = 'hashsize'")) == {
            "automerge": 4,
            "crisismerge": 16,
            "hashsize": 1 << 20,
        }


def test_an_idle_store_merges_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MANY_UNMERGED", 550)
    path = tmp_path / "a.db"

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as opened:
            for start in range(0, 500, 50):
                said = [Message("user", f"w{number}x said") for number in range(start, start + 50)]
                await opened.append("c", said)
                await coming(lambda: places(path) == start + 50)  # noqa: B023  # asked before the next round
            assert len(segments(path)) == 10, "one for each pass"
            await opened.append("c", [Message("user", f"v{number}x said") for number in range(50)])
            await coming(lambda: len(segments(path)) == 1)
            assert [len(await opened.search(word)) for word in ("w7x", "w499x", "v7x")] == [1, 1, 1]
            assert await opened.check() == []

    asyncio.run(run())


def test_an_index_that_only_bulk_loads_have_filled_has_a_version(tmp_path: Path) -> None:
    asyncio.run(_load_and_age(tmp_path / "a.db"))


async def _load_and_age(path: Path) -> None:
    async with hansard.connect(f"sqlite:///{path}") as opened:
        with cast(SqliteBackend, opened.backend).bulk_load():
            await opened.append("c", [Message("user", f"w{number}x") for number in range(60)])
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("UPDATE search_state SET version = 1")
            raw.commit()
        with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
            await opened.search("w7x")
        with cast(SqliteBackend, opened.backend).bulk_load():
            await opened.append("d", [Message("user", f"v{number}x") for number in range(60)])
        async for _ in opened.admin.reindex():
            pass
        assert len(await opened.search("w7x")) == len(await opened.search("v7x")) == 1
        assert await opened.check() == []


async def _upgrade(url: str) -> None:
    await (await open_backend(url, upgrade=True)).close()


def test_an_older_file_is_indexed_after_its_upgrade(tmp_path: Path) -> None:
    from hansard.backends.sqlite import schema

    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append("c", [Message("user", "old word")] * 3)
    with closing(sqlite3.connect(path)) as raw:
        for table in ("search", "search_rows", "search_entries", "search_places", "search_tenants", "search_state"):
            raw.execute(f"DROP TABLE {table}")
        raw.execute("DROP INDEX branches_forked")
        raw.execute("DELETE FROM migrations WHERE name IN ('0002_search', '0004_entries')")
        raw.commit()
    schema.prepare(path, "full", upgrade=True).close()
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        assert len(opened.search("old")) == 3
        assert opened.check() == []


def test_an_index_without_lengths_is_rebuilt_by_the_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    url = f"sqlite:///{path}"
    with hansard.sync.connect(url) as opened:
        opened.append("c", [Message("user", "old word")] * 3)
        assert len(opened.search("old")) == 3
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DROP TABLE search_entries")
        raw.execute("DROP INDEX branches_forked")
        raw.execute("UPDATE search_state SET version = 2")
        raw.execute("DELETE FROM migrations WHERE name = '0004_entries'")
        raw.commit()
    with pytest.raises(FormatMismatch, match="hansard upgrade"):
        hansard.sync.connect(url)
    asyncio.run(_upgraded(url))
    with hansard.sync.connect(url) as opened:
        assert len(opened.search("old")) == 3
        assert opened.check() == []


async def _upgraded(url: str) -> None:
    backend = await open_backend(url, upgrade=True)
    await backend.close()


def test_times_out_of_order_are_walked_in_order(tmp_path: Path) -> None:
    """An archive is imported conversation by conversation, the last of them with the oldest times."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        for number in range(30, 0, -1):
            opened.append(
                f"c{number}",
                [Message("user", "word", created_at=start + timedelta(days=number, minutes=at)) for at in range(20)],
            )
            opened.search("word")
        hits = opened.search("word", order="newest", limit=60, token_cap=None)
        assert [hit.conversation.id for hit in hits] == ["c30"] * 20 + ["c29"] * 20 + ["c28"] * 20
        times = [hit.message.created_at for hit in hits]
        assert times == sorted(times, reverse=True)
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            assert raw.execute("SELECT lag FROM search_state").fetchone() == (0,)


def test_the_newest_of_many_equally_good_are_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their positions are read page by page, from the newest entry down."""
    chance = random.Random(19)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
        for conversation in range(400):
            at = start + timedelta(milliseconds=chance.randrange(20_000))
            opened.append(f"c{conversation}", [Message("user", "same word", created_at=at)])
            if conversation == 350:
                opened.search("word")  # indexes all so far
                monkeypatch.setattr(search, "TAIL", 100)
        hits = opened.search("word", limit=100, token_cap=None)
        newest = opened.search("word", limit=100, token_cap=None, order="newest")
        assert len({hit.score for hit in hits}) == 1
        assert [hit.message.id for hit in hits] == [hit.message.id for hit in newest]
        assert places(tmp_path / "a.db") == 351


def test_more_messages_of_a_second_than_fit_are_found_in_order(tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    odd = [datetime(1960, 1, 1, tzinfo=UTC), datetime(2400, 1, 1, tzinfo=UTC)]
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=off") as opened:
        for number in range(3):
            opened.append(f"c{number}", [Message("user", "word", created_at=start)] * 3000)
            opened.search("word")
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            assert raw.execute("SELECT lag FROM search_state").fetchone() == (0,)
        opened.append("late", Message("user", "word", created_at=start + timedelta(seconds=2)))
        hits = opened.search("word", order="newest", limit=1)
        assert hits[0].conversation.id == "late"
        until = start + timedelta(seconds=1)
        assert len(opened.search("word", until=until, limit=100, token_cap=None)) == 100
        seen: set[str] = set()
        cursor = None
        while len(seen) < 9000:
            page = opened.search("word", order="newest", until=until, limit=100, token_cap=None, cursor=cursor)
            seen |= {hit.message.id for hit in page}
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == 9000
        for time in odd:
            opened.append("odd", Message("user", "word", created_at=time))
        newest = opened.search("word", order="newest", limit=3)
        assert [hit.message.created_at.year for hit in newest] == [2400, 2024, 2024]
        assert opened.check() == []


def test_a_reader_that_has_seen_many_conversations_still_finds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cache, "_MOST", 4)
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        for number in range(8):
            opened.append_message(f"c{number}", "user", f"heron group{number // 4}")
        for words, orders in ((("group0", "heron"), "relevance"), (("group1", "heron"), "newest")):
            order = cast(Literal["relevance", "newest"], orders)
            assert [len(opened.search(word, order=order)) for word in words] == [4, 8]


@pytest.mark.parametrize("order", ["relevance", "newest"])
def test_a_hit_without_a_conversation_is_reported(tmp_path: Path, order: Literal["relevance", "newest"]) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append_message("c", "user", "heron")
        assert len(opened.search("heron", order=order)) == 1
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM branches")
    connection.commit()
    connection.close()
    with hansard.sync.connect(f"sqlite:///{path}") as opened, pytest.raises(Corrupt, match="which has messages"):
        opened.search("heron", order=order)


@pytest.mark.parametrize("order", ["relevance", "newest"])
def test_a_conversation_among_others_is_searched_as_far_as_its_branches_reach(
    tmp_path: Path, order: Literal["relevance", "newest"]
) -> None:
    """A branch, a conversation that expires, and plain ones, together on one page."""
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        for number in range(3):
            opened.append_message(f"plain{number}", "user", "heron")
        opened.create_conversation("brief", expires_at=datetime.now(UTC) + timedelta(hours=1))
        opened.append_message("brief", "user", "heron")
        shared = opened.append_message("forked", "user", "heron, shared")
        opened.append_message("forked", "user", "heron, on the first branch")
        opened.branch("forked", at=shared)
        opened.append_message("forked", "user", "heron, on the second branch")
        found = opened.search("heron", order=order)
        assert sorted((hit.conversation.id, hit.message.text) for hit in found) == [
            ("brief", "heron"),
            ("forked", "heron, on the second branch"),
            ("forked", "heron, shared"),
            *((f"plain{number}", "heron") for number in range(3)),
        ]
        assert len(opened.search("heron", order=order, all_branches=True)) == 7


def test_late_pages_lose_nothing(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        ids = []
        for number in range(40):
            ids.append(opened.append_message(f"c{number % 3}", "user", "word"))
            opened.append_message("c", "user", "other")
        for number in range(0, 40, 7):
            opened.delete_message(f"c{number % 3}", ids[number])
        found: list[str] = []
        cursor = None
        while len(found) < 40:
            page = opened.search("word", order="newest", limit=5, cursor=cursor)
            assert page.complete
            found += [hit.message.id for hit in page]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == [id for number, id in enumerate(ids) if number % 7][::-1]


def test_a_tenant_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append_message("c", "user", "word")
        for name in ("gone-xyzzy", "later"):
            opened.tenant(name).append_message("c", "user", f"word of {name}")
            assert len(opened.tenant(name).search("word")) == 1
            opened.admin.delete_tenant(name)
            assert opened.tenant(name).search("word") == []
        assert len(opened.search("word")) == 1
        assert opened.check() == []
    assert b"xyzzy" not in path.read_bytes()


def test_a_search_sees_branches_that_come_and_go_after_the_last_one(tmp_path: Path) -> None:
    def found() -> list[str]:
        return sorted(hit.message.content for hit in opened.search("word", order="relevance"))

    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        first = opened.append_message("c", "user", "word one")
        opened.append_message("c", "user", "word two")
        assert found() == ["word one", "word two"]
        opened.branch("c", at=first, branch_id="other", activate=True)
        opened.append_message("c", "user", "word three")
        assert found() == ["word one", "word three"]
        opened.switch_branch("c", "main")
        assert found() == ["word one", "word two"]
        opened.delete_branch("c", "other")
        assert found() == ["word one", "word two"]
        opened.append_message("d", "user", "word four")
        opened.branch("d", empty=True, branch_id="other", activate=True)
        assert found() == ["word one", "word two"]
        opened.tenant("another").append_message("c", "user", "word five")
        assert found() == ["word one", "word two"]
