"""`hansard import` of files of other programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.importers import exports, more_exports

from hansard import Store, sync
from hansard.cli import output
from hansard.cli.context import CommandContext
from hansard.cli.foreign import import_foreign
from hansard.errors import NotFound, ValidationError


def test_a_file_is_recognised_counted_and_stored_once(shell: Shell) -> None:
    exports.chatgpt_zip(shell.folder / "export.zip")
    assert shell("import", "export.zip", "--dry-run", "--json").json["messages"] == 11
    shell.fails(NotFound.exit_code, "stats")
    assert shell("import", "export.zip", "--json").json["new"] == 2
    assert shell("import", "export.zip", "--from", "chatgpt", "--json").json["unchanged"] == 2
    assert "How does it fish?" in shell("show", "chat-1").out


def test_a_table_says_what_came_and_what_did_not(shell: Shell) -> None:
    more_exports.chainlit_database(shell.folder)
    done = shell("import", "chainlit.db")
    assert "hansard serve" in done.err
    assert "Chainlit: the database" in done.out
    assert "not kept: element, whose file is in another storage, 1 time, as heron.png" in done.out
    exports.jsonl(shell.folder / "s1.jsonl", exports.claude_code_lines())
    assert re.search(r"lines of transcripts +7", shell("import", "s1.jsonl").out)


def test_a_file_that_another_process_reads_is_stored_once_and_found(shell: Shell) -> None:
    body = "the heron stands in the reeds and waits " * 8
    rows = [
        {"session": f"s{number % 70}", "role": "user", "content": f"{number} {body}", "id": f"m{number}"}
        for number in range(26_000)
    ]
    path = exports.jsonl(shell.folder / "rows.jsonl", rows)
    assert path.stat().st_size > 8_000_000
    first = shell("import", "rows.jsonl", "--user", "ann", "--json").json
    assert (first["new"], first["messages"], first["problems"]) == (70, 26_000, [])
    assert shell("check", "--json").code == 0
    assert "12345 the heron" in shell("search", "12345").out
    exports.jsonl(path, [*rows, {"session": "s7", "role": "user", "content": "It strikes.", "id": "last"}])
    for given, grown in ((("--strict",), 1), ((), 0)):
        again = shell("import", "rows.jsonl", "--user", "ann", *given, "--json").json
        assert (again["new"], again["grown"], again["messages"]) == (0, grown, grown)
    assert "It strikes." in shell("show", "s7", "--last", "1", "--user", "ann").out


def test_a_small_import_does_not_search_the_store_for_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def searched(*_: object, **__: object) -> None:
        raise AssertionError("all conversations of the store were searched")

    url = f"sqlite:///{tmp_path}/store.db"
    with sync.connect(url) as store:
        store.create_conversation("others")
    monkeypatch.setattr(Store, "list_conversations", searched)
    path = exports.jsonl(tmp_path / "s1.jsonl", exports.claude_code_lines())
    context = CommandContext(url, json=True)
    code = import_foreign(path, context, importer=None, fields=None, agent=None, dry=False, strict=False)
    assert code == 0
    with sync.connect(url) as store:
        assert len(store.get_messages("s1")) == 4


def test_an_import_that_stops_says_what_is_stored(shell: Shell) -> None:
    whole = exports.chatgpt_conversation()
    conversations = [whole, whole | {"id": "b", "conversation_id": "b"}, {"id": "damaged"}]
    (shell.folder / "conversations.json").write_text(json.dumps(conversations), "utf-8")
    error = shell.fails(ValidationError.exit_code, "import", "conversations.json", "--strict")
    stored = shell("stats", "--json").json["messages"]
    assert f"it has no messages ('mapping'). {stored} messages are stored: another import adds the rest" in error


def test_an_import_that_is_interrupted_says_what_is_stored(shell: Shell) -> None:
    rows = [{"session": f"s{n // 100}", "role": "user", "content": "heron", "id": f"m{n}"} for n in range(12_000)]
    exports.jsonl(shell.folder / "rows.jsonl", rows)
    command = [sys.executable, "-c", _INTERRUPTED, "import", "rows.jsonl"]
    done = subprocess.run(command, cwd=shell.folder, env=shell.environment, capture_output=True, text=True, check=False)
    stored = shell("stats", "--json").json["messages"]
    assert 0 < stored < 12_000
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"stopped. {stored:,} messages are stored: another import adds the rest\n"
    assert shell("import", "rows.jsonl", "--json").json["messages"] == 12_000 - stored


_INTERRUPTED = """
import os, signal, sys
from hansard import importers
from hansard.cli.app import run

load = importers.load

