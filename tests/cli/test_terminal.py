"""What a terminal shows: narrow tables, wrapped messages, tool calls, and a chat."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.cli.shell import Shell
from tests.wait import PATIENCE

from hansard import Message, Usage, sync
from hansard.cli.answer import split_blocks
from hansard.formats.parts import ToolCall, ToolResult, to_json

LONG_ID = "a-conversation-with-a-long-id-0123456789"


def fill(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append(LONG_ID, [Message("user", "word " * 40)], user_id="ann", agent_id="helper", title="A title " * 9)
        store.append("untitled", [Message("system", "Be brief."), Message("user", "Where is my parcel?\nIt is late.")])


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
def test_a_narrow_terminal_shows_whole_ids_and_leaves_out_columns(shell: Shell, columns: int) -> None:
    fill(shell)
    shown = shell.at_terminal(columns, "conversations")
    assert LONG_ID in shown
    table = shown.partition("not shown")[0]
    assert all(len(line) <= max(columns, len(LONG_ID)) for line in table.splitlines())
    left_out = re.search(r"not shown in this narrow terminal: (.*)", shown)
    assert (left_out is not None) == (columns < 120)


def test_an_untitled_conversation_is_listed_by_the_first_words_of_its_user(shell: Shell) -> None:
    fill(shell)
    (line,) = [line for line in shell("conversations").out.splitlines() if line.startswith("untitled")]
    assert "Where is my parcel?" in line
    assert "It is late" not in line


def test_messages_are_wrapped_at_words(shell: Shell) -> None:
    fill(shell)
    lines = shell.at_terminal(43, "show", LONG_ID).splitlines()
    body = [line for line in lines if "word" in line]
    assert len(body) == 5
    assert all(set(line.split()) == {"word"} for line in body)


def test_found_messages_are_wrapped_at_words(shell: Shell) -> None:
    fill(shell)
    body = [line for line in shell.at_terminal(43, "search", "word").splitlines() if "word" in line]
    assert len(body) > 3
    assert all(set(line.split()) == {"word"} for line in body)


def test_the_usage_fits_a_narrow_terminal(shell: Shell) -> None:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        usage = Usage(input_tokens=1200, output_tokens=30, cost=0.0021, model="a-model-with-a-long-name")
        store.append("c", [Message("assistant", "hello", usage=usage)], user_id="somebody", agent_id="an-agent")
    shown = shell.at_terminal(40, "usage")
    assert re.search(r"^\d{4}-\d\d-\d\d  a-model-with-.*…  0\.0021", shown, re.MULTILINE), shown
    assert "not shown in this narrow terminal" in shown
    assert "USER" in shell.at_terminal(80, "usage").splitlines()[0]


def test_show_tells_tool_calls_and_results(shell: Shell) -> None:
    calls = [to_json(ToolCall(id=f"t{number}", name=name, arguments={"order": 4711})) for number, name in CALLED]
    results = [
        Message("tool", [to_json(ToolResult(id="t1", output="held at customs"))], format="parts"),
        Message("tool", [to_json(ToolResult(id="t2", output="no such order", is_error=True))], format="parts"),
    ]
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        text = {"type": "text", "text": "I will look at both."}
        store.append("c", [Message("assistant", [text, *calls], format="parts"), *results])
    out = shell("show", "c").out
    assert "I will look at both.\n→ track_parcel {" in out
    assert '→ quote_refund {"order":4711}\n' in out
    assert "← track_parcel: held at customs\n" in out
    assert "← quote_refund failed: no such order\n" in out


CALLED = [(1, "track_parcel"), (2, "quote_refund")]


def test_a_chat_names_the_speakers_and_renders_markdown(shell: Shell) -> None:
    shown = shell.at_terminal(80, "chat", "c", "--user", "ann", "--agent", "helper", typed="**bold** words\n/quit\n")
    assert "ann> " in shown
    assert "helper (echo)" in shown
    assert "You said: bold words" in shown


def test_finished_blocks_of_an_answer_are_split_off() -> None:
    assert split_blocks("one\n\ntwo\nthree") == (["one"], "two\nthree")
    assert split_blocks("```\na\n\nb\n```\n\nend") == (["```\na\n\nb\n```"], "end")
    assert split_blocks("```\na\n\n~~~\n\n") == ([], "```\na\n\n~~~\n\n")


def test_an_empty_stdin_is_refused(shell: Shell) -> None:
    assert "stdin is empty" in shell.fails(2, "append", "c", "user")
    assert not (shell.folder / "hansard.db").exists()


def test_tail_shows_messages_of_every_conversation(shell: Shell) -> None:
    fill(shell)
    tail = shell.start("tail", "--json")
    assert tail.stdout is not None
    assert tail.stderr is not None
    assert b"waiting for messages" in tail.stderr.readline()
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        store.append(LONG_ID, [Message("assistant", "old one grows")])
        store.append("new", [Message("user", "new one", id="n1"), Message("assistant", "a", id="n2")])
        growing = store.append("new", Message("assistant", "…", id="n3", status="in_progress"))
        seen = [tail.stdout.readline().decode() for _ in range(3)]
        store.update_message("new", growing.messages[0].id, content="done", status="complete")
        seen.append(tail.stdout.readline().decode())
    assert sorted(re.findall(r'"content":"([^"]*)"', "".join(seen))) == ["a", "done", "new one", "old one grows"]
    tail.terminate()
    tail.communicate(timeout=PATIENCE)


def test_open_prints_the_address_and_serves_the_page(shell: Shell) -> None:
    fill(shell)
    opened = shell.start("open", "untitled", "--print")
    assert opened.stdout is not None
    address = opened.stdout.readline().decode().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/c/untitled", address)
    assert "Where is my parcel?" in httpx.get(address, timeout=PATIENCE).text
    opened.terminate()
    opened.communicate(timeout=PATIENCE)
    assert "no store" in shell.fails(4, "open", "-u", "sqlite:///nowhere.db")
    assert "no conversation 'nowhere'" in shell.fails(4, "open", "nowhere", "--print")
    assert "leave --user out" in shell.fails(2, "open", "--user", "ann", "--print")


def test_open_shows_the_page_of_a_tenant(shell: Shell) -> None:
    shell("append", "order", "user", "Where is it?", "--tenant", "acme")
    assert "no conversation" in shell.fails(4, "open", "order", "--print")
    opened = shell.start("open", "order", "--tenant", "acme", "--print")
    assert opened.stdout is not None
    address = opened.stdout.readline().decode().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/t/acme/c/order", address)
    assert "Where is it?" in httpx.get(address, timeout=PATIENCE).text
    opened.terminate()
    opened.communicate(timeout=PATIENCE)


def test_doctor_reports_the_store_and_fails_for_one_that_it_cannot_open(shell: Shell) -> None:
    fill(shell)
    found = {item["what"]: item for item in shell("doctor", "--json").json["items"]}
    assert found["store"]["detail"].startswith("sqlite:///hansard.db: 2 conversations, 3 messages, ")
    assert {"hansard", "python", "extras", "keys", "disk", "store", "durability", "index", "clock"} <= set(found)
    assert all(item["state"] == "ok" for item in found.values())
    Path(shell.folder, "broken.db").write_bytes(b"this is not a database" * 100)
    done = shell.run("doctor", "-u", "sqlite:///broken.db", "--json")
    assert done.code == 1
    assert [item["what"] for item in done.json["items"] if item["state"] == "error"] == ["store"]
    assert "does not exist yet" in shell("doctor", "-u", "sqlite:///new.db").out
    assert not (shell.folder / "new.db").exists()


def test_doctor_finds_an_index_that_no_search_can_use(shell: Shell) -> None:
    fill(shell)
    shell("reindex")
    with closing(sqlite3.connect(shell.folder / "hansard.db")) as database:
        database.execute("UPDATE search_state SET version = version - 1")
        database.commit()
    done = shell.run("doctor", "--json")
    assert done.code == 1
    (found,) = [item for item in done.json["items"] if item["state"] == "error"]
    assert found["what"] == "index"
    assert "hansard reindex" in found["detail"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_commands(shell: Shell, name: str) -> None:
    assert "conversations" in shell("completion", name).out


def test_bash_completes_commands_and_options(shell: Shell) -> None:
    Path(shell.folder, "completion").write_text(shell("completion", "bash").out)
    asked = "COMP_WORDS=(hansard conv); COMP_CWORD=1; COMP_LINE='hansard conv'; COMP_POINT=12; _hansard"
    options = "COMP_WORDS=(hansard show x --la); COMP_CWORD=3; COMP_LINE='hansard show x --la'; COMP_POINT=19; _hansard"
    script = f'source completion; {asked}; echo "${{COMPREPLY[@]}}"; {options}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=shell.folder, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.split() == ["conversations", "--last"]
