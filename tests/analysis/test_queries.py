"""What people type: operators where they are meant, text everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.analysis import analyse, parse_query, relaxed
from hansard.analysis.queries import MAX_CLAUSES

TEXT = "The order of apples arrived in New York, not in Berlin; the apples were green"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("apples order", True),
        ("apples pears", False),
        ("apples AND order", True),
        ("apples OR pears", True),
        ("pears OR apples order", True),
        ("pears OR plums order", False),
        ('"new york"', True),
        ('"york new"', False),
        ("“new york”", True),
        ("app*", True),
        ("arriv*", True),
        ("arrived*", True),
        ("arrivez*", False),
        ('"new yo"*', True),
        ("apples -green", False),
        ("apples -red", True),
        ('apples -"new york"', False),
        ('apples -"new jersey"', True),
        ("apples -gre*", False),
        ("-red", False),
        ("+apples", True),
        ("--apples", True),
        ("OR", False),
        ("OR apples OR", True),
        ("or", False),
        ('"new york', True),
        ('new" york"', True),
        ("", False),
        ("% _ * \" ' - ( ) :", False),
        ("apples) OR (x:y NEAR/2 ^a", False),
    ],
)
def test_operators(query: str, expected: bool) -> None:
    assert parse_query(query).matches(analyse(TEXT)) is expected


def test_any_word_is_enough_when_relaxed() -> None:
    assert relaxed(parse_query("apples pears")).matches(analyse(TEXT))
    assert not relaxed(parse_query("pears plums")).matches(analyse(TEXT))
    assert not relaxed(parse_query("apples pears -green")).matches(analyse(TEXT))
    assert not relaxed(parse_query("-red"))


def test_a_long_query_is_cut() -> None:
    assert len(parse_query("word " * 1000).wanted) == parse_query("word " * 1000).size == MAX_CLAUSES
    assert len(parse_query('"' + "a " * 1000 + '"').wanted[0].rows[0].parts) == 64


@given(st.text(st.characters()))
def test_any_query(query: str) -> None:
    parsed = parse_query(query)
    assert parsed.matches(analyse("")) is False
