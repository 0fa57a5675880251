"""Damaged and hostile sources: reported with their place, in bounded memory, and the rest goes on."""

from __future__ import annotations

import codecs
import io
import json
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports
from tests.importers.test_importers import FILES, as_json, imported, texts

from hansard import connect
from hansard.errors import NotFound, Unavailable, ValidationError
from hansard.importers import (
    ImportReport,
    importer_for,
    importer_named,
    json_stream,
    load,
    open_source,
    row_sorter,
    tables,
)


def elements(text: bytes, most: int = 1000) -> list[Any]:
    found = json_stream.array_elements(io.BytesIO(text), most)
    return [each.problem or each.value for each in found]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_an_array_is_cut_into_its_elements_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(json_stream, "ARRAY_BLOCK", block)
    given = [{"a": 'say "[" \\'}, {"b": [1, {"c": "}"}]}, {}, {"d": '\\"'}]
    assert elements(json.dumps(given).encode()) == given
    assert elements(json.dumps(given, indent=2).encode()) == given
    assert elements(json.dumps(given[1]).encode()) == [given[1]]
    assert elements(b"") == elements(b"[]") == []


@pytest.mark.parametrize("pages", [1, 20])
async def test_a_full_folder_for_temporary_files_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    monkeypatch.setattr(row_sorter, "_TABLE", f"PRAGMA max_page_count = {pages}; {row_sorter._TABLE}")
    path = exports.jsonl(tmp_path / "rows.jsonl", [{"role": "user", "content": "x" * 1000}] * 200)
    async with connect("memory://") as store:
        with pytest.raises(Unavailable, match=r"temporary files, .* is full.*TMPDIR"):
            await imported(store, path)


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


def nameless(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(".", "[]")
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_that_holds_a_name_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as packed:
        packed.writestr("conversations.json", "[]")
        packed.writestr("conversations.json", "[]")
    with pytest.raises(ValidationError, match="twice"):
        open_source(tmp_path / "export.zip")


def test_a_zip_in_a_zip_is_named(tmp_path: Path) -> None:
    exports.chatgpt_zip(tmp_path / "inner.zip")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as packed:
        packed.write(tmp_path / "inner.zip", "inner.zip")
    with pytest.raises(ValidationError, match=r"holds another zip file, 'inner\.zip'"):
        importer_for(open_source(tmp_path / "outer.zip"))


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFound, match="save it first"):
        open_source(tmp_path / "pipe")


@pytest.mark.parametrize(("make", "words"), [(bomb, "would unpack"), (climbing, "leads out"), (nameless, "leads out")])
def test_a_hostile_zip_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        open_source(make(tmp_path / "export.zip"))


