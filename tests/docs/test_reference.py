"""Whatever is public is documented: methods with their arguments, values with their fields, URLs with their options."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.docs import pages

import hansard
from hansard import capture, chat, realtime, rules
from hansard.backends import schemes
from hansard.store import admin, blobs, records

STORE = "\n".join(page.read_text("utf-8") for page in sorted((pages.DOCS / "reference" / "store").glob("*.md")))
SCHEMES = sorted(schemes.SCHEMES)
PAGES = {
    "file": "files",
    "https": "http",
    "postgresql": "postgres",
    "rediss": "redis",
    "redis+unix": "redis",
    "redis+cluster": "redis",
    "openai+conversations": "openai",
    "openai+threads": "openai",
}
"""Pages that are not named after their scheme."""


def _public(kind: type) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(kind, name)) for name in dir(kind) if not name.startswith("_"))


def _words(section: str) -> set[str]:
    return pages.code_words(section)


def _sections(text: str) -> dict[str, str]:
    """Name → its section. A heading may name several: "### `tenant`, `user`"."""
    found = pages.sections(text, 2) | pages.sections(text, 3)
    return {name: section for heading, section in found.items() for name in re.findall(r"`([\w.]+)`", heading)}


def _arguments(method: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(method).parameters) - {"self"}


@pytest.mark.parametrize("name", [name for name, _ in _public(hansard.Store)])
def test_every_method_of_the_store(name: str) -> None:
    section = _sections(STORE).get(name)
    if section is None:
        assert name in _words(STORE), f"{name} is not documented"
        assert not inspect.isfunction(getattr(hansard.Store, name)), f"{name} has no section"
        return
    if inspect.isfunction(getattr(hansard.Store, name)):
        missing = _arguments(getattr(hansard.Store, name)) - _words(section)
        assert not missing, f"arguments of {name} that its section does not name"


@pytest.mark.parametrize(
    ("part", "page"),
    [
        (records.Records, "docs/reference/records-and-blobs.md"),
        (blobs.Blobs, "docs/reference/records-and-blobs.md"),
        (admin.Admin, "docs/reference/tenants-and-users.md"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_method_of_its_parts(part: type, page: str) -> None:
    sections = _sections(pages.read(page))
    for name, method in _public(part):
        if inspect.isfunction(method):
            section = sections[f"{part.__name__.lower()}.{name}"]
            assert _arguments(method) <= _words(section), name


PARTS = (hansard.Store, records.Records, blobs.Blobs, admin.Admin)
METHODS = [method for part in PARTS for _, method in _public(part) if inspect.isfunction(method)]


@pytest.mark.parametrize("documented", [hansard.Store, *METHODS], ids=lambda value: value.__qualname__)
def test_every_docstring_names_its_arguments(documented: Callable[..., Any]) -> None:
    named = set(re.findall(r"`(\w+)`", inspect.getdoc(documented) or ""))
    assert not _arguments(documented) - named, "arguments that `help` does not explain"


def test_capture() -> None:
    page = _words(pages.read("docs/reference/capture.md"))
    for documented in (capture.Capture, capture.Capture.wrap, capture.Spool, capture.Inbound, capture.Reply):
        assert _arguments(documented) <= page, documented
    assert {name for name, _ in _public(capture.Capture)} - {"agent_id"} <= page | {"store"}
    assert set(capture.Counts.__struct_fields__) <= page


def test_chat() -> None:
    page = _words(pages.read("docs/reference/chat.md"))
    for documented in (chat.Chat, chat.Chat.send, chat.Answer, chat.OpenAIModel, chat.AnthropicModel):
        assert _arguments(documented) - {"options", "text"} <= page, documented
    assert {name for name, _ in _public(chat.Chat)} <= page
    assert set(chat.Synced.__struct_fields__) <= page


def test_realtime() -> None:
    page = _words(pages.read("docs/reference/realtime.md"))
    for documented in (realtime.Recorder, realtime.Recorder.restore, realtime.restore):
        assert _arguments(documented) - {"options"} <= page, documented
    assert {name for name, _ in _public(realtime.Recorder)} <= page
    assert set(realtime.Counts.__struct_fields__) <= page


def test_connect() -> None:
    assert _arguments(hansard.connect) <= _words(_sections(STORE)["connect"])
    assert _arguments(hansard.Store) <= _words(STORE)


def test_every_section_of_the_store_exists() -> None:
    known = {name for name, _ in _public(hansard.Store)} | {"connect"}
    assert set(_sections(STORE)) <= known


@pytest.mark.parametrize("name", hansard.__all__)
def test_every_public_name(name: str) -> None:
    text = pages.read("docs/reference/types.md") + pages.read("docs/reference/errors.md") + STORE
    assert name in re.findall(r"\w+", pages.prose(text))


STRUCTS = [
    kind
    for name in hansard.__all__
    if inspect.isclass(kind := getattr(hansard, name)) and issubclass(kind, msgspec.Struct)
]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_field_of_every_value(kind: type[msgspec.Struct]) -> None:
    elsewhere = {"Limits": STORE, "Capabilities": pages.read("docs/reference/backends/index.md")}
    text = elsewhere.get(kind.__name__)
    if text is None:
        sections = pages.sections(pages.read("docs/reference/types.md"), 2)
        text = next(section for heading, section in _owners(sections) if kind.__name__ in heading)
    assert set(kind.__struct_fields__) <= _words(text)


def _owners(sections: dict[str, str]) -> Iterator[tuple[set[str], str]]:
    """What a section is about: its heading, and the values that its text sets in backticks with a capital letter."""
    for heading, section in sections.items():
        yield set(re.findall(r"\w+", heading)), section
    for section in sections.values():
        yield {word for word in _words(section) if word[:1].isupper()}, section


# Backends


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_a_page(scheme: str) -> None:
    page = PAGES.get(scheme, scheme)
    index = pages.read("docs/reference/backends/index.md")
    assert f"({page}.md)" in index
    assert f"`{scheme}://" in index


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_option_of_a_url(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = pages.read(f"docs/reference/backends/{PAGES.get(scheme, scheme)}.md")
    assert set(_options(scheme)) <= _words(page)


def _options(scheme: str) -> list[str]:
    """The options that a scheme knows, as its refusal of one that it does not know lists them."""
    with pytest.raises(hansard.ValidationError) as refusal:
        asyncio.run(schemes.open_backend(f"{scheme}:///store?qqqqqq=1"))
    _, _, known = str(refusal.value).partition(": known are ")
    return known.split(", ") if known else []


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_the_tables_of_a_database(backend: str) -> None:
    section = pages.sections(pages.read("docs/reference/formats.md"), 2)[backend]
    rows = {line.split("|")[1].strip(" `"): line for line in section.splitlines() if line.startswith("| `")}
    whole = pages.read(f"src/hansard/backends/{backend}/schema.sql")
    tables = re.findall(r"^CREATE TABLE (?:hansard\.)?(\w+) \((.*?)^\)", whole, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in tables} == set(rows)
    for name, columns in tables:
        wanted = set(re.findall(r"^\s+([a-z_0-9]+) [A-Za-z]", columns, re.MULTILINE))
        assert wanted <= _words(rows[name].replace("\\|", "")), name


def test_the_lives_that_the_pages_tell() -> None:
    assert rules.TOMBSTONE_LIFE.days == 90
    assert "90 days" in pages.read("docs/reference/tenants-and-users.md")
    assert rules.BLOB_GRACE.total_seconds() == 3600
    assert "after an hour" in pages.read("docs/reference/records-and-blobs.md")
