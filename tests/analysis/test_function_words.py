"""Which words of a query only ask, by the language that they are of."""

from __future__ import annotations

import pytest

from hansard.analysis import parse_pieces, parse_query
from hansard.analysis.function_words import asking


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what did Ann say about the harbour", "what did about the"),
        ("who wore the hat", "who the"),
        ("wer hat den Hut gesehen", "wer hat den"),
        ("hat factory", ""),
        ("war museum", ""),
        ("what did", ""),
        ('what "did" Ann say about it', "what about it"),
        ("cuándo fue la reunión", "cuando fue la"),
        ("", ""),
    ],
)
def test_the_words_of_one_language_ask(query: str, expected: str) -> None:
    wanted = parse_query(query).wanted
    found = asking(wanted)
    assert " ".join(clause.rows[0].parts[0] for clause in wanted if clause in found) == expected


def test_a_piece_of_a_word_does_not_ask() -> None:
    assert not asking(parse_pieces("what did the harbour").wanted)