def test_a_damaged_member_of_a_zip_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("conversations.json", json.dumps([{"mapping": {"hello": {}}}]))
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello"))
    with pytest.raises(ValidationError, match=r"'conversations.json' in the zip file is damaged: Bad CRC-32"):
        importer_for(open_source(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        ('{"role": "user"}'.encode("utf-16"), "is UTF-16: convert it"),
        ('{"role": "user"}'.encode("utf-16-be"), "is UTF-16: convert it"),
        ('{"role": "user", "content": "Ā"}'.encode("utf-16-le"), "is UTF-16: convert it"),
        (codecs.BOM_UTF16_LE + "你好，世界\n".encode("utf-16-le") * 20_000, "is UTF-16: convert it"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8\x00\xd8", "is of no known kind"),
        (b"\x00garbage", "is of no known kind"),
        (b"\x00\x01\x00\x02\x00\x03", "is of no known kind"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is of no known kind"),
        ("role,content\nuser,é\n".encode("latin-1"), "is not UTF-8 .at byte 18"),
        (b"PK\x03\x04 half of a file", "is a damaged zip file"),
        (("x" * ((64 << 10) - 1) + "é").encode(), "is of no known kind"),
    ],
)
def test_a_file_that_nobody_can_read_says_why(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(ValidationError, match=words):
        importer_for(open_source(path))


def test_an_empty_zip_or_folder_says_so(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "a.zip", "w").close()
    (tmp_path / "folder").mkdir()
    for name in ("a.zip", "folder"):
        with pytest.raises(ValidationError, match="is empty: there is no file in it"):
            importer_for(open_source(tmp_path / name))


def test_the_kind_of_a_file_is_told_without_reading_its_first_line_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(b'{"role": "user", "content": "')
        file.truncate(1 << 30)  # sparse
    source, read = open_source(path), [0]
    source.element_bytes = 1000

    def count(more: int) -> None:
        read[0] += more

    source.moved = count
    with pytest.raises(ValidationError, match="is of no known kind"):
        importer_for(source)
    assert read[0] < 1 << 20


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


class Endless(io.RawIOBase):
    """A file of one line that is far larger than memory should be."""

    def __init__(self, size: int) -> None:
        self._left = size
        self.element_bytes = 1 << 20

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._left)
        buffer[:count] = b"x" * count
        self._left -= count
        return count


@pytest.mark.parametrize("read", [json_stream.lines, json_stream.array_elements])
def test_a_huge_line_takes_little_memory(read: Any) -> None:
    file = io.BufferedReader(Endless(64 << 20))
    tracemalloc.start()
    try:
        found = [*read(file, 1 << 20)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(each.problem for each in found)
    assert peak < 16 << 20


def test_a_huge_element_takes_little_memory() -> None:
    file = io.BytesIO(b'[{"a": 1}, {"b": "' + b"x" * (40 << 20) + b'"}, {"c": 3}]')
    tracemalloc.start()
    try:
        found = [*json_stream.array_elements(file, 1 << 20)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [each.value for each in found] == [{"a": 1}, None, {"c": 3}]
    assert peak < 16 << 20


@pytest.mark.parametrize("read", [json_stream.lines, json_stream.array_elements])
def test_a_long_line_waits_for_its_end_on_disk(read: Any) -> None:
    """What is held is bounded by far less than what may be decoded."""
    file = io.BytesIO(b'{"b": "' + b"x" * (80 << 20) + b'"}\n{"c": 3}')
    tracemalloc.start()
    try:
        first = next(read(file, 64 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first.problem
    assert peak < 40 << 20


@pytest.mark.parametrize("read", [json_stream.lines, json_stream.array_elements])
def test_a_line_that_has_waited_on_disk_is_whole(read: Any) -> None:
    file = io.BytesIO(b'{"b": "' + b"x" * (20 << 20) + b'"}')
    assert [each.value for each in read(file)] == [{"b": "x" * (20 << 20)}]


def test_a_huge_line_of_a_table_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_LONGEST_LINE", 1 << 20)
    file = io.BytesIO(b"role,content\nuser,first\nuser," + b"x" * (64 << 20) + b"\nuser,last\n")
    tracemalloc.start()
    try:
        found = [*tables.csv_rows(file)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [
        {"role": "user", "content": "first"},
        "the line is longer than 1,048,576 characters",
        {"role": "user", "content": "last"},
    ]
    assert peak < 16 << 20


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
async def test_a_wrong_encoding_is_reported_with_its_rows(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "chats.csv").write_bytes("session,role,content\nc,user,Größe\nc,user,Hello\n".encode(encoding))
    (tmp_path / "chats.jsonl").write_bytes('{"role": "user", "content": "Größe"}\n'.encode(encoding))
    async with connect("memory://") as store:
        for name in ("csv", "jsonl"):
            source, report = open_source(tmp_path / f"chats.{name}"), ImportReport(name)
            await load(store, importer_named(name).read(source, report), report)
            assert report.problems
        found = [each async for each in store.iter_conversations()]
        assert [each.message_count for each in found] == ([1] if encoding == "latin-1" else [])


async def test_text_that_is_not_utf_8_names_the_remedy(tmp_path: Path) -> None:
    conversation = exports.chatgpt_conversation() | {"title": "Größe"}
    path = tmp_path / "conversations.json"
    path.write_bytes(json.dumps([conversation], ensure_ascii=False).encode("latin-1"))
    async with connect("memory://") as store:
        source, report = open_source(path), ImportReport("chatgpt")
        await load(store, importer_named("chatgpt").read(source, report), report)
    assert "it is not UTF-8: convert the file" in report.problems[0].what


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
async def test_a_transcript_that_is_deleted_meanwhile_costs_no_other(tmp_path: Path, kind: str) -> None:
    lines = exports.claude_code_lines() if kind == "claude-code" else exports.codex_lines()
    first, second = (exports.jsonl(tmp_path / f"{name}.jsonl", lines) for name in ("a", "b"))
    source, report = open_source(tmp_path), ImportReport(kind)
    async with connect("memory://") as store:
        assert source.names() == ["a.jsonl", "b.jsonl"]
        first.unlink()
        await load(store, importer_named(kind).read(source, report), report)
    assert report.new == 1
    assert [(each.where, each.what) for each in report.problems] == [("a.jsonl", "it was deleted before it was read")]
    assert second.exists()


async def test_files_with_the_line_ends_of_old_macs_are_recognised(tmp_path: Path) -> None:
    rows = [{"session": "c", "role": "user", "content": said} for said in ("One", "Two")]
    lines = {
        "rows.jsonl": [json.dumps(row) for row in rows],
        "rows.csv": ["session,role,content", "c,user,One", "c,user,Two"],
        "s1.jsonl": [json.dumps(line) for line in exports.claude_code_lines()],
    }
    for name, each in lines.items():
        path = tmp_path / name
        path.write_bytes("\r".join([*each, ""]).encode())
        async with connect("memory://") as store:
            report = await imported(store, path)
            assert not report.problems
            assert report.messages >= 2, name


def test_csv_that_breaks_off_in_a_field_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.importers.tables._LONGEST_FIELD", 1_000)
    path = tmp_path / "chats.csv"
    path.write_text('role,content\nuser,Hello\nuser,"' + "x" * 5_000, "utf-8")
    source, report = open_source(path), ImportReport("csv")
    (conversation,) = importer_named("csv").read(source, report)
    assert len(conversation.messages) == 1
    assert "the rest of the file is not CSV" in report.problems[0].what


async def test_a_repeated_id_is_taken_once_and_reported(tmp_path: Path) -> None:
    rows = [{"role": "user", "content": said, "id": "same"} for said in ("One", "Two")]
    path = exports.jsonl(tmp_path / "rows.jsonl", rows)
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert await texts(store, "rows") == [("user", "One")]
    assert "'same' is there twice" in report.problems[0].what


@pytest.mark.parametrize("at", [None, "", "yesterday", -1, 1e300, float("inf"), True, "0001-01-01T00:00:00", [], {}])
async def test_a_time_that_is_none_keeps_no_message_out(tmp_path: Path, at: Any) -> None:
    given = exports.chatgpt_conversation()
    given["create_time"] = given["update_time"] = at if at != float("inf") else None
    for node in given["mapping"].values():
        if node["message"]:
            node["message"]["create_time"] = at if at != float("inf") else None
    async with connect("memory://") as store:
        report = await imported(store, as_json([given])(tmp_path))
        assert (report.messages, report.problems) == (9, [])


def test_a_folder_of_something_else_says_what_was_looked_for(tmp_path: Path) -> None:
    for name in ("a.txt", "b.json", "c.jsonl", "d.csv", "e.db"):
        (tmp_path / name).write_text("something else", "utf-8")
    with pytest.raises(ValidationError, match="no known kind"):
        importer_for(open_source(tmp_path))


def test_a_folder_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.importers.source._MOST_FILES", 3)
    for number in range(4):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(ValidationError, match="more than 3 files"):
        importer_for(open_source(tmp_path))


async def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    as_json([exports.chatgpt_conversation()])(outside)
    (inside / "conversations.json").symlink_to(outside / "conversations.json")
    (inside / "all").symlink_to(outside)
    assert open_source(inside).names() == []


@pytest.mark.parametrize("name", sorted({name for name, *_ in FILES.values()} - {"ai-dev-kit"}))
@pytest.mark.parametrize("cut", [0.3, 0.9])
async def test_half_of_any_file_stores_no_half_and_reports(tmp_path: Path, name: str, cut: float) -> None:
    found = next(each for each in FILES.values() if each[0] == name)
    path = found[1](tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)])
    async with connect("memory://") as store:
        report = ImportReport(name)
        try:
            source = open_source(path)
            await load(store, importer_named(name).read(source, report), report)
        except ValidationError as error:
            report.complain("", str(error))
        stored = [each.message_count async for each in store.iter_conversations(archived=None)]
        assert sum(stored) == report.messages
        assert report.problems or report.messages == found[3], "pages at the end of a database may be empty"


async def test_content_that_no_store_takes_is_refused_with_its_place(tmp_path: Path) -> None:
    deep: Any = "Hello"
    for _ in range(300):
        deep = [deep]
    given = [
        {"id": id, "messages": [{"role": "user", "content": content}]} for id, content in (("a", deep), ("b", "Hi"))
    ]
    exports.jsonl(tmp_path / "train.jsonl", given)
    async with connect("memory://") as store:
        report = await imported(store, tmp_path / "train.jsonl")
        assert (report.new, report.messages) == (1, 1)
        assert [(each.where, "nested too deeply" in each.what) for each in report.problems] == [
            ("conversation 'a', message '1'", True)
        ]
        assert await store.get_conversation("a") is None
        assert await texts(store, "b") == [("user", "Hi")]
