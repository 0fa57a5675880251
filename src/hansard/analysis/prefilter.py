"""A quick test that excludes most texts that a query cannot match; only the others are analysed.

In a text of ASCII, East Asian characters and emoji every term occurs as it is, except for its case, an apostrophe, the
`y` of a singular (`replies`, `reply`) and the `e` of a verb (`saving`, `save`). So a word that is not part of the
lowered text is not a term of it. Any other text passes.
"""

from __future__ import annotations

import re

from hansard.analysis.queries import Clause, Phrase, Query
from hansard.analysis.terms import POINTS, SINGLES

_NOT_PLAIN = re.compile(
    rf"[^\x00-\x7f{POINTS}{SINGLES}\u2600-\u2775\u2794-\u27bf\ufe0f\U0001f300-\U0001f64f\U0001f680-\U0001faff]"
)


class Sieve:
    """Passes every text that a query matches, and few others."""

    def __init__(self, query: Query) -> None:
        self._groups = [[row for clause in group for row in _needles(clause)] for group in query.groups]

    def passes(self, text: str) -> bool:
        if not text.isascii() and _NOT_PLAIN.search(text):
            return True
        plain = text.lower().replace("'", "").replace("’", "")
        return all(any(all(needle in plain for needle in needles) for needles in group) for group in self._groups)


def _needles(clause: Clause) -> list[tuple[str, ...]]:
    return [_needles_of(row) for row in clause.rows]


def _needles_of(row: Phrase) -> tuple[str, ...]:
    return tuple(part[:-1] if part.endswith(("y", "e")) else part for part in row.parts)
