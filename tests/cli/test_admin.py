"""The commands that maintain a store."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from hansard import Message, Usage, sync
from hansard.cli.output import preview, size
from hansard.cli.values import moment, visible
from hansard.errors import ValidationError

CLEAN = "The storage contains no remnants of earlier deletions.\n"
GOLDEN = Path(__file__).parent.parent / "adapters" / "golden" / "langgraph-1"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def fill(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db", clock=lambda: LONG_AGO) as store:
        usage = Usage(10, 20, cost=0.5, model="small")
        store.append("old", [Message("user", "Hello"), Message("assistant", "Hi", usage=usage)], user_id="u_1")
        store.tenant("acme").append("old", [Message("user", "Hello")], user_id="u_9")
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append("new", [Message("user", "Hello", usage=Usage(1, 2, model="big"))], user_id="u_2")


def test_stats_and_tenants_are_shown(shell: Shell) -> None:
    fill(shell)
    whole = shell("stats", "--json").json
    assert (whole["tenants"], whole["conversations"], whole["messages"]) == (2, 3, 4)
    assert shell("stats", "--tenant", "acme", "--json").json["conversations"] == 1
    text = shell("stats").out
    assert "sqlite" in text
    assert "kB" in text
    assert shell("tenants").out == "acme\ndefault\n"
    assert shell("tenants", "--json").json == {"items": ["acme", "default"]}
    assert "no statistics" in shell.fails(9, "stats", "--user", "u_1")


def test_deleting_a_tenant_asks_for_confirmation(shell: Shell) -> None:
    fill(shell)
    assert "pass --yes" in shell.fails(2, "tenants", "--delete", "acme")
    assert "no tenant 'acne'" in shell.fails(4, "tenants", "--delete", "acne", "--yes")
    asked = shell.answer("", "tenants", "--delete", "acme")
    assert (asked.code, "Delete tenant 'acme' with 1 conversation?" in asked.err) == (9, True)
    assert shell("tenants", "--delete", "acme", "--yes", "--json").json["conversations"] == 1
    assert shell("tenants").out == "default\n"


def test_usage_is_shown_by_day_and_model(shell: Shell) -> None:
    fill(shell)
    rows = shell("usage", "--json").json["items"]
    assert (rows[0]["day"], rows[0]["model"], rows[0]["input_tokens"]) == ("2020-01-01", "small", 10)
    assert len(shell("usage", "--until", "2020-01-02", "--json").json["items"]) == 1
    by_model = shell("usage", "--by", "model", "--json").json["items"]
    assert [(row["model"], row["messages"]) for row in by_model] == [("big", 1), ("small", 1)]
    assert "0.5000" in shell("usage").out
    assert [row["model"] for row in shell("usage", "--since", "7d", "--json").json["items"]] == ["big"]
    assert len(shell("usage", "--until", "7d", "--json").json["items"]) == 1
    assert "an age such as 30d" in shell.fails(2, "usage", "--since", "yesterday")
    assert "too long ago" in shell.fails(2, "usage", "--since", "999999w")
    assert shell("usage", "--since", "2999-01-01").err == "no usage\n"


def test_check_reports_problems_with_an_exit_code(shell: Shell) -> None:
    fill(shell)
    assert shell("check").out == "nothing is wrong\n"
    assert shell("check", "--tenant", "acme", "--json").json == {"problems": [], "durability": "machine"}
    with sqlite3.connect(shell.folder / "hansard.db") as db:
        db.execute("UPDATE conversations SET message_count = 7 WHERE id = 'new'")
    db.close()
    done = shell.run("check")
    assert done.code == 6
    assert "message_count is 7" in done.out
    done = shell.run("check", "--json")
    assert done.code == 6
    assert "new" in done.json["problems"][0]["where"]


def test_purge_deletes_old_conversations(shell: Shell) -> None:
    fill(shell)
    assert shell("purge", "--older-than", "30d", "--dry-run").out == "would delete: 1 conversation, 2 messages\n"
    assert "pass --yes" in shell.fails(2, "purge", "--older-than", "30d")
    assert shell("purge", "--older-than", "3000w", "--yes").out == f"deleted: nothing\n{CLEAN}"
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append("imported", Message("user", "old", created_at=LONG_AGO))
    assert shell("purge", "--older-than", "30d", "--by", "updated", "--dry-run").out.startswith("would delete: 1 ")
    assert shell("purge", "--older-than", "30d", "--dry-run").out.startswith("would delete: 2 conversations")
    shell("delete", "imported", "--yes")
    assert shell("purge", "--older-than", "2021-01-01", "--all-tenants", "--dry-run", "--json").json["messages"] == 3
    assert shell("purge", "--older-than", "30d", "--yes", "--json").json["conversations"] == 1
    assert shell("purge", "--older-than", "30d", "--all-tenants", "--yes").out.startswith("deleted: 1 conversation")
    assert shell("purge").out == f"deleted: nothing\n{CLEAN}"
    assert [each["id"] for each in shell("conversations", "--json").json["items"]] == ["new"]


def test_erase_user_deletes_everything_of_the_user(shell: Shell) -> None:
    fill(shell)
    assert "pass --yes" in shell.fails(2, "erase-user", "u_1")
    said = shell("erase-user", "u_1", "--yes").out
    assert said.startswith("erased: 1 conversation, 2 messages")
    assert said.endswith("The bytes are physically gone.\n")
    assert shell("erase-user", "u_1", "--yes").out == "erased: nothing\n"


def test_a_receipt_names_the_command_that_finishes_the_deletion(shell: Shell) -> None:
    fill(shell)
    with closing(sqlite3.connect(shell.folder / "hansard.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM messages").fetchall()
        said = shell("delete", "new", "--yes").out
        assert "not all physically gone" in said
        assert "`hansard purge`" in said
        assert "not all physically gone" in shell("purge").out
        assert shell("erase-user", "u_1", "--yes", "--json").json["physically_gone"] is False
    assert shell("purge").out == f"deleted: nothing\n{CLEAN}"


def test_erase_user_deletes_expired_data_of_a_tenant(shell: Shell) -> None:
    path = shell.folder / "hansard.db"
    with sync.connect(f"sqlite:///{path}", clock=lambda: LONG_AGO) as store:
        later = LONG_AGO + timedelta(days=1)
        store.tenant("acme").append("c", Message("user", "canary-xyzzy"), user_id="ann", expires_at=later)
    said = shell("erase-user", "ann", "--tenant", "acme", "--yes").out
    assert said.startswith("erased: 1 conversation, 1 message")
    assert b"canary-xyzzy" not in path.read_bytes()


def test_vacuum_shrinks_the_file(shell: Shell) -> None:
    path = shell.folder / "hansard.db"
    with sync.connect(f"sqlite:///{path}") as store:
        store.append("large", [Message("user", f"{number} " + "word " * 500) for number in range(400)])
        store.append("small", Message("user", "stays"))
        store.delete_conversation("large")
        before = path.stat().st_size
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("SELECT count(*) FROM messages").fetchone()
            assert shell("vacuum").out.startswith("vacuumed: ")
        assert path.stat().st_size < before / 3
        assert [message.text for message in store.get_messages("small")] == ["stays"]
        store.append_message("small", "user", "on")
        assert store.check() == []
    done = shell("vacuum", "--json").json
    assert done["bytes_before"] == done["bytes_after"]
    assert "memory backend cannot vacuum: it frees deleted data at once" in shell.fails(
        8, "vacuum", "--url", "memory://"
    )


def test_a_damaged_store_is_reported_in_one_line(shell: Shell) -> None:
    fill(shell)
    path = shell.folder / "hansard.db"
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'search_state'").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(content)
    for command in ("check", "stats", "conversations"):
        error = shell.fails(6, command)
        assert "is damaged" in error
        assert "restore a backup" in error
        assert "Traceback" not in error


def test_upgrading_a_current_store_changes_nothing(shell: Shell) -> None:
    fill(shell)
    assert "has the format of Hansard" in shell("upgrade").err
    assert shell("stats", "--json").json["messages"] == 4


def test_upgrade_rewrites_checkpoints_of_langgraph(shell: Shell) -> None:
    shutil.copy(GOLDEN / "store.db", shell.folder / "hansard.db")
    assert shell("upgrade", "--json").json["checkpoints"] > 50
    assert shell("upgrade", "--json").json["checkpoints"] == 0


def test_bench_leaves_nothing_behind(shell: Shell) -> None:
    fill(shell)
    found = shell("bench", "--messages", "20", "--url", "sqlite:///hansard.db", "--json").json
    assert [item["count"] for item in found["items"]] == [20, 10, 10, 10]
    assert all(item["per_second"] > 0 for item in found["items"])
    assert shell("tenants").out == "acme\ndefault\n"
    assert "append one message" in shell("bench", "--messages", "20").out
    assert sorted(path.name for path in shell.folder.iterdir()) == ["hansard.db"]
    assert "at least 1" in shell.fails(2, "bench", "--messages", "0")


def test_a_file_that_is_not_a_store_is_refused(shell: Shell) -> None:
    (shell.folder / "notes.db").write_text("Dear diary, " * 500)
    assert shell.run("stats", "-u", "sqlite:///notes.db").code in (6, 7)
    with sqlite3.connect(shell.folder / "foreign.db") as db:
        db.execute("CREATE TABLE diary (day TEXT)")
    db.close()
    assert shell.run("stats", "-u", "sqlite:///foreign.db").code in (6, 7)


# Values


def test_ages_and_dates_are_parsed() -> None:
    assert moment("30d", "x") == timedelta(days=30)
    assert moment(" 2W ", "x") == timedelta(weeks=2)
    assert moment("90s", "x") == timedelta(seconds=90)
    assert moment("2020-01-01T00:00:00+00:00", "x") == LONG_AGO
    for wrong in ("soon", "", "5", "-5d", "1.5h", "99999999999999w", "²d"):
        with pytest.raises(ValidationError):
            moment(wrong, "x")


def test_text_is_escaped_and_previews_are_cut_by_display_width() -> None:
    assert visible("a\x1b[0m\x07\x9b\u202eb\n\tc") == "a␛[0m␇��b\n\tc"
    assert preview("注文" * 100, 10) == "注文注文 …"
    assert preview("one\n two\tthree", 60) == "one two three"
    assert preview(None) == ""
    assert [size(count) for count in (0, 999, 1000, 1_500_000, None)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "1.5 MB",
        None,
    ]


@pytest.mark.parametrize("option", ["--tenant", "--user"])
@pytest.mark.parametrize("command", ["stats", "check", "purge", "keys create bot", "conversations", "append c user Hi"])
def test_an_empty_view_is_refused(shell: Shell, option: str, command: str) -> None:
    """A script with an unset variable must not get every tenant, nor a key of every user."""
    fill(shell)
    assert f"{option} is empty" in shell.fails(2, *command.split(), option, "")
    assert not (shell.folder / "hansard-keys.json").exists()


@pytest.mark.parametrize("days", ["1e300", "inf", "nan"])
def test_a_key_cannot_end_beyond_the_calendar(shell: Shell, days: str) -> None:
    assert "--days is" in shell.fails(2, "keys", "create", "bot", "--days", days)
    assert shell("keys", "--json").json["items"] == []
