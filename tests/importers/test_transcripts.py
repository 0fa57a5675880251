"""Transcripts of coding agents come back byte for byte, and follow their files as these grow."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports
from tests.importers.test_importers import imported

from hansard import connect
from hansard.importers import transcripts
from hansard.importers.load import Owner
from hansard.importers.transcripts import (
    Transcript,
    has_lines,
    raw_lines,
    store_lines,
    store_new_lines,
    transcript_line,
)
from hansard.model import Message
from hansard.store import Store


def compact(lines: list[Any]) -> bytes:
    """As Node and Rust write JSON."""
    return b"".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines)


async def restored(store: Store, id: str) -> bytes:
    return b"".join([line async for line in raw_lines(store, id)])


def large_lines() -> list[Any]:
    picture = base64.b64encode(bytes(range(256)) * 64).decode()
    lines = exports.claude_code_lines()
    lines[2]["message"]["content"] = [
        {"type": "text", "text": "Größe \u2028 \x7f \x01 😀 </script>"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}},
    ]
    return lines


FILES = {
    "claude code": ("s1", "s1.jsonl", compact(exports.claude_code_lines())),
    "with a picture": ("s1", "s1.jsonl", compact(large_lines())),
    "other spaces": ("s1", "s1.jsonl", b"".join(json.dumps(x).encode() + b"\n" for x in exports.claude_code_lines())),
    "no last newline": ("s1", "s1.jsonl", compact(exports.claude_code_lines())[:-1]),
    "blank and broken lines": ("s1", "s1.jsonl", compact(exports.claude_code_lines()) + b'\n  \r\n{"half": \n[1]\n'),
    "the same line twice": ("s1", "s1.jsonl", compact([*exports.claude_code_lines(), *exports.claude_code_lines()])),
    "codex": ("019aa8d2-0000-7000-8000-000000000001", "rollout-1.jsonl", compact(exports.codex_lines())),
}
URLS = ("memory://", "sqlite:///{}/store.db", "file:///{}/store")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("kind", FILES)
async def test_a_transcript_comes_back_byte_for_byte(tmp_path: Path, kind: str, url: str) -> None:
    id, name, data = FILES[kind]
    (tmp_path / name).write_bytes(data)
    async with connect(url.format(tmp_path)) as store:
        report = await imported(store, tmp_path / name)
        assert await restored(store, id) == data
        assert report.lines == data.count(b"\n") + (not data.endswith(b"\n"))
        assert (await imported(store, tmp_path / name)).lines == 0
        assert await restored(store, id) == data


async def test_what_is_a_message_is_kept_once(tmp_path: Path) -> None:
    said = "It is a bird that stands in water. " * 2_000
    lines = exports.claude_code_lines()
    lines[-1]["message"]["content"][0]["text"] = said
    (tmp_path / "s1.jsonl").write_bytes(compact(lines))
    async with connect("memory://") as store:
        await imported(store, tmp_path / "s1.jsonl")
        records = [record async for record in store.records.iter((transcripts.NAMESPACE, "s1"))]
        assert sum(len(record.value) for record in records) < 2_000


@pytest.mark.parametrize("chunk", [1, 3, 500])
async def test_a_transcript_grows_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(transcripts, "_CHUNK_LINES", chunk)
    data = compact(exports.claude_code_lines())
    path = tmp_path / "s1.jsonl"
    async with connect("memory://") as store:
        for size in (*range(700, len(data), 157), len(data)):
            path.write_bytes(data[:size])
            await imported(store, path)
            whole = data[: data.rfind(b"\n", 0, size) + 1]
            assert await restored(store, "s1") in (whole, data[:size])
        assert await restored(store, "s1") == data


async def test_a_line_that_is_half_written_is_not_kept(tmp_path: Path) -> None:
    data = compact(exports.claude_code_lines())
    path = tmp_path / "s1.jsonl"
    path.write_bytes(data + b'{"type":"us')
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert "line 8" in report.problems[0].where
        assert await restored(store, "s1") == data


async def test_a_file_that_loses_lines_takes_none_from_the_store(tmp_path: Path) -> None:
    lines = exports.claude_code_lines()
    path = tmp_path / "s1.jsonl"
    path.write_bytes(compact(lines))
    extra = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s1"}
    async with connect("memory://") as store:
        await imported(store, path)
        path.write_bytes(compact(lines[:3]))
        assert (await imported(store, path)).lines == 0
        path.write_bytes(compact([*lines[2:4], extra]))
        assert (await imported(store, path)).lines == 1
        assert (await imported(store, path)).lines == 0
        assert await restored(store, "s1") == compact([*lines, extra])


async def test_a_deleted_message_is_not_written_again(tmp_path: Path) -> None:
    lines = exports.claude_code_lines()
    path = tmp_path / "s1.jsonl"
    path.write_bytes(compact(lines))
    async with connect("memory://") as store:
        await imported(store, path)
        await store.delete_message("s1", "ca2")
        assert await restored(store, "s1") == compact(lines[:-1])
        await store.delete_conversation("s1")
        assert [record async for record in store.records.iter((transcripts.NAMESPACE,))] == []


async def test_lines_are_the_owners_whoever_stores_and_reads_them(tmp_path: Path) -> None:
    data = compact(exports.claude_code_lines())
    path = tmp_path / "s1.jsonl"
    path.write_bytes(data)
    async with connect("memory://") as store:
        await imported(store, path, owner=Owner(user_id="ann"))
        assert await restored(store, "s1") == await restored(store.user("ann"), "s1") == data
        assert await has_lines(store, "s1")
        await store.erase_user("ann")
        assert [record async for record in store.user("ann").records.iter((transcripts.NAMESPACE,))] == []


async def test_two_who_store_lines_at_once_store_each_once() -> None:
    lines = [transcript_line(b'{"n":%d}\n' % number) for number in range(50)]
    async with connect("memory://") as store:
        await store.create_conversation("c")
        await asyncio.gather(*(store_lines(store, "c", Transcript(lines[:size])) for size in (10, 20, 30, 50)))
        assert await restored(store, "c") == b"".join(b'{"n":%d}\n' % number for number in range(50))


@pytest.mark.parametrize("owner", [None, "ann"])
async def test_lines_of_a_new_conversation_that_another_one_stores_too(owner: str | None) -> None:
    lines = [transcript_line(b'{"n":%d}\n' % number) for number in range(5)]
    async with connect("memory://") as store:
        await store.create_conversation("c", user_id=owner)
        assert await store_new_lines(store, owner, "c", Transcript([])) == 0
        assert await store_new_lines(store, owner, "c", Transcript(lines[:2])) == 2
        assert await store_new_lines(store, owner, "c", Transcript(lines)) == 3
        assert await restored(store, "c") == b"".join(b'{"n":%d}\n' % number for number in range(5))


async def test_a_conversation_without_a_transcript_has_no_lines() -> None:
    async with connect("memory://") as store:
        await store.append_message("c", "user", "Hello")
        assert await restored(store, "c") == b""
        assert not await has_lines(store, "c")


async def test_metadata_and_title_follow_the_transcript(tmp_path: Path) -> None:
    lines = exports.claude_code_lines()[1:]
    path = tmp_path / "s1.jsonl"
    path.write_bytes(compact(lines))
    async with connect("memory://") as store:
        await imported(store, path)
        (found,) = (await store.list_conversations(metadata={"project": "/home/ann/birds", "git_branch": "main"})).items
        assert found.title == "List the birds"
        assert found.metadata["model"] == "claude-sonnet-4"
        more = json.loads(json.dumps(lines[-1])) | {"uuid": "ca3", "parentUuid": "ca2", "gitBranch": "nest"}
        more |= {"costUSD": 0.25}
        more["message"]["model"] = "claude-opus-5"
        path.write_bytes(compact([*lines, more, {"type": "ai-title", "aiTitle": "Birds", "sessionId": "s1"}]))
        await imported(store, path)
        (found,) = (await store.list_conversations(metadata={"model": "claude-opus-5"})).items
        assert (found.title, found.metadata["git_branch"], found.metadata["cost"]) == ("Birds", "nest", 0.25)
        await store.update_conversation("s1", title="Mine")
        again = more | {"uuid": "ca4", "parentUuid": "ca3"}
        path.write_bytes(compact([*lines, more, again, {"type": "ai-title", "aiTitle": "Newer", "sessionId": "s1"}]))
        await imported(store, path)
        conversation = await store.get_conversation("s1")
        assert conversation is not None
        assert conversation.title == "Mine"


@pytest.mark.parametrize("line", ["{}", "[{}]", '{"a": {}}', '{"a":{}, "b":1}', "{}{}", "x{}y{}z", "x", "", "}", "{"])
def test_a_line_is_what_surrounds_its_message(line: str) -> None:
    kept = transcript_line(line.encode(), Message("user", {}, "m"))
    whole = kept.before if kept.after is None else kept.before + b"{}" + kept.after
    assert (whole.decode(), kept.after is None) == (line, "{}" not in line)
