"""Stored text is shown as text and is harmless: no tag, no link that runs, no endless page."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from tests.web.kit import Node, Site, parse, sited

from hansard import Message
from hansard.rendering import markdown

HARMLESS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "div"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "#text", "#root"),
}
TEXTS = {
    "script": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "svg": "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>",
    "style": "<style>body{display:none}</style><p style='position:fixed;inset:0'>x</p>",
    "frame": "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe><object data='data:text/html,x'></object>",
    "form": "<form action='https://evil.example'><input name=key></form><base href='https://evil.example/'>",
    "meta": "<meta http-equiv=refresh content='0;url=https://evil.example'><link rel=stylesheet href=//evil.example>",
    "link": "[click](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [y](data:text/html,<script>alert(1)</script>)",
    "link with tabs": "[x](java\tscript:alert(1)) [x](<java\nscript:alert(1)>) [x](&#106;avascript:alert(1))",
    "autolink": "<javascript:alert(1)> <data:text/html,x>",
    "reference": "[a]\n\n[a]: javascript:alert(1) 'x\" onclick=\"alert(1)'",
    "remote image": "![track](https://evil.example/pixel.gif) ![x](javascript:alert(1))",
    "title": '[x](https://example.org "\\" onmouseover=\\"alert(1)")',
    "fence": '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "fence language": '```x" onload="alert(1)\ncode\n```',
    "table": "| <script>alert(1)</script> | b |\n|---|:-:|\n| [x](javascript:1) | <img src=x onerror=1> |",
    "comment": "<!--><script>alert(1)</script>-->",
    "cdata": "<![CDATA[<script>alert(1)</script>]]><?php x ?>",
    "mutation": '<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript><math><mtext></mtext></math>',
    "entities": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "nul": "a\x00<scr\x00ipt>alert(1)</scr\x00ipt>",
    "overrides": "\u202eevil\u202c \u2066isolated \u2067x",
    "controls": "\x1b[31mred\x07 \x08\x0c\x7f\x85",
    "template": "{{ 7*7 }} {% raw %} ${7*7} {{ config }}",
    "surrogate": "broken **\ud800** text",
    "deep quote": ">" * 3000 + " x",
    "deep list": "\n".join("  " * depth + "- x" for depth in range(300)),
    "brackets": "[" * 5000 + "](" * 5000,
    "stars": "*a " * 5000 + "_b " * 5000,
    "backticks": "`" * 9999 + "a" + "`" * 5000,
    "entities many": "&amp;" * 3000,
}


def safe(tree: Node) -> None:
    for node in tree.walk():
        assert node.tag in HARMLESS, node.tag
        assert not any(name.startswith("on") or name in ("style", "src", "id", "name") for name in node.attributes)
        assert re.match(r"(?i:https?:|mailto:|tel:|[^:]*$)", node["href"]), node["href"]
        if node.tag == "a" and node["href"]:
            assert "noopener" in node["rel"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_markdown_is_harmless(text: str) -> None:
    safe(parse(markdown.render(text)))
    safe(parse(markdown.plain(text)))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site; each text has a tenant of its own there."""
    with sited(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/chats.db") as site:
        yield site


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "surrogate"])
def test_hostile_text_is_harmless_in_every_field(shared: Site, name: str) -> None:
    """In every field that a caller can set: text, ids, names, titles, metadata, tools, sources, summaries."""
    text = TEXTS[name]
    short = text[:60].replace("\x00", "")
    tenant = name.replace(" ", "-")
    store, before = shared.store.tenant(tenant), f"/t/{tenant}"
    call = {"id": short, "type": "function", "function": {"name": short, "arguments": text}}
    messages: list[Any] = [
        Message("user", text, id=short, participant={"kind": "user", "id": short, "display_name": text[:200]}),  # type: ignore[arg-type]
        Message("assistant", {"role": "assistant", "content": text, "tool_calls": [call]}, format="openai.chat"),
        Message("tool", {"role": "tool", "tool_call_id": short, "content": text}, format="openai.chat"),
        {
            "role": "assistant",
            "content": text,
            "sources": [{"document_name": text[:200], "chunk": text}],
            "usage": {"model": short, "input_tokens": 3},
        },
        Message("user", [{"type": text[:100], "x": text}, {"type": "thinking", "thinking": text}], format="anthropic"),
        Message("user", {"x": text}, format="json"),
        Message("user", text, format="a-format-of-their-own"),
    ]
    store.append("c", messages, user_id=short, agent_id=short, title=text[:200], metadata={short: text})
    store.add_summary("c", text, from_seq=1, to_seq=2, model=short)
    for path in (
        "/",
        "/conversations",
        "/search?q=alert+OR+x+OR+b",
        "/c/c",
        "/c/c/why",
        "/admin",
        "/conversations?q=x",
    ):
        page = shared.get(before + path)
        assert page.status == 200, path
        check_page(page.tree)
    conversation = shared.get(f"{before}/c/c")
    assert conversation.messages()
    for link in conversation.tree.all("a", "open"):
        check_page(shared.get(urljoin(conversation.url, link["href"])).tree)
    raw = shared.reader.client.get(f"{before}/c/c/raw")
    assert raw.headers["content-security-policy"].startswith("sandbox")


