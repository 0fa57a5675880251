"""The file itself: its schema, its queries, its migrations, and files that are not ours."""

from __future__ import annotations

import errno
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import hansard
import hansard.sync
from hansard.backends.shared.statements import parse
from hansard.backends.sqlite import read, schema
from hansard.backends.sqlite.queries import QUERIES

PACKAGE = "hansard.backends.sqlite"
SOURCE = Path(str(resources.files(PACKAGE)))


def objects(connection: sqlite3.Connection) -> dict[str, str]:
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
    return {name: re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())) for name, sql in found}


def open_raw(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def make(path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        store.append_message("c", "user", "hello")


class Interrupted(sqlite3.Connection):
    """Lets another process create the store after the list of tables was read."""

    path: Path

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        found = super().execute(sql, *values)
        if "sqlite_master" in sql:
            tables = found.fetchall()
            subprocess.run([sys.executable, "-c", CREATE, str(self.path)], check=True)
            found = super().execute(f"SELECT 'none' WHERE {len(tables)} > 0")
        return found


CREATE = "import sys, hansard.sync; hansard.sync.connect('sqlite:///' + sys.argv[1]).close()"


def test_another_process_creates_the_store_during_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hansard.db"
    with open_raw(path) as connection:
        # Readers do not stop the other process.
        connection.execute("PRAGMA journal_mode = WAL")
    connect = schema.connect
    monkeypatch.setattr(Interrupted, "path", path, raising=False)
    monkeypatch.setattr(schema, "connect", lambda path, durability, _: connect(path, durability, Interrupted))
    with closing(schema.prepare(path, "full", upgrade=False)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)


def test_schema_sql_equals_all_migrations(tmp_path: Path) -> None:
    migrations = schema.prepare(tmp_path / "migrated.db", "full", upgrade=False)
    with closing(migrations) as migrated, closing(sqlite3.connect(":memory:")) as whole:
        whole.executescript((SOURCE / "schema.sql").read_text())
        assert objects(migrated) == objects(whole)


def test_every_query_is_used_and_every_used_name_exists() -> None:
    code = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    used = set(re.findall(r'(?:QUERIES\[|\.run\(|\.one\()\s*"(\w+)"', code))
    assert used == set(QUERIES)


def test_a_query_that_stands_twice_is_noticed() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse("-- a --\n-- one\nSELECT 1;\n-- a --\n-- two\nSELECT 2;\n")


HOT = {
    "find_head": ("default", "c"),
    "find_conversation": ("default", "c"),
    "find_place": ("default", "c"),
    "find_place_of_branch": ("main", "default", "c"),
    "save_counters": (1, 1, 1, 1, 1, 1, 1, 1),
    "find_message": (1, "m"),
    "tail": (1, 2, 50),
    "head": (1, 2, 50),
    "times_between": (1, 2),
    "span_between": (1, 2),
    "find_record": ("default", "", b"", "k"),
    "has_shared_records": ("default", b""),
    "find_revision": ("default", "", b"", "k"),
    "find_blob": ("default", "x"),
    "find_tombstone": ("default", "x"),
    "expired_conversations": (1, 10),
    "find_summaries": (1,),
    "add_search_rows": (1, 2),
}


@pytest.mark.parametrize("name", HOT)
def test_a_hot_query_uses_an_index(tmp_path: Path, name: str) -> None:
    with closing(schema.prepare(tmp_path / "a.db", "full", upgrade=False)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", HOT[name])]
        assert plan
        assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], plan


def test_many_ids_are_found_by_an_index(tmp_path: Path) -> None:
    with closing(schema.prepare(tmp_path / "a.db", "full", upgrade=False)) as connection:
        sql = read._find_sql(3)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1, "a", "b", "c"))]
        assert plan == ["SEARCH messages USING INDEX messages_by_id (conversation=? AND id=?)"]