async def interrupted(*given, **options):
    if "progress" in options:  # it is not the trial of the first conversation
        options["progress"] = lambda _: os.kill(os.getpid(), signal.SIGINT)
    return await load(*given, **options)

importers.load = interrupted
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["conversations (1).json", "chatgpt.json"])
def test_a_file_of_chatgpt_may_have_any_name(shell: Shell, name: str) -> None:
    (shell.folder / name).write_text(json.dumps([exports.chatgpt_conversation()]), "utf-8")
    report = shell("import", name, "--json").json
    assert (report["source"], report["new"], report["problems"], report["losses"]) == ("chatgpt", 1, [], {})


def test_wrong_options_name_the_remedy(shell: Shell) -> None:
    exports.chatgpt_zip(shell.folder / "export.zip")
    assert "there are chatgpt, " in shell.fails(ValidationError.exit_code, "import", "export.zip", "--from", "nobody")
    assert "--from jsonl" in shell.fails(ValidationError.exit_code, "import", "export.zip", "--map", "role=a")
    assert "no file or folder" in shell.fails(NotFound.exit_code, "import", "missing.zip")
    shell("append", "c", "user", "Hello")
    shell("export", "-o", "own.jsonl")
    assert "--dry-run" in shell.fails(ValidationError.exit_code, "import", "own.jsonl", "--dry-run")


def test_an_import_that_stores_nothing_creates_no_store(shell: Shell) -> None:
    exports.jsonl(shell.folder / "conversations.json", [{"id": "x", "mapping": 1}])
    (shell.folder / "rows.jsonl").write_text('{"role": "user", "content": "Hello"}\n' * 2 + "{broken\n", "utf-8")
    before = sorted(shell.folder.iterdir())
    for given in (("conversations.json", "--from", "chatgpt"), ("rows.jsonl", "--strict")):
        assert shell.run("import", *given).code == ValidationError.exit_code
        shell.fails(NotFound.exit_code, "stats")
        assert sorted(shell.folder.iterdir()) == before
    assert shell.run("import", "rows.jsonl").code == ValidationError.exit_code
    assert "Hello" in shell("show", "rows").out


def test_an_import_whose_conversations_are_all_refused_creates_no_store(shell: Shell) -> None:
    rows = [{"session": each * 100, "role": "user", "content": "Hello"} for each in ("one", "two")]
    exports.jsonl(shell.folder / "rows.jsonl", rows)
    before = sorted(shell.folder.iterdir())
    for given in ((), ("--strict",)):
        done = shell.run("import", "rows.jsonl", *given)
        assert done.code == ValidationError.exit_code
        assert "one': conversation_id is 300 bytes; the limit is 256" in done.out + done.err
        shell.fails(NotFound.exit_code, "stats")
        assert sorted(shell.folder.iterdir()) == before
    assert "two': conversation_id is 300 bytes" in shell.run("import", "rows.jsonl").out
    exports.jsonl(shell.folder / "rows.jsonl", [*rows, {"session": "zoo", "role": "user", "content": "Hello"}])
    done = shell.run("import", "rows.jsonl", "--json")
    assert (done.json["new"], done.json["messages"], len(done.json["problems"])) == (1, 1, 2)
    assert "Hello" in shell("show", "zoo").out


def test_a_server_is_named_by_its_url(shell: Shell) -> None:
    said = shell.fails(ValidationError.exit_code, "import", "mysql://localhost/chats")
    assert "a URL with postgresql, postgres, redis, rediss" in said


def test_conversations_become_whose_the_caller_says(shell: Shell) -> None:
    exports.chatgpt_zip(shell.folder / "export.zip")
    shell("import", "export.zip", "--user", "ann", "--tenant", "acme", "--agent", "gpt")
    found = shell("show", "chat-1", "--tenant", "acme", "--json").json["conversation"]
    assert (found["user_id"], found["agent_id"]) == ("ann", "gpt")
    shell.fails(NotFound.exit_code, "show", "chat-1")


def test_a_bar_says_the_rate_and_the_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with output.progress_bar("importing chatgpt, kB", 1_000, shown=True, unit="kB") as move:
        for done in (100, 200, 300):
            time.sleep(0.02)
            move(done)
    assert re.search(r"300/1000.*[\d,]+ kB/s, done at \d\d:\d\d:\d\d", capsys.readouterr().err)


def test_a_file_of_no_known_kind_says_how_to_name_it(shell: Shell) -> None:
    (shell.folder / "notes.txt").write_text("Nothing of the kind")
    said = shell.fails(ValidationError.exit_code, "import", "notes.txt")
    assert "notes.txt is of no known kind" in said
    assert "--from jsonl --map role=author,content=body" in said
