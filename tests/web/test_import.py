"""Import on the page: files of other programs and our own, dropped or sent, with a report; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.importers.exports import chatgpt_conversation, chatgpt_zip
from tests.servers import chromium
from tests.web.browser import Visitor, needs_chromium
from tests.web.kit import Page, Site, parse, sited

from hansard import Message
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

HOSTILE = '"><img src=x onerror=alert(1)>.zip'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.running() as running:
        yield running


def send(site: Site, name: str, content: bytes, query: str = "", proof: str | None = None) -> httpx.Response:
    given = site.get("/import").tree.one("form", "drop")["data-proof"] if proof is None else proof
    headers = {"Hansard-Proof": given, "Hansard-Piece": "1", "Content-Type": "application/octet-stream"}
    return site.reader.client.post(f"/import/{quote(name, safe='')}{query}", content=content, headers=headers)


def words(answer: httpx.Response) -> str:
    return parse(answer.text).words


def test_a_file_of_another_program_is_counted_then_stored_then_unchanged(site: Site, tmp_path: Path) -> None:
    zipped = chatgpt_zip(tmp_path / "export.zip", chatgpt_conversation()).read_bytes()
    counted = send(site, "export.zip", zipped, "?only_count=true")
    assert "It would store" in words(counted)
    assert site.store.stats().conversations == 0
    stored = send(site, "export.zip", zipped)
    assert "of 1 conversations were stored. chatgpt" in words(stored)
    assert "Herons" in site.get("/conversations?framework=chatgpt")
    again = send(site, "export.zip", zipped)
    assert "0 messages of 0 conversations were stored" in words(again)


def test_an_export_of_ours_is_restored(site: Site, tmp_path: Path) -> None:
    with sited(f"sqlite:///{tmp_path}/other.db") as other:
        other.store.append("c", [Message("user", "from elsewhere")], title="Elsewhere")
        exported = b"".join(other.store.export())
    assert "1 messages of 1 conversations were stored." in words(send(site, "own.jsonl", exported))
    assert "Elsewhere" in site.get("/conversations")
    damaged = send(site, "own.jsonl", exported.replace(b"from elsewhere", b"from somewhere"))
    assert damaged.status_code == 422
    assert "damaged" in words(damaged)
    assert send(site, "own.jsonl", exported, "?only_count=true").status_code == 400


def test_what_cannot_be_imported_is_refused_with_its_reason(site: Site) -> None:
    before = site.store.stats().conversations
    garbage = send(site, HOSTILE, b"\x00\x01garbage")
    assert garbage.status_code == 400
    assert "is of no known kind" in words(garbage)
    assert not parse(garbage.text).all("img")
    for name in ("a/b", "a\\b", "x" * 300):
        assert send(site, name, b"x").status_code in (400, 404), name
    assert send(site, "a.zip", b"", "?source=nothing").status_code == 400
    assert send(site, "a.zip", b"x", "?nonsense=1").status_code == 400
    assert send(site, "a.zip", b"x", proof="0" * 64).status_code == 403
    assert site.store.stats().conversations == before


def test_a_line_of_our_export_is_bounded_as_in_the_api(tmp_path: Path) -> None:
    with sited(f"sqlite:///{tmp_path}/chats.db", Settings(max_body_bytes=2_000)) as site:
        site.store.append("c", [Message("user", "x" * 1_000)])
        lines = b"".join(site.store.export())
        assert send(site, "ours.jsonl", lines).status_code == 200
        refused = send(site, "ours.jsonl", lines.rstrip(b"\n") + b" " * 3_000)
        assert refused.status_code == 413
        assert "A line of the file is longer than 2,000 bytes" in words(refused)


def test_readers_get_no_button_and_are_refused(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    _, token = keys.create("reader", ["read"], tenant="default")
    with sited(f"sqlite:///{tmp_path}/a.db", Settings(keys=keys.path)) as site:
        site.reader.sign_in(token)
        listed: Page = site.get("/conversations")
        assert listed.status == 200
        assert not [link for link in listed.tree.all("a") if link.words in ("Import", "New")]
        assert site.get("/import").status == 403
        assert send(site, "a.zip", b"x", proof="").status_code == 403


@needs_chromium
def test_a_dropped_file_is_imported_with_a_report(site: Site, browser: Browser, tmp_path: Path) -> None:
    visitor = Visitor(browser)
    rows = [{"conversation_id": "c1", "role": "user", "content": "<b>hello</b>"}]
    plain = "\n".join(map(json.dumps, rows)).encode()
    page = visitor.open(site.api.address, "/import")
    page.evaluate(
        """([name, text]) => {
          const files = new DataTransfer();
          files.items.add(new File([text], name));
          dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
        }""",
        [HOSTILE.replace(".zip", ".jsonl"), plain.decode()],
    )
    expect(page.locator("#uploads strong")).to_have_text("1 messages of 1 conversations were stored.")
    expect(page.locator("#uploads h2")).to_have_text(HOSTILE.replace(".zip", ".jsonl"))
    page.get_by_role("link", name="Show them").click()
    expect(page.locator(".row-title")).to_have_text("<b>hello</b>")
    visitor.expected = ("400", "ERR_FAILED", "Failed to load")
    page.goto(site.api.address + "/import")
    page.set_input_files("input[type=file]", {"name": "x.bin", "mimeType": "", "buffer": b"\x00garbage"})
    expect(page.locator("#uploads .problem")).to_contain_text("is of no known kind")
    page.route("**/import/*", lambda route: route.abort())
    page.set_input_files("input[type=file]", {"name": "y.zip", "mimeType": "", "buffer": b"PK"})
    expect(page.locator("#uploads .problem").last).to_contain_text("The server does not answer. Import the file again")
    visitor.close()