@pytest.mark.parametrize("sort", ["last_message_at", "updated_at"])
@pytest.mark.parametrize("owner", [{}, {"user_id": "u"}, {"agent_id": "a"}])
def test_a_listing_walks_an_index_in_order(tmp_path: Path, sort: str, owner: dict[str, str]) -> None:
    from hansard.contract.types import Context, ConversationQuery
    from hansard.model import EPOCH

    query = ConversationQuery(sort=sort, below=(1, "x"), **owner)  # type: ignore[arg-type]
    sql, values = read._listing(Context("default", EPOCH), query)
    with closing(schema.prepare(tmp_path / "a.db", "full", upgrade=False)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    searches = [step for step in plan if "conversations" in step]
    assert len(searches) == (1 if sort == "last_message_at" else 2)
    assert all(step.startswith("SEARCH conversations USING INDEX") for step in searches), plan
    # Of those that were not changed apart from their activity, no more are looked at than can be on the page.
    assert sort == "last_message_at" or "active_at>? AND" in searches[1], plan


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("only", [(), (0,), (1,), (0, 1)])
def test_a_listing_by_update_has_imported_and_written_ones(tmp_path: Path, order: str, only: tuple[int, ...]) -> None:
    from datetime import UTC, datetime, timedelta

    from hansard import Message, sync
    from hansard.model import NOT_YET

    old = datetime(2020, 1, 1, tzinfo=UTC)
    with sync.connect(f"sqlite:///{tmp_path}/a.db") as store:
        for at in range(24):
            written = old + timedelta(days=at % 7) if at % 2 in only else NOT_YET
            store.append(f"c{at:02}", [Message("user", "x", created_at=written)])
        for at in range(0, 24, 5):
            store.update_conversation(f"c{at:02}", title="changed")
        every = store.list_conversations(limit=100).items
        wanted = [
            each.id for each in sorted(every, key=lambda each: (each.updated_at, each.id), reverse=order == "desc")
        ]
        found: list[str] = []
        cursor = None
        while cursor or not found:
            page = store.list_conversations(sort="updated_at", order=order, limit=5, after=cursor)  # type: ignore[arg-type]
            found += [each.id for each in page.items]
            cursor = page.next_cursor
        assert found == wanted
        for offset in (3, 20, 30):
            page = store.list_conversations(sort="updated_at", order=order, limit=6, offset=offset)  # type: ignore[arg-type]
            assert [each.id for each in page.items] == wanted[offset : offset + 6]


def test_pinned_messages_are_found_by_their_index(tmp_path: Path) -> None:
    from hansard.contract.types import MessageQuery

    plans: list[str] = []
    with closing(schema.prepare(tmp_path / "a.db", "full", upgrade=False)) as connection:
        connection.set_trace_callback(plans.append)
        for newest_first in (True, False):
            query = MessageQuery(pinned=True, newest_first=newest_first, limit=10)
            assert read._filtered(connection, 1, 100, query).fetchall() == []
        connection.set_trace_callback(None)
        for sql in plans:
            (step,) = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert step.startswith("SEARCH messages USING INDEX messages_pinned (key>? AND key<?)")
    assert len(plans) == 2


def test_what_an_older_file_has_pinned_is_found_after_its_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        store.append(
            "c",
            [
                hansard.Message("user", "a", pinned=True),
                hansard.Message("user", "b", metadata={"pinned": True, "odd": "\0"}),
                hansard.Message("user", "c", pinned=True, metadata={"text": '"pinned":true \0 \\u0000'}),
                hansard.Message("user", "d"),
            ],
        )
    with open_raw(path) as raw:
        raw.execute("DROP INDEX messages_pinned")
        raw.execute("ALTER TABLE messages DROP COLUMN pinned")
        raw.execute("DELETE FROM migrations WHERE name = '0003_pinned'")
    with pytest.raises(hansard.FormatMismatch, match="hansard upgrade"):
        hansard.sync.connect(f"sqlite:///{path}")
    schema.prepare(path, "full", upgrade=True).close()
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        assert [message.text for message in store.get_messages("c", pinned=True)] == ["a", "c"]
        assert [message.text for message in store.get_messages("c", pinned=False)] == ["b", "d"]
        assert store.check() == []


def test_only_a_change_that_is_no_append_is_listed_by_update(tmp_path: Path) -> None:
    """So an append costs no page of these indexes."""
    listed = (
        "SELECT id FROM conversations INDEXED BY conversations_by_update WHERE tenant = ? AND updated_at <> active_at"
    )
    with hansard.sync.connect(f"sqlite:///{tmp_path}/a.db") as store:
        for id in ("a", "b", "c"):
            store.append_message(id, "user", "Hello", user_id="u", agent_id="g")
        store.update_conversation("b", title="B")
        with open_raw(tmp_path / "a.db") as other:
            assert other.execute(listed, ("default",)).fetchall() == [("b",)]
        assert [each.id for each in store.list_conversations(sort="updated_at").items] == ["b", "c", "a"]
        store.append_message("b", "user", "Again")
        with open_raw(tmp_path / "a.db") as other:
            assert other.execute(listed, ("default",)).fetchall() == []


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with open_raw(path) as other:
        other.execute("CREATE TABLE customers (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(hansard.FormatMismatch, match="another program"):
        hansard.sync.connect(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 100)
    with pytest.raises(hansard.FormatMismatch, match="not a SQLite database"):
        hansard.sync.connect(f"sqlite:///{path}")
    assert path.read_text() == "dear diary, " * 100


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path)
    with open_raw(path) as raw:
        raw.execute("INSERT INTO migrations VALUES ('9999_from_the_future', 'x', 0)")
    with pytest.raises(hansard.FormatMismatch, match="newer version") as caught:
        hansard.sync.connect(f"sqlite:///{path}")
    assert caught.value.found == "9999_from_the_future"


def test_an_older_schema_waits_for_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    make(path)
    known = schema.migrations()
    later = schema.SqliteMigration("0099_later", "CREATE TABLE later (x INTEGER) STRICT;\n")
    monkeypatch.setattr(schema, "migrations", lambda: [*known, later])
    with pytest.raises(hansard.FormatMismatch, match="hansard upgrade"):
        schema.prepare(path, "full", upgrade=False)
    with closing(schema.prepare(path, "full", upgrade=True)) as connection:
        assert "later" in objects(connection)
        names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY name")]
    assert names == [migration.name for migration in [*known, later]]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    make(path)
    known = schema.migrations()
    broken = schema.SqliteMigration("0002_broken", "CREATE TABLE half (x INTEGER);\nCREATE TABLE half (x INTEGER);\n")
    monkeypatch.setattr(schema, "migrations", lambda: [*known, broken])
    with pytest.raises(hansard.HansardError):
        schema.prepare(path, "full", upgrade=True)
    with open_raw(path) as raw:
        assert "half" not in objects(raw)


def test_a_migration_that_was_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path)
    with open_raw(path) as raw:
        raw.execute("UPDATE migrations SET checksum = 'x'")
    with pytest.raises(hansard.Corrupt, match="another checksum than expected"):
        hansard.sync.connect(f"sqlite:///{path}")


