"""The catalogue of the page's words: every text is in it, every language is whole, and readers get theirs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from string import Formatter

import pytest
from tests.web.kit import Reader, Site, parse

import hansard.server.web
from hansard import Message
from hansard.model import Source, Usage
from hansard.server.web import error_texts, quantities, words

FOLDER = Path(hansard.server.web.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
NAMES = {"Hansard", "API", "UTC", "hsk_…", "default", "key=value", "hansard.json"}
"""Texts that are the same in every language."""
SHOWN = ("title", "aria-label", "placeholder", "alt", "data-words")
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_SAY = re.compile(r"""\bsay(?:_count|_html)?\(\s*((?:(?:"[^"\n]*"|'[^'\n]*')(?:,\s*)?)+)""")
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


_SENTENCE = re.compile(r"[A-Za-z][a-z]+(?:,? [a-z]+)+[.:…]?")


def sentences_of(module: str) -> Iterator[str]:
    """Yields the texts of a module that a page may show: in its HTML, and sentences, without those of errors."""
    tree = ast.parse(module)
    unseen = {id(each) for node in ast.walk(tree) if _is_unseen(node) for each in ast.walk(node)}
    unseen |= {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.JoinedStr):
            html = "".join(str(each.value) if isinstance(each, ast.Constant) else "" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            html = node.value
        else:
            continue
        if "<" in html:
            yield from texts_of(html)
        elif _SENTENCE.fullmatch(html.strip()):
            yield html


def _is_unseen(node: ast.AST) -> bool:
    """Whether a node has no text of the page: documentation, errors, logs, patterns, and texts of the catalogue."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("say", "say_count", "say_html", "compile", "warning", "unquote")


CONTENT = {"You said:", "The model failed:", "The answer took too long, or the server was stopped."}
"""What the echo answers, and what is stored of an error, is content."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda each: each.name)
def test_no_text_of_a_module_stands_outside_the_catalogue(path: Path) -> None:
    left = {text.strip() for text in sentences_of(path.read_text("utf-8")) if re.search(r"[^\W\d_]{2}", text)}
    assert left <= NAMES | CONTENT


def test_a_text_of_a_module_outside_the_catalogue_is_noticed() -> None:
    module = '''"""A module with text."""
def f(x):
    "Returns it all."
    y = "nothing to see"
    raise ValidationError("this is wrong")
    return f'<p title="Seen">Also {x} {say("in the catalogue")}</p>'
'''
    assert set(sentences_of(module)) - {""} == {"nothing to see", "Seen", "Also"}


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


def raised(path: Path) -> Iterator[str]:
    """Yields the messages of the errors that a module raises, with `{}` for their values."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = node.exc.args[0]
            if isinstance(message, ast.JoinedStr):
                yield "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in message.values)
            elif isinstance(message, ast.Constant) and isinstance(message.value, str):
                yield message.value


ALSO_SHOWN = {
    "the key is no longer valid",
    "this is for an operator's key, which is bound to no tenant",
    "this key may send {} bytes a day",
    "this key may send {} requests a minute",
    "this needs the scope {}, which the key does not have",
    "without a key, only this machine may send requests, to localhost or its address",
}
"""Messages of the rest of the server that readers meet often."""


@pytest.mark.parametrize("language", [each for each in words.LANGUAGES if each != words.ENGLISH])
def test_a_language_has_every_message_of_the_errors_of_the_page(language: str) -> None:
    known = error_texts.catalogue(language)
    shown = {text for path in FOLDER.glob("*.py") for text in raised(path)}
    assert shown | ALSO_SHOWN == known.keys()
    elsewhere = {text for path in FOLDER.parent.glob("*.py") for text in raised(path)}
    assert elsewhere >= ALSO_SHOWN
    assert all(text.count("{}") == translation.count("{}") for text, translation in known.items())


def test_errors_are_in_the_readers_language(site: Site) -> None:
    german = {"accept-language": "de"}
    page = site.get("/c/nowhere", headers=german)
    assert page.status == 404
    assert page.tree.one("p", "problem").words == "Hier gibt es kein Gespräch 'nowhere'"
    assert page.tree.one("p", "problem")["lang"] == "de"
    assert site.get("/nowhere", headers=german).tree.one("p", "problem").words == "Diese Seite gibt es nicht"
    other = site.get("/conversations?limit=x", headers=german).tree.one("p", "problem")
    assert (other["lang"], other.words[:17]) == ("en", "Unknown parameter")
    assert site.get("/c/nowhere").tree.one("p", "problem").words == "There is no conversation 'nowhere' here"


def test_names_of_scopes_are_in_the_readers_language(site: Site) -> None:
    site.store.append("c", [Message("user", "hello", scope="dm")])
    assert "Direktnachricht" in site.get("/c/c", headers={"accept-language": "de"})
    assert "direct message" in site.get("/c/c")
    german = site.get("/c/c/why", headers={"accept-language": "de"}).tree
    assert [each.words for each in german.one("select", name="scope").all("option")][1:] == [
        "Kanal",
        "Direktnachricht",
        "Thread",
    ]


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


def test_numbers_money_and_days_are_those_of_the_language() -> None:
    shown = {}
    for language in ("en", "de"):
        words.use(language)
        try:
            shown[language] = [
                *(words.number(1234567.5, 1), quantities.money(1234.5), quantities.money(0.0074), quantities.money(0)),
                *map(quantities.duration, (0.04, 1.24, 200, 7500, 273_600)),
                *map(quantities.short, (999, 12_345, 1_500_000)),
                *map(quantities.size, (12, 3_400_000)),
                *(quantities.long_day(date(2026, 3, 5)), quantities.short_day(date(2026, 3, 5))),
            ]
        finally:
            words.use(words.ENGLISH)
    assert shown == {
        "en": [
            *("1,234,567.5", "$1,234.50", "$0.0074", "$0.00", "40 ms", "1.2 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"),
            *("999", "12.3k", "1.5M", "12 bytes", "3.4 MB", "5 March 2026", "5 Mar"),
        ],
        "de": [
            *("1.234.567,5", "1.234,50 $", "0,0074 $", "0,00 $", "40 ms", "1,2 s", "3 min 20 s", "2 h 5 min"),
            *("3 T 4 h", "999", "12,3k", "1,5M", "12 Bytes", "3,4 MB", "5. März 2026", "5. Mär"),
        ],
    }


_ENGLISH = re.compile(r"\b(?:the|of|and|is|are|with|this|not|messages?|cost|why|rated|failed|result)\b", re.IGNORECASE)


def test_a_page_in_german_has_no_english_left(sample: Site) -> None:
    """Outside of what is stored, which is English."""
    sample.store.append("german", [{"role": "user", "content": "Hallo"}], title="Gespräch")
    usage = Usage(input_tokens=1200, output_tokens=30, cost=0.0021, model="m", cached_tokens=3)
    call = [{"type": "tool_call", "id": "1", "name": "suche", "arguments": {}}]
    output = [{"type": "tool_result", "id": "1", "output": "nein"}]
    said = [
        Message("assistant", call, format="parts", usage=usage),
        Message("tool", output, format="parts"),
        Message("assistant", "Ja", usage=usage, sources=(Source("Quelle"),)),
        Message("assistant", "Halb", status="interrupted"),
    ]
    stored = sample.store.append("german", said).messages
    sample.store.rate("german", stored[2].id, 1)
    sample.store.branch("german", at=stored[2].id)
    reader = Reader(sample.api.address)
    try:
        reader.client.headers["accept-language"] = "de"
        for path in ("/c/german", "/c/german/why", "/c/german/access", f"/c/german/m/{stored[2].id}", "/import"):
            page = reader.get(path)
            texts = [node.own for node in page.main.walk() if node.tag == "#text" and not _is_code(node.parent)]
            texts += [node[name] for node in page.main.walk() for name in SHOWN if node[name]]
            left = [each for each in texts if _ENGLISH.search(each)]
            assert left == [], path
    finally:
        reader.client.close()
