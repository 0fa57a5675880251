"""The catalogue of the page's words: every text is in it, every language is whole, and readers get theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest
from tests.web.kit import Reader, Site, parse

import hansard.server.web
from hansard.server.web import words

FOLDER = Path(hansard.server.web.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
NAMES = {"Hansard", "API", "hsk_…", "default", "key=value", "hansard.json"}
"""Texts that are the same in every language."""
SHOWN = ("title", "aria-label", "placeholder", "alt", "data-words")
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_SAY = re.compile(r"""\bsay(?:_count)?\(\s*((?:(?:"[^"\n]*"|'[^'\n]*')(?:,\s*)?)+)""")
_TEXT = re.compile(r"""["']((?:(?<=")[^"\n]*(?="))|(?:(?<=')[^'\n]*(?=')))["']""")
_STRING = re.compile(r""" (?:if|else) "[a-z ]{3,}"|~ *" """)


def texts_of(template: str) -> Iterator[str]:
    """Yields what a reader would see of a template's own text: between tags, and in attributes that are read out."""
    tree = parse(_JINJA.sub("", template))
    for node in tree.walk():
        if node.tag == "#text" and not _is_code(node.parent):
            yield node.own.strip(" \n·:←→.,()")
        yield from (node[name].strip(" ,") for name in SHOWN if node[name])


def _is_code(node: object) -> bool:
    while node is not None:
        if getattr(node, "tag", None) in ("code", "pre", "kbd"):
            return True
        node = getattr(node, "parent", None)
    return False


def said() -> set[str]:
    """Returns every English text of templates, Python and scripts."""
    files = [*TEMPLATES, *FOLDER.glob("*.py")]
    found = (match[1] for file in files for match in _SAY.finditer(file.read_text("utf-8")))
    return {text for each in found for text in _TEXT.findall(each)} | set(words.script_texts())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda each: each.name)
def test_no_text_stands_outside_the_catalogue(path: Path) -> None:
    template = path.read_text("utf-8")
    left = {text for text in texts_of(template) if re.search(r"[^\W\d_]{2}", text)}
    assert left <= NAMES
    assert not _STRING.search(template), "a text in an expression"


def test_a_text_outside_the_catalogue_is_noticed() -> None:
    template = '<p title="Seen">{% if x %}Also{% endif %} {{ say("fine") }} <code>not</code></p>'
    assert {text for text in texts_of(template) if text} == {"Seen", "Also"}
    assert _STRING.search('{{ "yes" if x else "not yet" }}')


@pytest.mark.parametrize("language", [each for each in words.LANGUAGES if each != words.ENGLISH])
def test_a_language_has_every_text_and_no_other(language: str) -> None:
    known = words.catalogue(language)
    assert sorted(said() - known.keys()) == []
    assert sorted(known.keys() - said()) == []
    for text, translation in known.items():
        assert translation.strip(), text
        assert fields_of(text) == fields_of(translation), text


def fields_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_values_are_escaped_and_counted() -> None:
    assert words.say("Revoke {name}", name="<b>") == "Revoke &lt;b&gt;"
    assert words.say_count("{n} problem", "{n} problems", 1) == "1 problem"
    assert words.say_count("{n} problem", "{n} problems", 1200) == "1,200 problems"


@pytest.mark.parametrize(
    ("cookie", "accepted", "chosen"),
    [
        (None, "", "en"),
        (None, "de-AT,de;q=0.9,en;q=0.5", "de"),
        (None, "fr, en;q=0.2, de;q=0.8", "de"),
        (None, "de;q=0, en", "en"),
        (None, ";;q=,\x00,de;q=x,en", "de"),
        ("en", "de", "en"),
        ("xx", "de", "de"),
    ],
)
def test_a_reader_gets_their_language(cookie: str | None, accepted: str, chosen: str) -> None:
    assert words.chosen_of(cookie, accepted) == chosen


def test_the_page_speaks_german_on_request(sample: Site) -> None:
    reader = Reader(sample.api.address)
    try:
        german = reader.get("/admin", headers={"accept-language": "de-DE"})
        assert german.tree.one("html")["lang"] == "de"
        assert german.tree.one("nav", aria_label="Seiten").words.startswith("Übersicht Gespräche")
        assert "Not copied" in german.tree.one("html")["data-words"]
        english = reader.get("/admin")
        assert "data-words" not in english.tree.one("html").attributes
        chosen = english.follow("Deutsch")
        assert chosen.url == sample.api.address + "/admin"
        assert chosen.tree.one("html")["lang"] == "de"
        assert reader.get("/search?q=a%26b&lang=en").url == sample.api.address + "/search?q=a%26b"
        assert reader.get("/").tree.one("html")["lang"] == "en"
        assert reader.get("/?lang=xx").status == 400
    finally:
        reader.client.close()
