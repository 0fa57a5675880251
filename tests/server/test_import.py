"""Uploads of other programs' exports, through a real server."""

from __future__ import annotations

import io
import socket
import sqlite3
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports, more_exports
from tests.importers.test_frameworks import langgraph_file
from tests.server.kit import Served, serving
from tests.server.test_http import connect
from tests.server.test_rest import ok, problem
from tests.wait import PATIENCE, until

from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.server.upload_slots import UploadSlots

BYTES = {"content-type": "application/octet-stream"}


def upload(api: Served, path: Path | bytes, name: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
    content = path if isinstance(path, bytes) else path.read_bytes()
    return api.post(f"/import/{name}", content=content, params=query, headers=BYTES | (headers or {}))


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever happens, no upload stays on the server's disk."""
    folder = tmp_path / "uploads"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert [*folder.iterdir()] == []


def test_a_zip_is_counted_then_stored_then_unchanged(api: Served, tmp_path: Path) -> None:
    path = exports.chatgpt_zip(tmp_path / "export.zip")
    dry = ok(upload(api, path, "export.zip", dry_run="true"))
    assert (dry["source"], dry["new"], dry["messages"]) == ("chatgpt", 2, 11)
    assert ok(api.get("/conversations"))["items"] == []
    assert ok(upload(api, path, "export.zip", agent_id="gpt"))["messages"] == 11
    assert ok(api.get("/conversations/chat-1"))["agent_id"] == "gpt"
    assert ok(upload(api, path, "export.zip"))["unchanged"] == 2


def test_a_stream_without_a_length_is_taken(api: Served, tmp_path: Path) -> None:
    data = exports.chatgpt_zip(tmp_path / "export.zip").read_bytes()
    pieces = (data[at : at + 100] for at in range(0, len(data), 100))
    assert ok(api.post("/import/export.zip", content=pieces, headers=BYTES))["new"] == 2


def test_databases_are_read(api: Served, tmp_path: Path) -> None:
    assert ok(upload(api, more_exports.chainlit_database(tmp_path), "chainlit.db"))["messages"] == 4
    report = ok(upload(api, langgraph_file(tmp_path / "checkpoints.sqlite"), "checkpoints.sqlite"))
    assert (report["source"], report["new"], report["messages"]) == ("langgraph", 2, 4)


def test_rows_are_mapped(api: Served) -> None:
    rows = b'{"wer":"user","was":"Hello","wo":"c"}\n{"wer":"user"}\n'
    report = ok(upload(api, rows, "odd.jsonl", source="jsonl", map="role=wer,content=was,conversation=wo"))
    assert report["messages"] == 1
    assert report["problems"][0]["where"] == "odd.jsonl, row 2"
    assert "map is for plain rows" in problem(upload(api, rows, "x.zip", map="role=a"), 400, "invalid")["detail"]


def test_everything_becomes_the_users_of_the_view(api: Served, tmp_path: Path) -> None:
    path = more_exports.write(tmp_path / "chats.json", [exports.open_webui_chat()])
    ok(upload(api, path, "chats.json", {"hansard-user": "bob"}))
    assert ok(api.get("/conversations/webui-1"))["user_id"] == "bob"
    assert api.get("/conversations/webui-1", headers={"hansard-user": "ann"}).status_code == 404


def test_reading_is_not_enough(tmp_path: Path) -> None:
    _, secret = KeyFile(tmp_path / "keys.json").create("reader", scopes=["read"], tenant="acme")
    headers = {"authorization": f"Bearer {secret}"}
    with serving(settings=Settings(keys=tmp_path / "keys.json"), headers=headers) as api:
        problem(upload(api, b"{}", "x.json"), 403, "denied")


def test_what_is_unknown_or_damaged_is_refused_without_the_servers_paths(api: Served, tmp_path: Path) -> None:
    for name, data, words in (
        ("notes.txt", b"Nothing of the kind", "notes.txt is of no known kind"),
        ("export.zip", b"PK\x05\x06" + b"\x00" * 18, "export.zip is empty: there is no file in it"),
        ("bomb.zip", bomb(), "would unpack"),
    ):
        said = problem(upload(api, data, name), 400, "invalid")["detail"]
        assert words in said
        assert str(tmp_path) not in said
        assert "--" not in said, "options of the command line"
    broken = exports.jsonl(tmp_path / "conversations.json", [{"id": "x", "mapping": 1}])
    said = problem(upload(api, broken, "conversations.json", source="chatgpt", strict="true"), 400, "invalid")["detail"]
    assert said.startswith("conversations.json, conversation 1")
    problem(upload(api, b"x", "a%2Fb"), 400, "invalid")
    problem(upload(api, b"x", "..%5Cx"), 400, "invalid")
    problem(upload(api, b"x", "x", source="nobody"), 400, "invalid")
    assert api.post("/import/x.json", content=b"[]", headers={"content-type": "text/plain"}).status_code == 415


def bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("conversations.json", b"0" * (80 << 20))
    return file.getvalue()


def test_uploads_and_their_pieces_are_bounded(tmp_path: Path) -> None:
    with serving(settings=Settings(max_upload_bytes=20_000, max_body_bytes=5_000)) as api:
        problem(upload(api, b"x" * 20_001, "x.json"), 413, "quota_exceeded")
        long = exports.chatgpt_conversation()
        long["title"] = "x" * 6_000
        path = more_exports.write(tmp_path / "conversations.json", [long])
        report = ok(upload(api, path, "conversations.json", source="chatgpt"))
        assert (report["messages"], report["problems"][0]["what"]) == (0, "it is too large to be read")


def test_an_upload_that_waits_takes_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.server.app._UPLOADS", 1)
    data = exports.chatgpt_zip(tmp_path / "export.zip").read_bytes()
    received, may_end = threading.Event(), threading.Event()

    def slowly() -> Iterator[bytes]:
        yield data[:100]
        received.set()
        assert may_end.wait(PATIENCE)
        yield data[100:]

    with serving() as api, ThreadPoolExecutor(2) as threads:
        first = threads.submit(api.post, "/import/first.zip", content=slowly(), headers=BYTES)
        assert received.wait(PATIENCE)
        until(lambda: [*(tmp_path / "uploads").glob("*/first.zip")])
        second = threads.submit(upload, api, data, "second.zip")
        assert ok(api.get("/conversations"))["items"] == []
        assert [path.name for path in (tmp_path / "uploads").glob("*/*")] == ["first.zip"]
        may_end.set()
        assert [ok(each.result(PATIENCE))["messages"] for each in (first, second)] == [11, 0]


def test_a_file_that_arrives_too_slowly_is_refused() -> None:
    ended = threading.Event()

    def drip(wire: socket.socket) -> None:
        until_given_up = time.monotonic() + PATIENCE
        while not ended.wait(0.05) and time.monotonic() < until_given_up:
            wire.sendall(b" ")

    with serving(settings=Settings(body_seconds=2)) as api, connect(api) as wire, ThreadPoolExecutor(1) as thread:
        wire.sendall(b"POST /api/v1/import/x.jsonl HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n")
        wire.sendall(b"Content-Type: application/octet-stream\r\n\r\n")
        sending = thread.submit(drip, wire)
        try:
            answer = wire.recv(65536)
        finally:
            ended.set()
        sending.result(PATIENCE)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the file arrives too slowly: at least 10,000 bytes a second" in answer


def test_the_uploads_of_a_tenant_do_not_stop_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.server.app.UploadSlots", lambda most, of_tenant, _: UploadSlots(most, of_tenant, 0.2))
    row = b'{"role":"user","content":"Hello"}\n'
    may_end = threading.Event()

    def slowly() -> Iterator[bytes]:
        yield row
        may_end.wait(PATIENCE)

    with serving() as api, ThreadPoolExecutor(2) as threads:
        names = ("1.jsonl", "2.jsonl")
        slow = [threads.submit(api.post, f"/import/{name}", content=slowly(), headers=BYTES) for name in names]
        try:
            until(lambda: len([*(tmp_path / "uploads").glob("*/*")]) == 2)
            assert ok(upload(api, row, "a.jsonl", {"hansard-tenant": "acme"}))["messages"] == 1
            refused = upload(api, row, "3.jsonl")
            assert "too many uploads" in problem(refused, 429, "rate_limited")["detail"]
            assert refused.headers["retry-after"] == "10"
        finally:
            may_end.set()
        assert [ok(each.result(PATIENCE))["messages"] for each in slow] == [1, 1]
        assert ok(upload(api, row, "3.jsonl"))["messages"] == 1


def test_a_view_that_never_ends_is_stopped(api: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.importers.database.MOST_STEPS", 100)
    path = tmp_path / "evil.db"
    connection = sqlite3.connect(path)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    connection.executescript(
        f"""CREATE TABLE responses (id, conversation_id, datetime_utc);
        CREATE VIEW conversations AS SELECT count(*) AS id, 'Herons' AS name, '' AS model FROM ({endless});"""
    )
    connection.close()
    assert "cannot be read: interrupted" in problem(upload(api, path, "evil.db"), 400, "invalid")["detail"]
