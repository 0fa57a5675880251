"""What the coding agents really write, read whole and line by line: both give the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.collector.agent_files import (
    CODEX_SESSION,
    SESSION,
    OpencodeDatabase,
    append,
    claude_file,
    codex_file,
    gemini_file,
)
from tests.collector.real_shapes import (
    CLAUDE_ORDER,
    CODEX_SUBAGENT,
    claude_session,
    codex_repeated_ids,
    codex_rolled_back,
    codex_session,
    codex_subagent,
    gemini_empty,
    gemini_session,
    gemini_subagent,
)
from tests.collector.test_collector import file_of, started, texts
from tests.importers.test_importers import imported

from hansard import connect
from hansard.collector import collector as collector_module
from hansard.collector.resume import resumption
from hansard.importers.report import ImportLoss
from hansard.model import Conversation
from hansard.store import Store


async def collected(store: Store, home: Path, path: Path, lines: list[bytes], *, at_once: int) -> None:
    """Collects a file while it is written, so many lines at a time."""
    collector = await started(store, home)
    for start in range(0, len(lines), at_once):
        append(path, b"".join(lines[start : start + at_once]))
        await collector.take(path)
    assert (collector.report.problems, collector.report.losses) == ([], {})


async def conversation(store: Store, id: str) -> Conversation:
    found = await store.get_conversation(id)
    assert found is not None
    return found


async def tokens(store: Store, id: str) -> dict[str, tuple[int, int]]:
    """Input and output tokens of the messages that have some."""
    found = [message async for message in store.iter_messages(id)]
    counts = {each.id: (each.usage.input_tokens, each.usage.output_tokens) for each in found if each.usage is not None}
    return {id: count for id, count in counts.items() if any(count)}


PIECES = pytest.mark.parametrize("at_once", [1, 2, 3, 100])


@PIECES
async def test_calls_of_claude_at_once_stay_on_one_branch_and_tokens_count_once(tmp_path: Path, at_once: int) -> None:
    path = claude_file(tmp_path)
    async with connect("memory://") as store:
        await collected(store, tmp_path, path, claude_session(), at_once=at_once)
        found = [message async for message in store.iter_messages(SESSION)]
        assert [each.id for each in found] == CLAUDE_ORDER
        assert len(await store.list_branches(SESSION)) == 1
        assert await tokens(store, SESSION) == {"a3": (11, 42), "a5": (11, 42), "a6": (11, 42)}
        assert {each.id for each in found if (each.metadata or {}).get("hidden")} == {"s2", "u2"}
        (row,) = await store.usage()
        assert (row.model, row.input_tokens, row.output_tokens) == ("claude-test", 33, 126)
        about = await conversation(store, SESSION)
        assert (about.title, about.metadata["cost"]) == ("Count the birds", 0.375)
        assert await file_of(store) == path.read_bytes()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/store.db"])
async def test_long_outputs_of_claudes_tools_are_kept_with_their_session(tmp_path: Path, url: str) -> None:
    path = claude_file(tmp_path)
    output = path.with_suffix("") / "tool-results" / "b1.txt"
    about = path.with_suffix("") / "subagents" / "agent-a1.meta.json"
    for each in (output, about):
        each.parent.mkdir(parents=True)
    output.write_text("heron\n" * 50_000)
    about.write_text('{"agentType":"general-purpose"}')
    async with connect(url.format(tmp_path)) as store:
        collector = await started(store.user("ann"), tmp_path)
        await collector.take(output)  # before its session
        path.write_bytes(b"".join(claude_session()))
        await collector.scan()
        about.write_text('{"agentType":"general-purpose","finished":true}')
        await collector.take(about)
        before = output.read_bytes(), about.read_bytes()
        for each in (path, output, about):
            each.unlink()
        resumed = await resumption(store, SESSION, {"HOME": str(tmp_path)})
        assert sorted(resumed.restored) == sorted(map(str, (path, output, about)))
        assert (output.read_bytes(), about.read_bytes()) == before
        await store.delete_conversation(SESSION)
        assert [record async for record in store.user("ann").records.iter(("transcript-files",))] == []


async def test_a_file_that_is_too_large_is_said_to_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "MOST", 1 << 20)
    path = claude_file(tmp_path)
    path.write_bytes(b"".join(claude_session()))
    output = path.with_suffix("") / "tool-results" / "b1.txt"
    output.parent.mkdir(parents=True)
    output.write_bytes(b"x" * (2 << 20))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        assert collector.report.losses == {"file of more than 1 MB": ImportLoss(1, str(output))}


async def test_a_file_that_cannot_be_stored_costs_no_other(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(b"".join(claude_session()))
    folder = path.with_suffix("") / "tool-results"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("heron")
    (folder / "b1.txt").write_text("heron")
    (folder / "b2.txt").write_text("heron")
    (folder / "b2.txt").chmod(0)
    is_root = os.geteuid() == 0
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        found = [record async for record in store.records.iter(("transcript-files", SESSION))]
        assert len(found) == (2 if is_root else 1)
        said = [problem.what for problem in collector.report.problems]
        assert "its name is not UTF-8" in said
        assert len(said) == (1 if is_root else 2)
        assert b"tool-results" in msgspec.json.encode(collector.report)


async def test_lines_that_are_no_messages_change_what_is_known_of_an_imported_session(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    lines = claude_session()
    path.write_bytes(b"".join(lines[:-1]))
    async with connect("memory://") as store:
        await imported(store, path)
        assert (await conversation(store, SESSION)).metadata["cost"] == 0.25
        append(path, lines[-1])
        report = await imported(store, path)
        assert (report.messages, report.lines) == (0, 1)
        assert (await conversation(store, SESSION)).metadata["cost"] == 0.375


@PIECES
async def test_codex_counts_tokens_of_answers_not_of_what_a_compaction_left(tmp_path: Path, at_once: int) -> None:
    path = codex_file(tmp_path)
    async with connect("memory://") as store:
        await collected(store, tmp_path, path, codex_session(), at_once=at_once)
        assert await tokens(store, CODEX_SESSION) == {"msg_3": (120, 30), "msg_5": (90, 10)}
        found = [message async for message in store.iter_messages(CODEX_SESSION)]
        assert [each.id for each in found if (each.metadata or {}).get("hidden")] == ["msg_1"]
        assert (await conversation(store, CODEX_SESSION)).title == "What is a heron?"


@PIECES
async def test_items_of_codex_with_the_same_id_are_all_kept(tmp_path: Path, at_once: int) -> None:
    path = codex_file(tmp_path)
    async with connect("memory://") as store, connect("memory://") as other:
        await collected(store, tmp_path, path, codex_repeated_ids(), at_once=at_once)
        assert (await imported(other, path)).problems == []
        for each in (store, other):
            said = [message.text for message in await each.get_messages(CODEX_SESSION, last=6)]
            assert said == ["You are welcome.", "And a stork?", "", "A bird, too.", "And a wren?", "A bird again."]
            assert len(await each.list_branches(CODEX_SESSION)) == 1
            counted = await tokens(each, CODEX_SESSION)
            assert [*counted.values()] == [(120, 30), (90, 10), (95, 12), (99, 13)]
        written = path.read_bytes()
        for each in (store, other):
            path.unlink()
            await resumption(each, CODEX_SESSION, {"HOME": str(tmp_path)})
            assert path.read_bytes() == written


@PIECES
async def test_turns_that_codex_went_back_are_another_branch(tmp_path: Path, at_once: int) -> None:
    path = codex_file(tmp_path)
    async with connect("memory://") as store, connect("memory://") as other:
        await collected(store, tmp_path, path, codex_rolled_back(), at_once=at_once)
        assert (await imported(other, path)).problems == []
        for each in (store, other):
            branches = [branch.id for branch in await each.list_branches(CODEX_SESSION)]
            found = {id: [one.id async for one in each.iter_messages(CODEX_SESSION, branch=id)] for id in branches}
            assert sorted(found.values()) == [
                ["msg_1", "msg_10"],
                ["msg_1", "msg_2", "rs_1", "msg_3", "msg_4", "msg_5", "msg_6", "msg_7"],
                ["msg_1", "msg_2", "rs_1", "msg_3", "msg_8", "msg_9"],
            ]
            assert found[(await conversation(each, CODEX_SESSION)).branch][-1] == "msg_10"
        path_bytes = path.read_bytes()
        path.unlink()
        await resumption(store, CODEX_SESSION, {"HOME": str(tmp_path)})
        assert path.read_bytes() == path_bytes


@PIECES
async def test_a_subagent_of_codex_is_not_the_session_that_it_copies(tmp_path: Path, at_once: int) -> None:
    path = codex_file(tmp_path)
    side = path.with_name(path.name.replace(CODEX_SESSION, CODEX_SUBAGENT))
    async with connect("memory://") as store:
        await collected(store, tmp_path, path, codex_session(), at_once=100)
        await collected(store, tmp_path, side, codex_subagent(), at_once=at_once)
        assert (await conversation(store, CODEX_SESSION)).message_count == 6
        found = [(each.role, each.text) async for each in store.iter_messages(CODEX_SUBAGENT)]
        assert found == [("user", "What is a heron?"), ("agent", "Count the herons."), ("assistant", "Seven.")]
        about = await conversation(store, CODEX_SUBAGENT)
        assert about.title == "/root/counter"
        expected: dict[str, Any] = {"is_subagent": True, "session": CODEX_SESSION, "project": "/projects/birds"}
        assert {name: about.metadata[name] for name in expected} == expected
        before = path.read_bytes(), side.read_bytes()
        path.unlink()
        side.unlink()
        resumed = await resumption(store, CODEX_SUBAGENT, {"HOME": str(tmp_path)})
        assert resumed.command == ["codex", "resume", CODEX_SESSION]
        assert (path.read_bytes(), side.read_bytes()) == before


async def test_the_folder_of_a_codex_session_that_was_imported(tmp_path: Path) -> None:
    path = codex_file(tmp_path / "elsewhere")
    path.write_bytes(b"".join(codex_session()))
    home = tmp_path / "home"
    async with connect("memory://") as store:
        await imported(store, tmp_path / "elsewhere" / ".codex")
        resumed = await resumption(store, CODEX_SESSION, {"HOME": str(home)})
        assert resumed.restored == [str(codex_file(home))]
        assert codex_file(home).read_bytes() == path.read_bytes()


@PIECES
async def test_gemini_repeats_results_and_resumed_messages(tmp_path: Path, at_once: int) -> None:
    path = gemini_file(tmp_path)
    again = path.with_name("session-2026-01-02T03-09-abcd1234.jsonl")
    async with connect("memory://") as store:
        await collected(store, tmp_path, again, gemini_empty(), at_once=at_once)
        assert (await store.stats()).conversations == 0
        await collected(store, tmp_path, path, gemini_session(), at_once=at_once)
        append(again, gemini_empty()[-1])
        await (await started(store, tmp_path)).scan()
        found = [message async for message in store.iter_messages("gem-1")]
        shown = ["ctx", "g1", "g2", "g2.1", "g4"]
        assert [each.id for each in found] == [*shown, "g7", "g8"]
        assert [each.role for each in found[1:5]] == ["user", "assistant", "tool", "assistant"]
        assert [part["type"] for part in found[2].content] == ["reasoning", "text", "tool_call"]
        assert found[3].content[0]["output"] == "Grey."
        assert found[0].metadata == {"hidden": True}
        ways = [branch.id for branch in await store.list_branches("gem-1")]
        left = [[each async for each in store.iter_messages("gem-1", branch=way)] for way in ways]
        other = next(way for way in left if way[-1].id == "g6")
        assert [each.id for each in other] == [*shown, "g5", "g6"]
        assert [part["type"] for part in other[-2].content] == ["text", "image"]
        assert len(ways) == 2
        about = await conversation(store, "gem-1")
        assert (about.title, about.metadata["transcript"]) == ("What colour is it?", str(path))
        assert await file_of(store, "gem-1") == path.read_bytes()


async def test_a_subagent_of_gemini_is_found_and_restored(tmp_path: Path) -> None:
    path = gemini_file(tmp_path)
    side = path.parent / "gem-1" / "gem-2.jsonl"
    side.parent.mkdir()
    async with connect("memory://") as store:
        await collected(store, tmp_path, path, gemini_session(), at_once=100)
        await collected(store, tmp_path, side, gemini_subagent(), at_once=1)
        assert await texts(store, "gem-2") == ["Count the herons.", "Seven."]
        about = await conversation(store, "gem-2")
        expected = {"is_subagent": True, "session": "gem-1", "project": "/projects/birds"}
        assert {name: about.metadata[name] for name in expected} == expected
        before = side.read_bytes()
        side.unlink()
        resumed = await resumption(store, "gem-2", {"HOME": str(tmp_path)})
        assert (resumed.command, resumed.restored) == (["gemini", "--resume", "gem-1"], [str(side)])
        assert side.read_bytes() == before
    async with connect("memory://") as store:
        report = await imported(store, tmp_path / ".gemini" / "tmp")
        assert (report.source, report.new, report.problems) == ("gemini-cli", 2, [])
        assert (await conversation(store, "gem-2")).metadata["session"] == "gem-1"
        resumed = await resumption(store, "gem-2", {"HOME": str(tmp_path / "home")})
        assert resumed.restored == [str(each) for each in (_at_home(path, tmp_path), _at_home(side, tmp_path))]
        assert _at_home(side, tmp_path).read_bytes() == before


def _at_home(path: Path, folder: Path) -> Path:
    return folder / "home" / path.relative_to(folder)


async def test_sessions_of_opencode_name_their_parents_and_keep_their_order(tmp_path: Path) -> None:
    database = OpencodeDatabase(tmp_path)
    database.session("ses_1")
    database.session("ses_2", parent="ses_1")
    database.message("ses_1", "msg_ffff", "user", "What is a heron?")
    database.message("ses_1", "msg_0001", "assistant", "A bird.")  # the ids began again
    database.message("ses_2", "msg_0002", "user", "Count the herons.")
    call = {"status": "completed", "input": {"command": "ls"}, "output": "heron.txt"}
    database.part("ses_1", "msg_0001", "prt_z", {"type": "tool", "tool": "bash", "callID": "c1", "state": call})
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        found = [message async for message in store.iter_messages("ses_1")]
        assert [(each.role, each.text) for each in found] == [
            ("user", "What is a heron?"),
            ("assistant", "A bird."),
            ("tool", "heron.txt"),
        ]
        assert [each.id for each in found if each.usage is not None] == ["msg_0001.1"], "tokens are the answer's"
        about = await conversation(store, "ses_2")
        assert (about.metadata["is_subagent"], about.metadata["session"]) == (True, "ses_1")
        resumed = await resumption(store, "ses_2", {"HOME": str(tmp_path)})
        assert resumed.command == ["opencode", "--session", "ses_1"]
    database.close()
