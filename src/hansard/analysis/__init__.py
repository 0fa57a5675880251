"""Text to search terms, and queries over them: the same on every backend, for texts and queries. Pure functions."""

from __future__ import annotations

from hansard.analysis.lookups import Lookup, Match, Matches, Position, RankedMatch, Ranking, position_of
from hansard.analysis.prefilter import Sieve
from hansard.analysis.queries import (
    MAX_CHARACTERS,
    Clause,
    Query,
    count_terms,
    parse_pieces,
    parse_query,
    pieces_of,
    relaxed,
    shortened,
    with_words,
)
from hansard.analysis.terms import GAP, Terms, Word, analyse, columns, spans
from hansard.analysis.texts import searchable, searchable_content, searchable_text

VERSION = 5
"""Incremented when an index would hold other things of the same text: one of another version must be rebuilt."""

__all__ = [
    "GAP",
    "MAX_CHARACTERS",
    "VERSION",
    "Clause",
    "Lookup",
    "Match",
    "Matches",
    "Position",
    "Query",
    "RankedMatch",
    "Ranking",
    "Sieve",
    "Terms",
    "Word",
    "analyse",
    "columns",
    "count_terms",
    "parse_pieces",
    "parse_query",
    "pieces_of",
    "position_of",
    "relaxed",
    "searchable",
    "searchable_content",
    "searchable_text",
    "shortened",
    "spans",
    "with_words",
]
