"""The common parts of every page: its frame, its tenant and user, its two files, and relative addresses."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from tests.web.kit import Reader, Site, sited

from hansard.server.web import static_files

PATHS = (
    "/",
    "/conversations",
    "/conversations?q=parcel",
    "/search?q=parcel",
    "/c/sample-parcel",
    "/c/sample-parcel/why",
    "/c/sample-parcel/m/sample-parcel-2",
    "/c/sample-long",
    "/admin",
    "/t/default/c/sample-parcel",
)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_well_formed(sample: Site, path: str) -> None:
    page = sample.get(path)
    assert page.status == 200
    assert page.answer.headers["content-type"] == "text/html; charset=utf-8"
    tree = page.tree
    assert tree.one("html")["lang"] == "en"
    assert tree.one("head").one("title").words.endswith("Hansard")
    assert len(tree.all("h1")) == 1
    assert len(tree.all("main")) == len(tree.all("header", "top")) == len(tree.all("footer")) == 1
    assert all(nav["aria-label"] for nav in tree.all("nav"))
    ids = [node["id"] for node in tree.walk() if node["id"]]
    assert len(ids) == len(set(ids))
    for field in [*tree.all("input"), *tree.all("textarea"), *tree.all("select")]:
        assert field["type"] == "hidden" or _has_name(tree, field), field.attributes


def _has_name(tree: object, field: object) -> bool:
    at = field
    while at is not None:
        if at.tag == "label":  # type: ignore[attr-defined]
            return True
        at = at.parent  # type: ignore[attr-defined]
    return bool(field["aria-label"] or tree.all("label", **{"for": field["id"]}))  # type: ignore[attr-defined, index]


@pytest.mark.parametrize("path", [*PATHS, "/nothing-here"])
def test_pages_load_nothing_from_other_origins(sample: Site, path: str) -> None:
    page = sample.get(path)
    policy = page.answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert page.answer.headers["x-content-type-options"] == "nosniff"
    assert page.answer.headers["cache-control"] == "no-store"
    for node in page.tree.walk():
        assert not any(name.startswith("on") or name == "style" for name in node.attributes), node.attributes
        for name in ("src", "href", "action"):
            assert not re.match(r"(?i)\s*(https?:|//|javascript:|data:)", node[name]), node[name]
    assert [node for node in page.tree.all("script") if node.text.strip()] == []


def test_a_page_needs_one_request_and_two_small_files(sample: Site) -> None:
    page = sample.get("/c/sample-parcel")
    scripts = [node["src"] for node in page.tree.all("script")]
    styles = [node["href"] for node in page.tree.all("link", rel="stylesheet")]
    assert (len(scripts), len(styles)) == (1, 1)
    size = len(page.answer.content)
    for address in (*scripts, *styles):
        answer = sample.reader.client.get(urljoin(page.url, address))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        size += answer.num_bytes_downloaded
    assert size < 50_000
    plain = sample.reader.client.get(urljoin(page.url, styles[0]), headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert plain.content == static_files.content("hansard.css")


@pytest.mark.parametrize("path", ["/", "/conversations", "/conversations?view=table", "/search?q=parcel", "/import"])
def test_the_first_paint_needs_less_than_50_kb(sample: Site, path: str) -> None:
    files = len(static_files.packed("hansard.js")) + len(static_files.packed("hansard.css"))
    assert len(sample.get(path).answer.content) + files < 50_000


def test_a_static_file_has_one_address(sample: Site) -> None:
    right = "/" + static_files.address("hansard.js")
    assert sample.reader.client.head(right).status_code == 200
    for wrong in ("/static/hansard.js", "/static/000000000000/hansard.js", "/static/../site.py", right + "x"):
        assert sample.reader.client.get(wrong).status_code == 404


@pytest.mark.parametrize("path", PATHS)
def test_every_link_works_behind_any_prefix(sample: Site, path: str) -> None:
    """Links are relative: resolved against an address with a prefix, they stay below it."""
    page = sample.get(path)
    before = "http://example.org/some/prefix"
    for node in page.tree.walk():
        address = node["href"] or node["src"] or node["action"]
        if not address or address.startswith("#"):
            continue
        resolved = urljoin(before + path, address)
        assert resolved.startswith(before + "/"), address
        if node.tag == "a" and not any(each in address for each in ("/export", "openapi", "?lang=")):
            inside = resolved[len(before) :].partition("#")[0]
            assert inside in _followed or sample.reader.client.head(inside).status_code in (200, 303), inside
            _followed.add(inside)


_followed: set[str] = set()


def test_ids_of_any_kind_have_an_address(site: Site) -> None:
    for id in ("a/b", ".", "..", "~", "~x", "%2F", "a b?c#d&e", "日本", "x" * 256):
        site.store.append_message(id, "user", f"said in {id}", id=id)
        page = site.get("/conversations", params={"q": id})
        links = [link["href"] for link in page.tree.all("a", "row")]
        found = [site.get(urljoin(page.url, each)) for each in links]
        there = [each for each in found if f"said in {id}" in each.tree.text]
        assert there, id
        assert f"said in {id}" in there[0].follow("⋯").tree.text


def test_missing_pages_are_not_found(sample: Site) -> None:
    for path in (
        "/nothing",
        "/c/nothing",
        "/c/sample-parcel/m/nothing",
        "/c/sample-parcel?at=nothing",
        "/c",
        "/t/x/nothing",
    ):
        page = sample.get(path)
        assert page.status == 404, path
        assert page.tree.one("h1").words == "Not found"
        links = [each.words for each in page.tree.one("nav", aria_label="Pages").all("a")]
        assert links == ["Overview", "Conversations", "Search", "Admin"]
        assert page.follow("Conversations").status == 200
    for path in ("/conversations?nonsense=1", "/c/sample-parcel/why?budget=-1", "/search?q=x&since=tomorrow", "/%ff"):
        assert sample.get(path).status in (400, 404), path
    assert sample.reader.client.put("/conversations").status_code == 405


def test_an_unavailable_store_is_reported(tmp_path: Path) -> None:
    with sited(f"sqlite:///{tmp_path}/chats.db") as site:
        site.store.append_message("c", "user", "Hello")
        import asyncio

        asyncio.run_coroutine_threadsafe(site.api.store.close(), site.api.loop).result(60)
        page = site.get("/")
        assert page.status == 503
        assert page.tree.one("h1").words == "The store does not answer"
        assert "Search" in page.tree.one("nav", aria_label="Pages").words


def test_an_empty_store_shows_how_to_begin(site: Site) -> None:
    page = site.get("/")
    assert "No conversations yet" in page
    assert "hansard demo" in page
    assert "Write the URL of the store that this server serves" in page
    filled = page.send("sample")
    assert "Newest conversations" in filled
    assert site.store.stats().conversations > 50


def test_a_head_request_has_no_body(sample: Site) -> None:
    reader = Reader(sample.api.address)
    try:
        answer = reader.client.head("/conversations")
        assert (answer.status_code, answer.content) == (200, b"")
    finally:
        reader.client.close()
