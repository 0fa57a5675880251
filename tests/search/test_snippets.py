"""A snippet shows why a message was found, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.analysis import parse_query
from hansard.model import Conversation, Message
from hansard.search import Hit
from hansard.search.snippets import cut
from hansard.store.search_modes import estimate_tokens


def marked(text: str, query: str, characters: int = 160) -> str:
    return cut(text, parse_query(query), characters).marked("[", "]")


def test_what_fits_is_marked() -> None:
    assert marked("The orders of Ann", "order ann") == "The [orders] of [Ann]"
    assert marked("getUserName(1)", "user") == "[getUserName](1)"
    assert marked("私は東京に住む", "東京") == "私は[東京]に住む"
    assert marked("new cars in New York", '"new york"') == "new cars in [New] [York]"
    assert marked("running runs", "runni*") == "[running] runs"
    assert marked("nothing here", "other") == "nothing here"
    assert marked("ｺｰﾋｰは売り切れです", "売り切れ") == "ｺｰﾋｰは[売り切れ]です"
    assert marked("see GitHub.com", "github.com") == "see [GitHub].[com]"
    assert marked("Beginning of the a word", "word", 40) == "of the a [word]"


def test_the_best_part_is_cut_out() -> None:
    text = "apple " + "filler " * 100 + "an apple and a pear tree " + "filler " * 100
    found = cut(text, parse_query("apple pear"), 60)
    assert found.marked("[", "]").count("[") == 2
    assert 60 <= len(found.text) < 100
    assert text[found.start : found.start + len(found.text)] == found.text


def test_a_hit_cuts_its_own() -> None:
    hit = Hit(Conversation("c"), Message("user", "word " * 100 + "needle"), 0.0, "needle")
    assert hit.snippet.marked().endswith("**needle**")
    assert len(hit.cut(40).text) < 70
    assert hit.text[hit.snippet.start :].startswith(hit.snippet.text)


@given(st.text(st.characters()), st.text(st.characters(), max_size=10), st.integers(1, 300))
def test_any_text(text: str, query: str, characters: int) -> None:
    found = cut(text, parse_query(query), characters)
    assert text[found.start : found.start + len(found.text)] == found.text
    assert found.marked("", "") == found.text


def test_a_text_with_thousands_of_marks() -> None:
    """The work follows the length of the text, not the square of it: else this would take a minute."""
    text = "far " * 100 + "word " * 40_000 + "word word"
    found = cut(text, parse_query("word"), 160)
    assert found.text[found.highlights[0][0] :].startswith("word")
    assert len(found.highlights) > 20


def test_tokens_by_estimate_tokens() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcd" * 10) == 10
    assert estimate_tokens("東京タワー") == 5


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("Why is the parcel late?", "The [parcel] is [late], and the other is not."),
        ('"the parcel" is late', "[The] [parcel] is [late], and the other is not."),
        ("is the", "[The] parcel [is] late, and [the] other [is] not."),
        ("is the ferry", "The parcel is late, and the other is not."),
        ("parcel THE", "[The] [parcel] is late, and [the] other is not."),
        ("is the* parcel", "[The] [parcel] is late, and [the] other is not."),
    ],
    ids=["question", "phrase", "nothing else", "nothing else found", "a name", "prefix"],
)
def test_function_words_are_marked_only_where_they_count(query: str, shown: str) -> None:
    assert marked("The parcel is late, and the other is not.", query) == shown
