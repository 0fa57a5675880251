"""Export, import, copy, backup and restore on real files."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.shell import COMMAND, Shell
from tests.transfer.rich import contents, fill
from tests.wait import PATIENCE

import hansard
from hansard import Message, sync
from hansard.errors import ValidationError


def filled(folder: Path, name: str = "hansard.db") -> None:
    async def go() -> None:
        async with hansard.connect(f"sqlite:///{folder}/{name}") as store:
            await fill(store)
            await store.tenant("acme").append_message("only here", "user", "Hello")

    asyncio.run(go())


def held(folder: Path, name: str, tenant: str = "default") -> object:
    async def go() -> object:
        async with hansard.connect(f"sqlite:///{folder}/{name}") as store:
            return await contents(store.tenant(tenant))

    return asyncio.run(go())


def test_an_export_is_imported_exactly(shell: Shell) -> None:
    filled(shell.folder)
    done = shell("export", "-o", "x.jsonl")
    assert (done.out, done.err) == ("", "exported 37 messages to x.jsonl\n")
    assert "exists already" in shell.fails(5, "export", "-o", "x.jsonl")
    shell("export", "-o", "x.jsonl", "--force")
    assert not (shell.folder / "x.jsonl.part").exists()
    text = shell("import", "x.jsonl", "--url", "sqlite:///other.db").out
    assert text.startswith("Imported: 6 conversations, 37 messages, 2 summaries, 7 records, 2 blobs\n")
    assert text.endswith("Verified: hashes and counts agree.\n")
    assert held(shell.folder, "other.db") == held(shell.folder, "hansard.db")
    verified = shell("import", "x.jsonl", "--url", "sqlite:///third.db", "--verify").out
    assert verified.endswith("Verified: everything was read back and is equal.\n")
    again = shell("import", "x.jsonl", "--url", "sqlite:///other.db", "--json").json
    assert (again["conversations"], again["skipped"], again["skipped_records"]) == (0, 6, 7)


def test_an_export_may_go_through_a_pipe(shell: Shell) -> None:
    filled(shell.folder)
    lines = shell("export", "--user", "u_2").out
    assert json.loads(lines.splitlines()[0])["user"] == "u_2"
    report = shell("import", "-", "-u", "sqlite:///other.db", "--tenant", "new", "--json", stdin=lines).json
    assert (report["conversations"], report["messages"], report["records"]) == (1, 25, 2)
    only = shell("export", "empty", "mine").out.splitlines()
    assert json.loads(only[-1])["conversations"] == 2
    assert "no conversation 'nowhere'" in shell.fails(4, "export", "nowhere")


def test_a_file_that_is_not_an_export_is_refused(shell: Shell) -> None:
    filled(shell.folder)
    whole = shell("export").out
    (shell.folder / "cut.jsonl").write_text(whole[: len(whole) // 2])
    assert "damaged at line" in shell.fails(6, "import", "cut.jsonl", "-u", "sqlite:///b.db")
    report = shell("import", "-", "-u", "sqlite:///b.db", "--json", stdin=whole).json
    assert report["conversations"] + report["skipped"] == 6
    (shell.folder / "notes.txt").write_text("Dear diary")
    assert "not a Hansard export" in shell.fails(2, "import", "notes.txt")
    assert "there is no file" in shell.fails(4, "import", "nowhere.jsonl")


def test_conflicts_have_their_exit_code(shell: Shell) -> None:
    filled(shell.folder)
    shell("append", "mine", "user", "Another one", "-u", "sqlite:///b.db")
    done = shell.run("copy", "sqlite:///hansard.db", "sqlite:///b.db")
    assert done.code == 5
    assert "Conflicts, left unchanged (1):" in done.out
    assert "conversation 'mine': the target holds another one" in done.out
    assert "conversation 'mine'" in shell.fails(
        5, "copy", "sqlite:///hansard.db", "sqlite:///b.db", "--on-conflict", "error"
    )


def test_a_copy_is_exact_and_repeatable(shell: Shell) -> None:
    filled(shell.folder)
    done = shell("copy", "sqlite:///hansard.db", "sqlite:///b.db", "--json").json
    assert (done["conversations"], done["messages"], done["verified"]) == (6, 37, True)
    assert held(shell.folder, "b.db") == held(shell.folder, "hansard.db")
    shell("append", "mine", "user", "More")
    assert "Copied: 1 conversation, 1 message," in shell("copy", "sqlite:///hansard.db", "sqlite:///b.db").out
    done = shell("copy", "sqlite:///hansard.db", "sqlite:///c.db", "--user", "u_1", "--json").json
    assert (done["conversations"], done["records"]) == (1, 2)
    done = shell("copy", "sqlite:///hansard.db", "sqlite:///d.db", "--tenant", "acme", "--json").json
    assert done["conversations"] == 1
    assert held(shell.folder, "d.db", "acme") == held(shell.folder, "hansard.db", "acme")
    done = shell("copy", "sqlite:///hansard.db", "sqlite:///d.db", "--all-tenants", "--json").json
    assert (done["conversations"], done["skipped"]) == (6, 1)
    assert shell("tenants", "-u", "sqlite:///d.db").out.split() == ["acme", "default"]
    assert "there is no store" in shell.fails(4, "copy", "sqlite:///nowhere.db", "sqlite:///e.db")
    assert not (shell.folder / "e.db").exists()
    assert "leave --tenant" in shell.fails(
        2, "copy", "sqlite:///hansard.db", "sqlite:///e.db", "--all-tenants", "--tenant", "acme"
    )


def test_copying_into_none_is_not_a_success(shell: Shell) -> None:
    filled(shell.folder)
    done = shell.run("copy", "sqlite:///hansard.db", "none://")
    assert done.code == 6
    assert "none stores nothing" in done.out
    assert "NOT verified" in done.out


def test_an_interrupted_import_continues(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        for number in range(20):
            store.append(f"c{number}", [Message("user", "x" * 200) for _ in range(100)])
    lines = shell("export").out
    process = shell.start("import", "-", "-u", "sqlite:///b.db", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(lines[: len(lines) // 2].encode())
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE
    while not (shell.folder / "b.db").exists() or _count(shell) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    # Its input stays open until it has ended, because the end of input would stop it too.
    process.wait(timeout=PATIENCE)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == b""
    assert b"run the same command again" in err
    report = shell("import", "-", "-u", "sqlite:///b.db", "--json", stdin=lines).json
    assert report["skipped"] > 0
    assert report["conversations"] + report["skipped"] == 20
    assert shell("stats", "-u", "sqlite:///b.db", "--json").json["messages"] == 2000


def _count(shell: Shell) -> int:
    try:
        with sync.connect(f"sqlite:///{shell.folder}/b.db") as store:
            return store.stats().conversations
    except hansard.HansardError:
        return 0


def test_a_restored_backup_is_exact(shell: Shell) -> None:
    filled(shell.folder)
    assert shell("backup", "saved.db").err.startswith("backed up to saved.db, ")
    assert "exists already" in shell.fails(2, "backup", "saved.db")
    shell("delete", "mine", "--yes")
    assert "nothing is overwritten" in shell.fails(5, "restore", "saved.db")
    assert shell("restore", "saved.db", "-u", "sqlite:///back.db", "--json").json["file"] == "back.db"
    assert shell("show", "mine", "-u", "sqlite:///back.db", "--json").json["conversation"]["message_count"] == 25
    assert shell("check", "-u", "sqlite:///back.db").out == "nothing is wrong\n"
    assert sorted(path.name for path in shell.folder.iterdir()) == ["back.db", "hansard.db", "saved.db"]


def test_files_are_backed_up_as_a_folder(shell: Shell) -> None:
    filled(shell.folder)
    url = f"file://{shell.folder}/chats"
    assert "there is no store" in shell.fails(4, "stats", "-u", url)
    assert shell("copy", "sqlite:///hansard.db", url, "--json").json["verified"]
    shell("backup", "saved", "-u", url)
    assert "nothing is overwritten" in shell.fails(5, "restore", "saved", "-u", url)
    (shell.folder / "empty").mkdir()
    assert "there is no store" in shell.fails(4, "stats", "-u", "file:empty")
    shell("restore", "saved", "-u", "file:empty")
    assert shell("copy", "file:empty", "sqlite:///again.db", "--json").json["verified"]
    assert held(shell.folder, "again.db") == held(shell.folder, "hansard.db")
    (shell.folder / "other").mkdir()
    assert "not a backup" in shell.fails(7, "restore", "other", "-u", "file:new")
    assert "use `hansard copy`" in shell.fails(8, "restore", "saved", "-u", "sqlite:///new.db")


def test_restoring_another_file_is_refused(shell: Shell) -> None:
    filled(shell.folder)
    shell("export", "-o", "x.jsonl")
    assert "Imported: 6 conversations" in shell("restore", "x.jsonl", "-u", "sqlite:///b.db").out
    assert "there is no file" in shell.fails(4, "restore", "nowhere.db")
    shell("backup", "saved.db")
    assert "use `hansard copy`" in shell.fails(8, "restore", "saved.db", "-u", "memory://")
    broken = bytearray((shell.folder / "saved.db").read_bytes())
    broken[100:] = bytes(len(broken) - 100)
    (shell.folder / "broken.db").write_bytes(broken)
    error = shell.fails(6, "restore", "broken.db", "-u", "sqlite:///c.db")
    assert "the backup broken.db is damaged, and was not restored" in error
    lost = sqlite3.connect(shell.folder / "saved.db", isolation_level=None)
    lost.execute("DELETE FROM messages WHERE key = (SELECT max(key) FROM messages)")
    lost.close()
    assert "the backup saved.db is damaged" in shell.fails(6, "restore", "saved.db", "-u", "sqlite:///c.db")
    assert not (shell.folder / "c.db").exists()
    assert not (shell.folder / "c.db.restoring").exists()


def test_a_full_or_read_only_disk_is_reported(shell: Shell) -> None:
    filled(shell.folder)
    assert "No such file or directory" in shell.fails(1, "export", "-o", "nowhere/x.jsonl")
    if Path("/dev/full").exists():
        with Path("/dev/full").open("wb") as full:
            process = subprocess.run(
                [*COMMAND, "export"],
                cwd=shell.folder,
                env=shell.environment,
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert process.returncode == 1
        assert b"No space left on device" in process.stderr
        assert b"Traceback" not in process.stderr


@pytest.mark.parametrize("command", ["export", "backup", "check", "stats", "usage", "tenants", "purge", "upgrade"])
def test_read_only_commands_create_no_store(shell: Shell, command: str) -> None:
    arguments = [command, "out.file"] if command == "backup" else [command]
    assert "there is no store" in shell.fails(4, *arguments)
    assert list(shell.folder.iterdir()) == []


# Other formats


def test_an_export_in_another_format(shell: Shell) -> None:
    shell("append", "c", "user", "Hello, Ann")
    shell("append", "c", "assistant", "Hello to you")
    assert '{"role":"assistant","content":"Hello to you"}' in shell("export", "--as", "openai").out
    done = shell("export", "--as", "html", "-o", "page.html")
    assert "exported 1 conversation, 2 messages to page.html" in done.err
    assert "Hello to you" in (shell.folder / "page.html").read_text("utf-8")
    assert shell("export", "--as", "csv", "-o", "c.csv", "--since", "1h", "--json").json["messages"] == 2
    assert shell("export", "--as", "csv", "-o", "d.csv", "--until", "1h", "--json").json["messages"] == 0
    assert "there are hansard, openai" in shell.fails(ValidationError.exit_code, "export", "--as", "word")
    assert shell("export", "-o", "e.jsonl", "--model", "small", "--json").json["messages"] == 0


def test_an_export_is_redacted_by_a_function_of_the_callers(shell: Shell) -> None:
    (shell.folder / "rules.py").write_text(
        "def hide(text):\n    return text.replace('Ann', '***')\n\ndef fail(text):\n    raise OSError('no model')\n"
    )
    shell("append", "c", "user", "Hello, Ann")
    assert "Hello, Ann" in shell("export", "--as", "markdown").out
    assert "Hello, ***" in shell("export", "--as", "markdown", "--redact", "rules:hide").out
    shell.fails(1, "export", "--as", "markdown", "--redact", "rules:fail", "-o", "out.md")
    assert sorted(path.name for path in shell.folder.glob("out*")) == []
    assert "cannot be imported" in shell.fails(
        ValidationError.exit_code, "export", "--as", "csv", "--redact", "no:where"
    )
    assert "package.module:function" in shell.fails(ValidationError.exit_code, "export", "--as", "csv", "--redact", "x")


def test_an_export_into_a_missing_folder_names_it(shell: Shell) -> None:
    shell("append", "c", "user", "Hi")
    assert shell.fails(1, "export", "-o", "missing/chats.jsonl") == "hansard: No such file or directory: missing\n"
