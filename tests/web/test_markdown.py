"""Markdown as HTML: the short ways give what the long ones give, and what is remembered is bounded."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.kit import parse

from hansard.web import content, markdown
from hansard.web.memory import Memory

_SIGNS = "ab c1.)-+:=|>#!_(\"'\n\n  é漢\u202e~*`[]<&\\\t\x0b\x1c\x85\xa0\u2028\u3000"


def as_seen(html: str) -> str:
    """The tags, and the words between them as a browser shows them."""
    html = re.sub(r"[ \n]*(<br>|</?p[^>]*>)[ \n]*", r"\1", html)
    return unescape(re.sub(r"[ \n]+", " ", html)).strip(" ")


@given(st.text(st.sampled_from(_SIGNS), max_size=40))
def test_plain_text_is_what_the_parser_makes_of_it(text: str) -> None:
    assert as_seen(markdown.render(text)) == as_seen(markdown._rendered(text))


@pytest.mark.parametrize(
    "text",
    [
        "Where is my order? It's late!",
        "One line\nand another\n\nA second paragraph, with snake_case and a > b | c.",
        "12 apples # not a heading",
        "トロムソはどこですか。\n\nIn Norway.",
    ],
)
def test_what_people_write_needs_no_parser(text: str) -> None:
    assert markdown._PLAIN.fullmatch(text)


_MARKDOWN = (
    *("# a", "- a", "+ a", "1. a", "2) a", "> a", "a\n===", "a\n---", "a|b\n-|-", "a|b\n:-|-", "*a*", "_a_", "a`b`"),
    *("~~a~~", "[a](b)", "<b>", "&amp;", "\\*", "    a", "a\n    b", "a_b_", "__a", "![a](b)", "a\n\n|b|\n|-|"),
    *("\ta", "a\rb", "a\xa0", "a\u3000\nb"),
)


@pytest.mark.parametrize("text", _MARKDOWN)
def test_what_may_be_markdown_goes_to_the_parser(text: str) -> None:
    assert not markdown._PLAIN.fullmatch(text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(_json, st.integers(0, 400))
def test_json_in_colours_says_what_the_json_says(value: object, cut: int) -> None:
    text = content.pretty(value)[: cut or None]
    tree = parse(markdown.json(text))
    assert tree.text.replace("\r", "\n") == text.replace("\r", "\n")
    assert {node.tag for node in tree.walk()} <= {"#root", "#text", "span"}


def test_json_has_a_colour_for_names_texts_and_values() -> None:
    tree = parse(markdown.json(content.pretty({"a<b": ["c", 1, None, -2.5e3]})))
    assert [node.words for node in tree.all("span", "k-nt")] == ['"a<b"']
    assert [node.words for node in tree.all("span", "k-s2")] == ['"c"']
    assert [node.words for node in tree.all("span", "k-mi")] == ["1", "null", "-2500.0"]


def test_a_long_text_that_is_cut_in_the_middle_is_coloured_once() -> None:
    # Every quote could begin a text that does not end: a pattern that tried each would take for ever.
    text = msgspec.json.encode({"a": '"' * 30_000}).decode()[: content.MOST]
    assert markdown.json(text).count("<span") == 2


def test_a_memory_keeps_no_more_than_it_may() -> None:
    memory = Memory(10_000)
    for number in range(100):
        memory.put(str(number).encode(), "x" * 800)
        memory.put(str(number).encode(), "y" * 300)
        assert memory.size <= 10_000
    assert memory.get(b"0") is None
    assert memory.get(b"99") == "y" * 300
    # What is large is not kept, and pushes nothing out.
    memory.put(b"huge", "z" * 20_000)
    assert memory.get(b"huge") is None
    assert memory.get(b"99") == "y" * 300
    memory.put(b"99", "z" * 20_000)
    assert memory.get(b"99") is None


def test_a_memory_counts_bytes_and_not_characters() -> None:
    memory = Memory(100_000)
    for number in range(100):
        memory.put(str(number).encode(), "漢" * 1_000 + "🙂")
    assert memory.get(b"99") is not None
    kept = sum(memory.get(str(number).encode()) is not None for number in range(100))
    assert kept * 4_000 <= memory.size <= 100_000
