"""Transcripts are stored once, followed as they grow, and survive what happens to their files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.collector.agent_files import (
    CODEX_SESSION,
    SESSION,
    append,
    claude_entry,
    claude_file,
    claude_lines,
    codex_begin,
    codex_file,
    codex_line,
    codex_message,
    side_line,
    text_of,
)

from hansard import connect
from hansard.collector import Collector, coding_agents
from hansard.collector import collector as collector_module
from hansard.collector.resume import resumption
from hansard.collector.session_files import store_file
from hansard.errors import ConversationNotFound, NotFound, ValidationError
from hansard.importers.source import ImportSource
from hansard.importers.transcripts import Transcript, raw_lines, store_lines, transcript_line
from hansard.store import Store


async def started(store: Store, home: Path, **more: Any) -> Collector:
    collector = Collector(store, coding_agents(), environment={"HOME": str(home)}, **more)
    await collector.start()
    return collector


async def texts(store: Store, id: str = SESSION) -> list[str]:
    return [message.text async for message in store.iter_messages(id)]


async def file_of(store: Store, id: str = SESSION) -> bytes:
    return b"".join([line async for line in raw_lines(store, id)])


def numbered(first: int, last: int) -> list[str]:
    return [f"Message {number}" for number in range(first, last + 1)]


async def test_what_is_there_is_stored_with_its_project_and_model(tmp_path: Path) -> None:
    claude_file(tmp_path).write_bytes(claude_lines(1, 4))
    codex_file(tmp_path).write_bytes(codex_begin() + codex_message("user", "Hello") + codex_message("assistant", "Hi"))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        assert await texts(store) == numbered(1, 4)
        assert await texts(store, CODEX_SESSION) == ["Hello", "Hi"]
        assert (collector.report.new, collector.report.messages, collector.report.problems) == (2, 6, [])
        found = await store.list_conversations(metadata={"project": "/projects/birds", "git_branch": "main"})
        assert {each.id: (each.agent_id, each.title, each.metadata["model"]) for each in found.items} == {
            SESSION: ("claude-code", "Message 1", "claude-test"),
            CODEX_SESSION: ("codex", "Hello", "gpt-test"),
        }


async def test_only_what_was_added_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 400))
    read: list[int] = []
    opened = ImportSource.open

    def counted(source: ImportSource, name: str) -> Any:
        source.moved = read.append
        return opened(source, name)

    monkeypatch.setattr(ImportSource, "open", counted)
    async with connect("memory://") as store:
        first = await started(store, tmp_path)
        await first.scan()
        assert sum(read) >= path.stat().st_size
        read.clear()
        append(path, claude_lines(401, 402))
        await first.take(path)
        assert sum(read) == len(claude_lines(401, 402))
        read.clear()
        append(path, claude_lines(403, 404))
        again = await started(store, tmp_path)  # as after a restart
        await again.scan()
        assert sum(read) == len(claude_lines(403, 404))
        read.clear()
        await again.scan()
        assert read == []
        assert await texts(store) == numbered(1, 404)
        assert await file_of(store) == path.read_bytes()


async def test_a_half_written_line_waits(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    line = claude_lines(3, 3)
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        for piece in (line[:10], line[10:-1]):
            append(path, piece)
            await collector.take(path)
            assert await texts(store) == numbered(1, 2)
        append(path, line[-1:])
        await collector.take(path)
        assert await texts(store) == numbered(1, 3)
        assert collector.report.problems == []
        assert await file_of(store) == path.read_bytes()


async def test_branches_and_side_lines_are_followed(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 4) + side_line("x1", "m4"))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        append(path, text_of(claude_entry(5) | {"parentUuid": "x1"}) + side_line("x2", "m5"))
        await collector.take(path)
        assert await texts(store) == numbered(1, 5)
        # The user goes back, and takes another way; then the first way goes on.
        append(path, text_of(claude_entry(7, parent=2)) + text_of(claude_entry(8)))
        await collector.take(path)
        assert await texts(store) == ["Message 1", "Message 2", "Message 7", "Message 8"]
        append(path, text_of(claude_entry(6) | {"parentUuid": "x2"}) + text_of(claude_entry(9, parent=6)))
        await collector.take(path)
        assert await texts(store) == [*numbered(1, 6), "Message 9"]
        assert len(await store.list_branches(SESSION)) == 2
        assert collector.report.problems == []
        assert await file_of(store) == path.read_bytes()
    async with connect("memory://") as store:
        await (await started(store, tmp_path)).scan()
        assert await texts(store) == [*numbered(1, 6), "Message 9"]
        assert len(await store.list_branches(SESSION)) == 2


async def test_tokens_that_codex_reports_later(tmp_path: Path) -> None:
    path = codex_file(tmp_path)
    path.write_bytes(codex_begin() + codex_message("user", "Hello") + codex_message("assistant", "Hi"))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        used = {"input_tokens": 40, "output_tokens": 8}
        append(path, codex_line("event_msg", type="token_count", info={"last_token_usage": used}))
        await collector.take(path)
        append(path, codex_message("user", "Bye") + codex_message("assistant", "Bye to you"))
        await collector.take(path)
        found = await store.get_messages(CODEX_SESSION)
        assert [each.text for each in found] == ["Hello", "Hi", "Bye", "Bye to you"]
        assert found[1].usage is not None
        assert (found[1].usage.input_tokens, found[1].usage.model) == (40, "gpt-test")
        assert await file_of(store, CODEX_SESSION) == path.read_bytes()


async def test_a_subagent_is_a_conversation_of_its_session(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    side = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    side.parent.mkdir(parents=True)
    side.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        append(side, claude_lines(3, 3))
        await collector.take(side)
        id = f"{SESSION}/subagents/agent-a1"
        assert await texts(store, id) == numbered(1, 3)
        found = await store.list_conversations(metadata={"session": SESSION})
        assert [each.id for each in found.items] == [id]


async def test_folders_of_the_environment(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    path = folder / "projects" / "x" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(claude_lines(1, 2))
    environment = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(folder)}
    async with connect("memory://") as store:
        collector = Collector(store, coding_agents(), environment=environment)
        await collector.start()
        assert collector.folders() == [folder / "projects"]
        await collector.scan()
        assert await texts(store) == numbered(1, 2)


async def test_truncation_rotation_and_deletion_lose_nothing(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 6))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        path.write_bytes(claude_lines(1, 2))  # truncated in place
        await collector.take(path)
        append(path, claude_lines(3, 6) + claude_lines(7, 8))
        await collector.take(path)
        assert await texts(store) == numbered(1, 8)
        other = path.with_name("new")
        other.write_bytes(claude_lines(1, 10))  # replaced by another file
        other.replace(path)
        await collector.take(path)
        assert await texts(store) == numbered(1, 10)
        path.unlink()
        await collector.take(path)
        await collector.scan()
        assert await texts(store) == numbered(1, 10)
        assert collector.report.problems == []
        assert len(await store.list_branches(SESSION)) == 1


async def test_a_file_of_the_same_size_that_was_rewritten_is_read_again(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        path.write_bytes(claude_lines(1, 1) + claude_lines(4, 4).replace(b'"m3"', b'"m1"'))
        os.utime(path, ns=(1, 1))
        await collector.take(path)
        assert await texts(store) == ["Message 1", "Message 4"]
        assert len(await store.list_branches(SESSION)) == 2


async def test_what_was_deleted_here_stays_deleted(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        await store.delete_conversation(SESSION)
        assert [record async for record in store.records.iter(("collector",))] == [], "what was derived went too"
        append(path, claude_lines(3, 4))
        await collector.take(path)
        assert await store.get_conversation(SESSION) is None
        append(path, claude_lines(5, 6))
        await (await started(store, tmp_path)).scan()
        assert await store.get_conversation(SESSION) is None
        (record,) = [record async for record in store.records.iter(("collector",))]
        assert record.value.keys() == {"path", "version", "is_refused"}


async def test_broken_lines_are_reported_and_kept(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        append(path, b'{"half": \n\n[1]\n' + claude_lines(3, 3))
        await collector.take(path)
        assert await texts(store) == numbered(1, 3)
        assert len(collector.report.problems) == 2
        assert await file_of(store) == path.read_bytes()


async def test_what_is_no_transcript_is_left_alone(tmp_path: Path) -> None:
    claude_file(tmp_path).with_name("notes.jsonl").write_text('{"a": 1}\n')
    claude_file(tmp_path).with_name("notes.txt").write_text("hello")
    claude_file(tmp_path).with_name("link.jsonl").symlink_to("/etc/passwd")
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        await collector.take(tmp_path / "outside.jsonl")
        assert (await store.stats()).conversations == 0
        assert collector.report.problems == []


async def test_a_title_that_was_given_here_stays(tmp_path: Path) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        append(path, text_of({"type": "ai-title", "aiTitle": "Birds", "sessionId": SESSION}))
        await collector.take(path)
        found = await store.get_conversation(SESSION)
        assert found is not None
        assert found.title == "Birds"
        await store.update_conversation(SESSION, title="Mine")
        append(path, text_of({"type": "ai-title", "aiTitle": "Herons", "sessionId": SESSION}) + claude_lines(3, 3))
        await collector.take(path)
        found = await store.get_conversation(SESSION)
        assert found is not None
        assert found.title == "Mine"


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/store.db"])
async def test_two_collectors_at_once_store_everything_once(tmp_path: Path, url: str) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 40))
    async with connect(url.format(tmp_path)) as store, connect(url.format(tmp_path)) as second:
        others = store if url.startswith("memory") else second
        both = [await started(store, tmp_path), await started(others, tmp_path)]
        await asyncio.gather(*(each.scan() for each in both))
        for number in range(41, 80):
            fork = claude_entry(number, parent=number - 3 if number % 7 == 0 else None)
            append(path, text_of(fork) + side_line(f"x{number}", f"m{number}"))
            await asyncio.gather(*(each.take(path) for each in both))
        count = (await store.stats()).messages
        assert count == 79
        assert await file_of(store) == path.read_bytes()
        async with connect("memory://") as fresh:
            await (await started(fresh, tmp_path)).scan()
            assert await texts(fresh) == await texts(store)
            assert len(await fresh.list_branches(SESSION)) == len(await store.list_branches(SESSION))


async def test_large_additions_are_stored_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_MOST", 1_000)
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect("memory://") as store:
        told: list[Any] = []
        collector = await started(store, tmp_path, on_collected=told.append)
        await collector.scan()
        append(path, claude_lines(3, 100))
        await collector.take(path)
        assert await texts(store) == numbered(1, 100)
        assert len(told) > 10
        assert await file_of(store) == path.read_bytes()


# Resuming


async def test_a_deleted_transcript_is_written_again(tmp_path: Path) -> None:
    path, other = claude_file(tmp_path), codex_file(tmp_path)
    path.write_bytes(claude_lines(1, 4) + side_line("x1", "m4"))
    other.write_bytes(codex_begin() + codex_message("user", "Hello"))
    environment = {"HOME": str(tmp_path)}
    async with connect("memory://") as store:
        await (await started(store, tmp_path)).scan()
        found = await resumption(store, SESSION, environment)
        assert (found.command, found.folder, found.restored) == (["claude", "--resume", SESSION], "/projects/birds", [])
        before = path.read_bytes(), other.read_bytes()
        path.unlink()
        path.parent.rmdir()
        other.unlink()
        found = await resumption(store, SESSION, environment)
        assert found.restored == [str(path)]
        found = await resumption(store, CODEX_SESSION, environment)
        assert (found.command, found.restored) == (["codex", "resume", CODEX_SESSION], [str(other)])
        assert (path.read_bytes(), other.read_bytes()) == before
        assert list(path.parent.iterdir()) == [path]
        collector = await started(store, tmp_path)
        await collector.scan()  # a restored file is nothing new
        assert collector.report.messages == 0


@pytest.mark.parametrize("name", ["{}/keys", "{}/home/.claude/projects/../../keys"])
async def test_nothing_is_written_outside_of_the_folders_of_the_agent(tmp_path: Path, name: str) -> None:
    home, target = tmp_path / "home", name.format(tmp_path)
    lines = Transcript([transcript_line(b"not a transcript")])
    async with connect("memory://") as store:
        for id in ("by-transcript", "../../../by-id", "by-file"):
            await store.append_message(id, "user", "x")
            about = {"imported_from": "claude-code", "project": "/p"}
            await store.update_conversation(id, metadata=about | ({"transcript": target} if "trans" in id else {}))
            if id != "by-file":
                await store_lines(store, id, lines)
        claude_file(home)
        known = home / ".claude" / "projects" / "-p" / "by-file.jsonl"
        known.parent.mkdir()
        known.write_text("")
        (tmp_path / "other").write_text("x")
        await store_file(store, "by-file", tmp_path / "other")
        (tmp_path / "other").unlink()
        for id in ("by-transcript", "../../../by-id", "by-file"):
            with pytest.raises(ValidationError, match="in no folder of claude-code"):
                await resumption(store, id, {"HOME": str(home)})
        await store.append_message("--yolo", "user", "x")
        await store.update_conversation("--yolo", metadata={"imported_from": "claude-code"})
        with pytest.raises(ValidationError, match="would be an option"):
            await resumption(store, "--yolo", {"HOME": str(home)})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [known]


async def test_what_cannot_be_resumed_says_why(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        with pytest.raises(ConversationNotFound):
            await resumption(store, "missing")
        await store.append_message("mine", "user", "Hello")
        with pytest.raises(ValidationError, match="no coding agent"):
            await resumption(store, "mine")
        await store.create_conversation("gone", metadata={"imported_from": "codex", "transcript": f"{tmp_path}/x"})
        with pytest.raises(NotFound, match="not stored"):
            await resumption(store, "gone")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/store.db", "file:///{}/store"])
async def test_everything_belongs_to_the_user_whose_view_it_is(tmp_path: Path, url: str) -> None:
    path = claude_file(tmp_path)
    path.write_bytes(claude_lines(1, 2))
    async with connect(url.format(tmp_path)) as store:
        mine = store.user("ann")
        await (await started(mine, tmp_path)).scan()
        append(path, claude_lines(3, 4))
        again = await started(mine, tmp_path)
        await again.scan()
        assert again.report.messages == 2
        conversation = await store.get_conversation(SESSION)
        assert conversation is not None
        assert conversation.user_id == "ann"
        assert await file_of(mine) == await file_of(store) == path.read_bytes()
        await store.erase_user("ann")
        assert await store.get_conversation(SESSION) is None
        assert [record async for record in mine.records.iter(("collector",))] == []
