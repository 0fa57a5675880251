"""The search index of a file: the whole suite once more with nothing left to the tail, and what is special to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.backends import quick_folder

import hansard.search
import hansard.sync
from hansard.backends.sqlite import facts, indexing, searching
from hansard.model import Message
from hansard.testing import Target
from hansard.testing.contract import TestJudged, TestSearching, clock, colour, store  # noqa: F401


@pytest.fixture
def target() -> Iterator[Target]:
    with quick_folder() as folder:
        yield Target(f"sqlite:///{folder}/hansard.db", folder=folder)


@pytest.fixture(autouse=True)
def _index_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search indexes what was appended before it."""
    monkeypatch.setattr(searching, "TAIL", 0)


def places(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        count: int = raw.execute("SELECT count(*) FROM search_places").fetchone()[0]
        return count


def test_the_index_is_filled_behind_the_appends(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def run() -> None:
        async with hansard.connect(f"sqlite:///{path}") as opened:
            await opened.append("c", [Message("user", f"word {number}") for number in range(50)])
            for _ in range(200):
                if places(path) == 50:
                    break
                await asyncio.sleep(0.02)
            # While it is still open: closing must not be what fills it.
            assert places(path) == 50

    asyncio.run(run())


def test_the_blocking_api_fills_it_now_and_then(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db?durability=normal") as opened:
        for _ in range(1005):
            opened.append_message("c", "user", "word")
        assert places(tmp_path / "a.db") == 1000
        opened.append("c", [Message("user", "word")] * 1500)
        assert places(tmp_path / "a.db") == 1000, "whoever loads is not held up"


def test_what_was_imported_is_indexed(tmp_path: Path) -> None:
    with hansard.sync.connect("memory://") as source:
        source.append("c", [Message("user", "word")] * 1200)
        lines = list(source.export())
        with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
            opened.import_(lines)
        with hansard.sync.connect(f"sqlite:///{tmp_path}/b.db") as other:
            source.copy_to(other)
    assert places(tmp_path / "a.db") == places(tmp_path / "b.db") == 1200


def test_built_anew_it_says_the_same(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append("c", [Message("user", f"word {number}") for number in range(20)])
        opened.tenant("other").append("c", [Message("user", "word")])
        before = [hit.message.id for hit in opened.search("word", order="newest", limit=100)]
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            raw.execute("INSERT INTO search (search) VALUES ('delete-all')")
            raw.commit()
        assert opened.search("word") == []
        assert list(opened.admin.reindex())[-1] >= 21
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
        assert len(problems) == 3
        assert any(ids[0] in what and "other words" in what for what in problems)
        assert any(ids[1] in what and "not in the search index" in what for what in problems)
        assert any("are gone" in what for what in problems)
        list(opened.admin.reindex())
        assert opened.check() == []


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


def test_a_large_index_is_cleaned_by_purge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing.clean, "__defaults__", (1,))
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        words = [" ".join(f"w{number * 37 % 9973}x{part}" for part in range(40)) for number in range(400)]
        for start in range(0, 400, 100):
            opened.append("c", [Message("user", text) for text in words[start : start + 100]])
            opened.search("w1x1")
        secret = opened.append_message("c", "user", "zyxwvut")
        assert len(opened.search("zyxwvut")) == 1
        receipt = opened.delete_message("c", secret)
        assert not receipt.physically_gone, "the receipt does not promise what is not done"
        assert opened.search("zyxwvut") == []
        opened.purge()
        assert b"zyxwvut" not in path.read_bytes()


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as opened:
        opened.append_message("c", "user", "word")
        with closing(sqlite3.connect(tmp_path / "a.db")) as raw:
            raw.execute("UPDATE search_state SET version = 0")
            raw.commit()
        with pytest.raises(hansard.FormatMismatch, match="hansard reindex"):
            opened.search("word")
        assert [problem.where for problem in opened.check()] == ["search index"]
        list(opened.admin.reindex())
        assert len(opened.search("word")) == 1


def test_an_older_file_is_indexed_after_its_upgrade(tmp_path: Path) -> None:
    from hansard.backends.sqlite import schema

    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        opened.append("c", [Message("user", "old word")] * 3)
    with closing(sqlite3.connect(path)) as raw:
        for table in ("search", "search_rows", "search_places", "search_tenants", "search_state"):
            raw.execute(f"DROP TABLE {table}")
        raw.execute("DELETE FROM migrations WHERE name = '0002_search'")
        raw.commit()
    schema.prepare(path, "full", upgrade=True).close()
    with hansard.sync.connect(f"sqlite:///{path}") as opened:
        assert len(opened.search("old")) == 3
        assert opened.check() == []


def test_late_pages_cost_what_the_first_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_WALKED", 10)
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


# What a reading connection remembers


def words(found: hansard.search.Hits) -> list[str]:
    return [hit.message.text for hit in found]


def test_what_is_remembered_is_forgotten_with_the_next_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with hansard.sync.connect(url) as one, hansard.sync.connect(f"{url}?durability=normal") as two:
        # Another durability is another engine: as another process would be.
        for number in range(5):
            one.append_message("c", "user", f"needle {number}", user_id="ann")
            two.append_message("d", "user", f"needle {number}", user_id="ben")
            for store in (one, two):
                assert len(store.search("needle", limit=100)) == 2 * (number + 1)
                assert len(store.search("needle", conversation_id="c", limit=100)) == number + 1
                assert len(store.search("needle", user_id="ben", limit=100)) == number + 1
        two.update_conversation("c", title="another")
        assert one.search("needle", conversation_id="c")[0].conversation.title == "another"
        two.delete_conversation("c")
        assert one.search("needle", conversation_id="c") == []
        assert len(one.search("needle")) == 5
        two.append_message("c", "user", "needle again")
        assert words(one.search("needle", conversation_id="c")) == ["needle again"]


def test_what_is_given_away_can_be_changed(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.create_conversation("c")
        store.create_conversation("d", metadata={"deep": {"kind": "chat"}})
        for id in ("c", "d"):
            store.append_message(id, "user", "needle")
        for _ in range(3):
            for scope in ({"conversation_id": "c"}, {"conversation_id": "d"}, {}):
                for hit in store.search("needle", order="newest", **scope):  # type: ignore[arg-type]
                    metadata = hit.conversation.metadata
                    assert metadata == ({"deep": {"kind": "chat"}} if hit.conversation.id == "d" else {})
                    metadata.setdefault("deep", {})["kind"] = "changed"


def test_what_has_expired_is_not_remembered(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}", clock=lambda: now[0]) as store:
        store.create_conversation("c", expires_at=now[0] + timedelta(hours=1))
        store.append_message("c", "user", "needle")
        for scope in ({"conversation_id": "c"}, {}):
            assert len(store.search("needle", **scope)) == 1  # type: ignore[arg-type]
        now[0] += timedelta(hours=2)
        for scope in ({"conversation_id": "c"}, {}):
            assert store.search("needle", **scope) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("few", [0, 3, 1000])
def test_rare_and_common_words_are_found_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """By picking from all that match, and by the conversation's own term: over branches, filters and pages."""
    monkeypatch.setattr(facts, "_FEW", few)
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for number in range(12):
            store.append_message("c", "user", f"needle {number}", id=f"m{number}", user_id="ann")
            store.append_message("d", "assistant", f"needle and hay {number}", user_id="ann")
        store.branch("c", at="m5")
        store.append_message("c", "assistant", "needle on the side")
        for order in ("newest", "relevance"):
            here = store.search("needle", conversation_id="c", order=order, limit=100)  # type: ignore[arg-type]
            assert sorted(words(here)) == sorted([*(f"needle {number}" for number in range(6)), "needle on the side"])
        assert words(store.search("needle", conversation_id="c", order="newest", limit=3)) == [
            "needle on the side",
            "needle 5",
            "needle 4",
        ]
        assert len(store.search("needle", conversation_id="c", branch="main", limit=100)) == 12
        assert len(store.search("needle", conversation_id="c", all_branches=True, limit=100)) == 13
        assert words(store.search("needle", conversation_id="c", roles=["assistant"])) == ["needle on the side"]
        paged: list[str] = []
        page = store.search("needle", conversation_id="d", order="newest", limit=5)
        while page:
            paged += words(page)
            if page.next_cursor is None:
                break
            page = store.search("needle", conversation_id="d", order="newest", limit=5, cursor=page.next_cursor)
        assert paged == [f"needle and hay {number}" for number in reversed(range(12))]


def test_words_that_look_like_owners(tmp_path: Path) -> None:
    """The terms of conversations and users lie in the same index: they are never found as words."""
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for number in range(9):
            store.append_message(f"chat-{number}", "user", "hay", user_id="ann")
        terms = [*(f"c{number}" for number in range(12)), indexing.user_term("ann"), "c*", "u*"]
        for term in terms:
            assert store.search(term) == [], term
        store.append_message("chat-0", "user", "the vitamin c1 and c2", user_id="ann")
        assert words(store.search("c1")) == ["the vitamin c1 and c2"]
        assert len(store.search("c*")) == 1


def test_the_same_time_in_many_conversations(tmp_path: Path) -> None:
    """Where times are the same, the seq and then the id of the conversation decide, however many there are."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}", clock=lambda: at) as store:
        for id in ("b", "c", "a"):
            store.append(id, [Message("user", f"needle {id}{number}") for number in range(4)])
        expected = [f"needle {id}{number}" for number in (3, 2, 1, 0) for id in ("c", "b", "a")]
        for limit in range(1, 13):
            assert words(store.search("needle", order="newest", limit=limit, token_cap=None)) == expected[:limit]


def test_a_large_fill_ends_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    def pieces() -> int:
        with closing(sqlite3.connect(path)) as raw:
            count: int = raw.execute("SELECT count(DISTINCT segid) FROM search_idx").fetchone()[0]
            return count

    with hansard.sync.connect(f"sqlite:///{path}") as store:
        texts = [Message("user", f"needle {number} in hay {number * 7919 % 1013}") for number in range(6000)]
        for start in range(0, len(texts), 500):
            store.append(f"c{start}", texts[start : start + 500])
            store.search("needle", limit=1)
        assert pieces() > 1
        for _ in store.admin.reindex():
            pass
        assert pieces() == 1
        assert len(store.search('"needle 17"')) == 1
        assert [found for found in store.admin.check() if isinstance(found, hansard.Problem)] == []
