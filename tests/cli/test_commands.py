"""The commands that read and write, run on real files."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.shell import COMMAND, Shell
from tests.wait import PATIENCE

import hansard
from hansard import Message, Usage, sync


def fill(shell: Shell, *, tenant: str = "default") -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as whole:
        store = whole.tenant(tenant)
        store.append(
            "c1",
            [
                Message("user", "注文はどこですか。" * 20, id="m1"),
                Message("assistant", [{"type": "text", "text": "On its way"}], id="m2", usage=Usage(3, 4, model="x")),
                Message("user", {"tool": [1]}, id="m3", status="interrupted", pinned=True, metadata={"hidden": True}),
            ],
            user_id="u_1",
            agent_id="helper",
            title="Where is my order? " * 10,
            metadata={"channel": "web", "n": 5},
        )
        store.append("c2", [Message("user", "Hello\x1b[31m red", id="m1")], user_id="u_2")


def test_members_see_a_conversation(shell: Shell) -> None:
    fill(shell)
    assert shell("--json", "member", "c1", "u_2", "u_3").json["members"] == ["u_2", "u_3"]
    assert "u_2, u_3" in shell("show", "c1").out
    found = shell("--json", "--user", "u_2", "conversations").json["items"]
    assert {each["id"] for each in found} == {"c1", "c2"}
    shell("--user", "u_2", "append", "c1", "user", "Me too")
    assert "only the owner" in shell.fails(9, "--user", "u_2", "delete", "c1", "--yes")
    assert shell("--json", "member", "c1", "u_2", "--remove").json["members"] == ["u_3"]
    assert "at least one user" in shell.fails(2, "member", "c1")


def test_messages_are_rated_and_labelled(shell: Shell) -> None:
    fill(shell)
    shell("rate", "c1", "m2", "-1", "--by", "u_1", "--comment", "no")
    rated = shell("--json", "rate", "c1", "m2", "5", "--by", "u_2").json
    assert [(each["value"], each["by"]) for each in rated["ratings"]] == [(-1, "u_1"), (5, "u_2")]
    assert shell("--json", "label", "c1", "billing", "late").json["labels"] == ["billing", "late"]
    assert shell("--json", "label", "c1", "wrong", "--message", "m2").json["labels"] == ["wrong"]
    for filters in (("--label", "billing"), ("--rating", "-1"), ("--rating=5",)):
        assert [each["id"] for each in shell("--json", "conversations", *filters).json["items"]] == ["c1"]
    found = shell("--json", "search", "way", "--label", "wrong", "--rating", "-1").json["items"]
    assert [hit["message"]["id"] for hit in found] == ["m2"]
    shown = shell("show", "c1").out
    assert "billing, late" in shown
    assert "wrong, rated -1, rated 5" in shown
    assert len(shell("--json", "rate", "c1", "m2", "--remove", "--by", "u_1").json["ratings"]) == 1
    assert shell("--json", "label", "c1", "billing", "late", "--remove").json["labels"] == []
    assert shell("--json", "conversations", "--label", "billing").json["items"] == []
    assert "pass a value" in shell.fails(2, "rate", "c1", "m2")
    assert "at least one label" in shell.fails(2, "label", "c1")


def test_the_first_append_creates_the_store(shell: Shell) -> None:
    missing = shell.afresh("conversations")
    assert (missing.code, missing.out) == (4, "")
    assert missing.err.startswith("hansard: there is no store at sqlite:///hansard.db")
    assert not (shell.folder / "hansard.db").exists()
    assert shell.afresh("append", "c", "user", "Hello", "--user", "u_1").out.startswith("msg_")
    page = shell.afresh("conversations", "--json").json
    assert [(each["id"], each["user_id"], each["message_count"]) for each in page["items"]] == [("c", "u_1", 1)]


def test_append_accepts_text_stdin_and_json(shell: Shell) -> None:
    first = shell("append", "c", "user", "Hello", "--message-id", "m1", "--metadata", "n=5", "--json").json
    assert first == {
        "conversation_id": "c",
        "id": "m1",
        "seq": 1,
        "branch": "main",
        "version": 1,
        "stored": True,
        "created": True,
    }
    assert not shell("append", "c", "user", "Hello", "--message-id", "m1", "--metadata", "n=5", "--json").json["stored"]
    shell("append", "c", "assistant", "-", stdin="two\nlines\n")
    shell("append", "c", "assistant", stdin="piped")
    shell("append", "c", "tool", "--content-json", '{"big": 123456789012345678901234567890}')
    shell("append", "c", "tool", "--content-json", "-", "--format", "openai.chat", stdin='["a"]')
    shell("append", "c", "user", "--", "--json")
    found = shell("show", "c", "--json").json
    assert [message["content"] for message in found["messages"]] == [
        "Hello",
        "two\nlines",
        "piped",
        {"big": 123456789012345678901234567890},
        ["a"],
        "--json",
    ]
    assert found["messages"][0]["metadata"] == {"n": 5}
    assert found["messages"][4]["format"] == "openai.chat"


def test_append_refuses_wrong_input(shell: Shell) -> None:
    assert "there is no store" in shell.fails(4, "append", "c", "user", "Hello", "--no-create")
    assert "unknown role" in shell.fails(2, "append", "c", "robot", "Hello")
    assert "not JSON" in shell.fails(2, "append", "c", "user", "--content-json", "{")
    assert "not both" in shell.fails(2, "append", "c", "user", "Hello", "--content-json", "1")
    assert "key=value" in shell.fails(2, "append", "c", "user", "Hello", "--metadata", "x")
    shell("append", "c", "user", "Hello")
    assert "no conversation 'd'" in shell.fails(4, "append", "d", "user", "Hello", "--no-create")
    assert "version 1, not 7" in shell.fails(5, "append", "c", "user", "Hello", "--expected-version", "7")
    assert "UTF-8" in shell.fails(2, "append", "c", "user", stdin=b"\xff\xfe")


def test_lists_are_readable_tables(shell: Shell) -> None:
    fill(shell)
    lines = shell("conversations").out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["ID", "USER", "AGENT", "TITLE", "MESSAGES", "LAST"]
    assert "…" in lines[2]
    assert re.search(r"3  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", lines[2])
    first = shell("conversations", "--limit", "1")
    assert len(first.out.splitlines()) == 2
    cursor = first.err.removeprefix("more: --after ").strip()
    assert shell("conversations", "--after", cursor).out.splitlines()[1].startswith("c1")
    assert len(shell("conversations", "--user", "u_1").out.splitlines()) == 2
    assert shell("conversations", "--agent", "nobody").err == "no conversations\n"
    assert len(shell("conversations", "--metadata", "n=5", "--json").json["items"]) == 1
    assert shell("conversations", "--metadata", "n=6", "--json").json["items"] == []
    assert "between 1 and 100" in shell.fails(2, "conversations", "--limit", "0")
    assert "malformed cursor" in shell.fails(2, "conversations", "--after", "cursor:nonsense")


def test_show_prints_a_readable_conversation(shell: Shell) -> None:
    fill(shell)
    text = shell("show", "c1").out
    assert "注文はどこですか。" in text
    assert "On its way" in text
    assert '{"tool":[1]}' in text
    assert "interrupted, pinned, hidden" in text
    # A terminal must not execute escape sequences in a message.
    assert "\x1b" not in shell("show", "c2").out
    assert "␛[31m" in shell("show", "c2").out
    assert shell("show", "c2", "--raw").out == "Hello\x1b[31m red\n"
    assert len(shell("show", "c1", "--last", "1", "--json").json["messages"]) == 1
    assert len(shell("show", "c1", "--all", "--json").json["messages"]) == 3
    assert "no conversation 'c9'" in shell.fails(4, "show", "c9")
    assert "no conversation 'c1'" in shell.fails(4, "show", "c1", "--user", "u_2")
    assert "no branch 'x'" in shell.fails(4, "show", "c1", "--branch", "x")


def test_show_names_blobs(shell: Shell) -> None:
    picture = "data:image/png;base64," + base64.b64encode(bytes(6000)).decode()
    shell("append", "c", "user", "--content-json", "-", stdin=json.dumps([{"url": picture}, {"text": "See"}]))
    text = shell("show", "c").out
    assert "See\n[image/png, 6.0 kB]" in text
    assert shell("show", "c", "--json").json["messages"][0]["content"][0]["url"] == picture


def test_a_long_conversation_is_shown_whole(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append("long", [Message("user", str(number)) for number in range(1500)])
    assert shell("show", "long", "--all", "--raw").out.split() == [str(number) for number in range(1500)]
    found = shell("show", "long", "--all", "--json").json
    assert len(found["messages"]) == 1500


def test_branches_are_listed_and_switched(shell: Shell) -> None:
    fill(shell)
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.branch("c1", at="m1", branch_id="other")
    rows = shell("branches", "c1").out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["main", "other"]
    assert "active" in rows[2]
    switched = shell("branches", "c1", "--switch", "main", "--json").json["items"]
    assert [branch["active"] for branch in switched] == [True, False]
    assert "no branch 'nowhere'" in shell.fails(4, "branches", "c1", "--switch", "nowhere")
    assert "no conversation" in shell.fails(4, "branches", "c9")


def test_why_shows_what_the_model_was_given(shell: Shell) -> None:
    fill(shell)
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        prompt = store.assemble_prompt("c1", token_budget=500)
        store.append_message(
            "c1", "assistant", "Soon.", id="answer", prompt_id=prompt.prompt_id, usage={"model": "m-1"}
        )
        store.delete_message("c1", "m1")
    shown = shell("why", "c1", "answer").out
    assert re.search(r"^model +m-1$", shown, re.MULTILINE)
    assert re.search(r"^tokens +\d+ of 500$", shown, re.MULTILINE)
    assert re.search(r"^m1 +.*deleted since", shown, re.MULTILINE)
    given = shell("why", "c1", "answer", "--json").json["prompt"]
    assert [each["state"] for each in given["messages"] if each["message_id"] == "m1"] == ["deleted"]
    assert "was not stored" in shell("why", "c1", "m2").err
    assert shell("why", "c1", "m2", "--json").json == {"prompt": None}
    assert "nothing" in shell.fails(4, "why", "c1", "nothing")


def test_delete_asks_for_confirmation(shell: Shell) -> None:
    fill(shell)
    assert "pass --yes" in shell.fails(2, "delete", "c1")
    refused = shell.answer("n", "delete", "c1")
    assert refused.code == 9
    assert "Delete conversation 'c1' with 3 messages? [y/N]" in refused.err
    assert "nothing was deleted" in refused.err
    accepted = shell.answer("y", "delete", "c1", "--message", "m1")
    assert accepted.code == 0
    assert accepted.out == "deleted: 1 message\nThe bytes are physically gone.\n"
    assert "no message 'm1'" in shell.fails(4, "delete", "c1", "--message", "m1", "--yes")
    assert shell("delete", "c1", "--yes", "--json").json["messages"] == 2
    assert "no conversation 'c1'" in shell.fails(4, "delete", "c1", "--yes")


def test_errors_are_json_on_request(shell: Shell) -> None:
    done = shell.run("show", "c", "--json")
    assert (done.code, done.out) == (4, "")
    assert done.error["code"] == "not_found"
    shell("append", "c", "user", "Hello")
    done = shell.run("append", "c", "user", "Hello", "--expected-version", "9", "--json")
    assert done.code == 5
    assert done.error["details"] == {"expected": 9, "actual": 1}
    done = shell.run("--json", "show")
    assert (done.code, done.error["code"]) == (2, "invalid")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["shw", "c"], 'Did you mean "show"'),
        (["show", "c", "--lats", "3"], "--last"),
        (["show", "c", "--last", "many"], "many"),
        (["conversations", "--sort", "size"], "size"),
        (["conversations", "-u", "sqlte:///x.db"], "did you mean 'sqlite'"),
        (["conversations", "-u", "x.db"], "is not a URL"),
        (["conversations", "-u", "sqlite:///"], "names no file"),
        (["stats", "-u", "memory://?size=3"], "unknown option 'size'"),
        (["purge", "--older-than", "soon"], "write an age such as 30d"),
        (["serve", "--port", "99999"], "between 0 and 65535"),
    ],
)
def test_wrong_calls_are_explained(shell: Shell, arguments: list[str], says: str) -> None:
    if "purge" in arguments:
        shell("append", "c", "user", "Hello")
    assert says in shell.fails(2, *arguments)


def test_watch_prints_new_messages(shell: Shell) -> None:
    fill(shell)
    assert "no conversation" in shell.fails(4, "watch", "nowhere")
    process = shell.start("watch", "c2", "--after", "m1", "--json")
    shell("append", "c2", "assistant", "Live", "--message-id", "live")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["id"] == "live"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_closed_pipe_is_not_an_error(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append("long", [Message("user", "x" * 1000) for _ in range(2000)])
    for arguments in (["show", "long", "--all", "--raw"], ["export"], ["show", "long", "--all"]):
        process = shell.start(*arguments)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(PATIENCE) == 141


def test_output_works_in_another_encoding(shell: Shell) -> None:
    fill(shell)
    shell.environment["PYTHONIOENCODING"] = "ascii"
    assert "\\u6ce8" in shell.afresh("show", "c1").out
    assert shell.afresh("show", "c1", "--json").json["messages"][0]["content"].startswith("注文")


def test_version_prints_the_version(shell: Shell) -> None:
    import hansard

    for arguments in (["--version"], ["version"]):
        assert shell(*arguments).out == hansard.__version__ + "\n"
    assert shell("version", "--json").json == {"version": hansard.__version__}


def test_the_installed_command_runs(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("hansard")
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip()


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
def test_a_missing_extra_is_named(package: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from hansard.cli import main; main()"
    missing = {
        "stats": "cli",
        "stats --url postgresql://a@b/c": "cli",  # its extra is installed here
        "serve": "server",
    }
    for command, expected in (("--version", None), *missing.items()):
        done = subprocess.run(
            [sys.executable, "-c", code, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if expected is None:
            assert done.returncode == 0
        else:
            assert done.stderr == f"hansard: this command needs an extra: pip install 'hansard[{expected}]'\n"
            assert done.returncode == 1


def test_one_message_names_every_missing_extra(tmp_path: Path) -> None:
    for absent in ("cyclopts", "starlette"):
        code = f"import sys; sys.modules.update({absent}=None, asyncpg=None); from hansard.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, "serve", "postgresql://a@b/c"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "needs extras: pip install 'hansard[server,postgres]'" in done.stderr


def test_the_server_needs_one_extra() -> None:
    """The extra of the server includes the command that starts it."""
    declared = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "hansard[cli]" in declared["server"]


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    for name in ("hansard", "hansard.cli"):
        done = subprocess.run(
            [sys.executable, "-m", name, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{hansard.__version__}\n"


def test_serve_names_its_missing_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from hansard.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 8
    assert done.stderr == "hansard: hansard serve needs an extra: pip install 'hansard[server]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_quick_command_imports_few_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND[0], "-X", "importtime", "-m", "hansard.cli", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for package in ("cyclopts", "rich", "starlette", "uvicorn", "sqlite3"):
        assert f" {package}\n" not in done.stderr


def test_search_prints_hits(shell: Shell) -> None:
    fill(shell)
    found = shell("search", "way")
    assert "c1 " in found.out
    assert "  On its way" in found.out
    assert "\x1b" not in found.out, "no colour outside a terminal"
    items = shell("search", "注文", "--json").json["items"]
    assert [(each["conversation_id"], each["message"]["id"]) for each in items] == [("c1", "m1")]
    assert items[0]["snippet"]["highlights"][0] == [0, 2]
    assert items[0]["score"] > 0
    assert shell("search", "way", "--user", "u_2", "--json").json["items"] == []
    assert shell("search", "nothing-like-it").err == "nothing found\n"
    question = "what is on its way to me?"
    assert "On its way" in shell("search", question).out
    assert shell("search", question, "--match", "all").err == "nothing found\n"
    assert "\x1b[31m" not in shell("search", "red").out


def test_search_options_narrow_the_hits(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        for number in range(3):
            store.append(f"c{number}", Message("user" if number else "assistant", f"word {number}"), agent_id="bot")
    narrow = ["--agent", "bot", "--role", "user", "--since", "1h", "--order", "newest"]
    page = shell("search", "word", *narrow, "--limit", "1")
    assert "word 2" in page.out
    cursor = page.err.split("more: --cursor ")[1].strip()
    page = shell("search", "word", *narrow, "--limit", "1", "--cursor", cursor)
    assert ("word 1" in page.out, page.err) == (True, "")
    assert shell("search", "word -2 -1", "-c", "c0", "--json").json["items"][0]["message"]["content"] == "word 0"
    assert len(shell("search", "word nothing", "--match", "any", "--json").json["items"]) == 3
    assert len(shell("search", "ord", "--match", "part", "--json").json["items"]) == 3
    assert shell("search", "--", "-word").err == "nothing found\n"
    # Global options may come anywhere, also before the query.
    assert len(shell("search", "--json", "--", "-nothing word").json["items"]) == 3
    assert len(shell("search", "--json", "--limit", "2", "word").json["items"]) == 2
    assert shell("search", "--user", "nobody", "word").err == "nothing found\n"
    assert shell("search", "word", "--until", "1h").err == "nothing found\n"
    assert "role" in shell.fails(2, "search", "word", "--role", "nobody")


def test_reindex_reports_the_number_of_messages(shell: Shell) -> None:
    fill(shell)
    assert shell("reindex").out == "indexed: 4 messages\n"
    assert shell("reindex", "--json").json == {"search": "index", "messages": 4, "embedder": None}
    assert "no search index" in shell("reindex", "--url", "memory://").out
    assert len(shell("search", "way", "--json").json["items"]) == 1


def test_search_by_meaning_uses_the_embedder(shell: Shell) -> None:
    fill(shell)
    own = ["--embedder", "hansard.search:Spelling"]
    assert shell("reindex", *own).out == "indexed: 4 messages\n"
    found = shell("search", "ways", "--mode", "meaning", *own, "--json").json["items"]
    assert found[0]["snippet"]["text"] == "On its way"
    assert "On its way" in shell("search", "ways", "--mode", "hybrid", *own).out
    assert shell("reindex", *own, "--forget-others").out == "indexed: 4 messages\n"
    assert "embedder" in shell.fails(2, "reindex", "--forget-others")
    assert "embedder=" in shell.fails(8, "search", "way", "--mode", "meaning")
    for wrong in ("odd", "no.such:thing", "hansard.search:Nothing"):
        assert "--embedder" in shell.fails(2, "search", "way", "--mode", "meaning", "--embedder", wrong)


def test_an_age_beyond_the_calendar_is_refused(shell: Shell) -> None:
    fill(shell)
    for option in ("--since", "--until"):
        assert f"{option} is '999999w': that is too long ago" in shell.fails(2, "search", "order", option, "999999w")


def test_unexpected_arguments_are_named(shell: Shell) -> None:
    fill(shell)
    assert "unexpected argument: c2 (see --help)" in shell.fails(2, "delete", "c1", "c2", "--yes")
    assert "unexpected arguments: x 'two words'" in shell.fails(2, "conversations", "x", "two words")
    assert len(shell("conversations", "--json").json["items"]) == 2