def check_page(tree: Node) -> None:
    """Only what the templates wrote: one script, one style sheet, links and forms that stay here."""
    assert [node["src"].rpartition("/")[2] for node in tree.all("script")] == ["hansard.js"]
    assert not [*tree.all("style"), *tree.all("iframe"), *tree.all("object"), *tree.all("embed"), *tree.all("base")]
    for node in tree.walk():
        assert not any(each.startswith("on") or each in ("style", "srcdoc", "formaction") for each in node.attributes)
        assert not re.match(r"(?i)[\s\x00-\x20]*(javascript|data|vbscript):", node["href"]), node["href"]
        if node["src"] or node["action"]:
            assert "://" not in node["src"] + node["action"]
    assert all(form["action"].startswith(".") for form in tree.all("form") if form["method"] != "dialog")


def test_a_huge_line_and_a_huge_table_are_cut_on_the_page(site: Site) -> None:
    """Both are cut on the page, and complete on request."""
    line = "x-y" * 1_000_000
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 100_000
    rows = "| a | b | c |\n|---|---|---|\n" + "| 1 | 2 | 3 |\n" * 1_200
    site.store.append(
        "c", [Message("user", line, id="line"), Message("user", table, id="table"), Message("user", rows)]
    )
    site.store.append_message("c", "user", "x" * 400_000, id="base64")  # a text that is moved into a blob
    page = site.get("/c/c")
    assert len(page.answer.content) < 150_000
    assert [link.words for link in page.tree.all("a") if link.words == "The whole message"] == ["The whole message"] * 2
    assert page.tree.one("section", "transcript").all("td") == []
    assert "Kept apart" in page
    whole = site.get("/c/c/m/table")
    assert whole.status == 200
    assert len(whole.answer.content) < 3_000_000
    assert len(site.reader.client.get("/c/c/m/line/raw").content) > 3_000_000


def test_thousands_of_parts_make_a_bounded_page(site: Site) -> None:
    """Thousands of parts, sources and metadata keys in one message do not make a page without end."""
    parts = [{"type": "text", "text": f"part {number}"} for number in range(3000)]
    metadata = {f"key {number}": "x" * 1000 for number in range(500)}
    site.store.append("c", [Message("user", parts, format="parts")], metadata=metadata)
    page = site.get("/c/c")
    assert page.status == 200
    assert len(page.answer.content) < 400_000


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
FILES = {
    "html as picture": ("image/png", b"<html><script>alert(1)</script>", "image/png", False),
    "svg": (
        "image/svg+xml",
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "application/octet-stream",
        True,
    ),
    "html": ("text/html", b"<script>alert(1)</script>", "application/octet-stream", True),
    "nonsense": ("x/y\r\nX-Evil: 1", b"x", "application/octet-stream", True),
    "picture": ("application/x", PNG, "image/png", False),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_served_so_that_nothing_runs(site: Site, name: str) -> None:
    claimed, data, given, is_attached = FILES[name]
    content = [{"type": "image", "media_type": claimed, "data": base64.b64encode(data).decode()}]
    site.store.append("c", [Message("user", content, id="m", format="parts")])
    answer = site.reader.client.get("/c/c/m/m/media/0")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == given
    assert ("attachment" in answer.headers.get("content-disposition", "")) == is_attached
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "x-evil" not in answer.headers
    assert answer.content == data


def test_missing_media_is_not_found(site: Site) -> None:
    parts = [
        {"type": "image", "url": "https://evil.example/x.png"},
        {"type": "image", "data": "%%%"},
        {"type": "audio", "file_id": "f"},
    ]
    site.store.append("c", [Message("user", parts, id="m", format="parts")])
    for number in ("0", "1", "2", "3", "-1", "x", "9" * 40):
        assert site.get(f"/c/c/m/m/media/{number}").status == 404
    page = site.get("/c/c")
    assert "kept elsewhere" in page
    assert [image["src"] for image in page.tree.all("img")] == ["../c/c/m/m/media/1"]


def test_text_directions_are_isolated(site: Site) -> None:
    site.store.append("c", [Message("user", "שלום\n\nHello"), Message("user", "مرحبا")], title="\u202eevil")
    page = site.get("/c/c")
    assert [block["dir"] for block in page.tree.all("div", "said")] == ["auto", "auto"]
    assert page.tree.one("h1")["dir"] == "auto"