def test_processes_may_make_a_file_at_the_same_moment(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    script = (
        "import sys, hansard.sync\n"
        f"with hansard.sync.connect('sqlite:///{path}') as store:\n"
        "    store.append_message('c', 'user', sys.argv[1])\n"
    )
    starts = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(6)]
    assert [start.wait(60) for start in starts] == [0] * 6
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        assert sorted(message.text for message in store.get_messages("c")) == [str(number) for number in range(6)]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://chats.db", "two slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///no/such/folder/a.db", "does not exist"),
        ("sqlite:///a.db?durability=some", "durability"),
        ("sqlite:///a.db?durabilty=full", "did you mean 'durability'"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hansard.ValidationError, match=words):
        hansard.sync.connect(url)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(hansard.ValidationError, match="is a folder"):
        hansard.sync.connect(f"sqlite:///{tmp_path}")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hansard.ValidationError, match="cannot be the name of a file"):
        hansard.sync.connect(f"sqlite:///{tmp_path}/{'x' * 300}.db")


def test_a_folder_that_may_not_be_entered_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)  # root may enter any folder
    with pytest.raises(hansard.Denied, match="Permission denied"):
        hansard.sync.connect(f"sqlite:///{tmp_path}/closed/chats.db")


def test_no_placeholder_has_a_number() -> None:
    """Python 3.12.0 to 3.12.3 takes one with a number for a named one, and warns when a sequence is bound to it."""
    numbered = [name for name, query in QUERIES.items() if re.search(r"\?\d", query)]
    assert numbered == []
