"""Damaged and hostile sources: reported with their place, in bounded memory, and the rest goes on."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports
from tests.importers.test_importers import as_json, imported, texts

from hansard import connect
from hansard.errors import ValidationError
from hansard.importers import ImportReport, importer_named, json_stream, load, open_source


def elements(text: bytes, most: int = 1000) -> list[Any]:
    found = json_stream.array_elements(io.BytesIO(text), most)
    return [each.problem or each.value for each in found]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_an_array_is_cut_into_its_elements_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(json_stream, "BLOCK", block)
    given = [{"a": 'say "[" \\'}, {"b": [1, {"c": "}"}]}, {}, {"d": '\\"'}]
    assert elements(json.dumps(given).encode()) == given
    assert elements(json.dumps(given, indent=2).encode()) == given
    assert elements(json.dumps(given[1]).encode()) == [given[1]]
    assert elements(b"") == elements(b"[]") == []


def test_an_element_that_is_too_large_is_skipped() -> None:
    given = json.dumps([{"a": 1}, {"b": "x" * 5000}, {"c": 3}]).encode()
    assert elements(given) == [{"a": 1}, "it is too large to be read", {"c": 3}]


def test_half_a_file_gives_its_whole_elements_and_a_problem() -> None:
    first, second = elements(b'[{"a": 1}, {"b": ')
    assert first == {"a": 1}
    assert second.startswith("it is not JSON")


def test_a_line_that_is_too_long_is_skipped() -> None:
    file = io.BytesIO(b'{"a": 1}\n' + b"x" * 5000 + b'\n{"c": 3}\n\n{')
    found = [each.problem or each.value for each in json_stream.lines(file, 1000)]
    assert found[0] == {"a": 1}
    assert found[1] == "the line is longer than 1,000 bytes"
    assert found[2] == {"c": 3}
    assert found[3].startswith("it is not JSON")


def bomb(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("conversations.json", b"0" * (80 << 20))
    return path


def climbing(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("../../conversations.json", "[]")
    return path


def truncated(path: Path) -> Path:
    exports.chatgpt_zip(path)
    path.write_bytes(path.read_bytes()[:-40] + b"PK\x05\x06" + b"\x00" * 18)
    return path


@pytest.mark.parametrize(("make", "words"), [(bomb, "would unpack"), (climbing, "leads out")])
def test_a_hostile_zip_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        open_source(make(tmp_path / "export.zip"))


async def test_broken_trees_are_stored_as_far_as_they_go_and_reported(tmp_path: Path) -> None:
    given = exports.chatgpt_conversation()
    given["mapping"]["lost"] = exports.node("lost", "gone", "user", "Whose child am I?")
    given["mapping"]["x"] = exports.node("x", "y", "user", "One of a ring")
    given["mapping"]["y"] = exports.node("y", "x", "assistant", "The other")
    path = as_json([given, {"id": "no-mapping", "title": "x"}, 7, {"id": "odd", "mapping": {"a": 1}}])(tmp_path)
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert (await texts(store, "chat-1"))[-1] == ("assistant", "It stands and strikes.")
        ids = {
            message.id
            for branch in await store.list_branches("chat-1")
            for message in await store.get_messages("chat-1", branch=branch.id)
        }
        assert {"lost", "x", "y"} <= ids
    said = "\n".join(f"{problem.where}: {problem.what}" for problem in report.problems)
    assert "'gone', which is missing" in said
    assert "its own ancestor" in said
    assert "conversation 2: it has no messages" in said


async def test_strict_stops_at_the_first_problem(tmp_path: Path) -> None:
    path = as_json([{"id": "no-mapping", "mapping": 1}, exports.chatgpt_conversation()])(tmp_path)
    async with connect("memory://") as store:
        with pytest.raises(ValidationError, match="conversation 1"):
            await imported(store, path, strict=True)
        assert [each async for each in store.iter_conversations()] == []
        with pytest.raises(ValidationError, match="conversation 1"):
            await imported(store, as_json([{"id": "no-mapping", "mapping": 1}])(tmp_path), strict=True)


@pytest.mark.parametrize("name", ["chatgpt", "claude-ai", "open-webui", "librechat", "claude-code", "codex", "jsonl"])
@pytest.mark.parametrize(
    "text", [b"", b"[", b"null", b"\xff\xfe", b'[{"mapping": []}]', b'{"type": 1, "uuid": []}\n[1]\n"x"\n']
)
async def test_garbage_is_reported_and_stores_nothing(tmp_path: Path, name: str, text: bytes) -> None:
    path = tmp_path / ("conversations.json" if name not in ("claude-code", "codex", "jsonl") else "x.jsonl")
    path.write_bytes(text)
    source, report = open_source(path), ImportReport(name)
    async with connect("memory://") as store:
        await load(store, importer_named(name).read(source, report), report)
        assert report.messages == 0
        assert [
            each.message_count async for each in store.iter_conversations(archived=None) if each.message_count
        ] == []
