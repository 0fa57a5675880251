"""A lookup in the language of Redis' query engine.

The engine knows which words a message has, and not where. So of a phrase it is asked for the words, and of a prefix for
words with the same first characters: then what it finds has to be compared (`is_exact`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hansard.analysis import Clause, Lookup
from hansard.analysis.queries import Phrase
from hansard.backends.redis.index import begin_of, tag
from hansard.model import to_micros


class EngineQuery:
    """Terms are parameters, so that none needs escapes."""

    def __init__(self, lookup: Lookup, tenant: str, owner: str | None, clause: Clause | None = None) -> None:
        self._names: dict[str, str] = {}
        query = lookup.query
        parts = [_has("t", [tenant])]
        if owner is not None:
            parts.append(_has("u", [owner]))
        if lookup.conversation_id is not None:
            parts.append(_has("c", [lookup.conversation_id]))
        if lookup.roles is not None:
            parts.append(_has("r", sorted(lookup.roles)))
        if lookup.participant_ids is not None:
            parts.append(_has("p", sorted(lookup.participant_ids)))
        if lookup.since is not None:
            parts.append(f"@at:[{to_micros(lookup.since)} inf]")
        if lookup.until is not None:
            parts.append(f"@at:[-inf {to_micros(lookup.until)}]")
        parts += [self._either(group) for group in (*query.groups, *([(clause,)] if clause else ()))]
        # A clause that the engine knows only in part cannot be excluded by it.
        if excluded := [each for each in query.excluded if all(map(_is_whole, each.rows))]:
            parts.append(f"-{self._either(excluded)}")
        self._text = " ".join(parts)
        self.is_exact = all(_is_whole(row) for each in (*query.wanted, *query.excluded) for row in each.rows)

    def between(self, low: str, high: str) -> list[Any]:
        """Returns the text, for messages of these times, and the parameters, as arguments of the engine."""
        values = [each for term, name in self._names.items() for each in (name, term)]
        parameters = ("PARAMS", len(values), *values) if values else ()
        return [f"{self._text} @at:[{low} {high}]", *parameters, "DIALECT", 2]

    def _either(self, clauses: Sequence[Clause]) -> str:
        return f"({' | '.join(self._phrase(row) for clause in clauses for row in clause.rows)})"

    def _phrase(self, row: Phrase) -> str:
        if _is_whole(row):
            return f"{self._term('words', row.parts[0])} | {self._term('more', row.parts[0])}"
        whole = row.parts[:-1] if row.prefix else row.parts
        terms = [self._term("words", each) for each in dict.fromkeys(whole)]
        if row.prefix:
            terms.append(self._term("begins", begin_of(row.parts[-1])))
        return f"({' '.join(terms)})"

    def _term(self, field: str, term: str) -> str:
        name = self._names.setdefault(term, f"p{len(self._names)}")
        return f"@{field}:{{${name}}}"


def _is_whole(row: Phrase) -> bool:
    return len(row.parts) == 1 and not row.prefix


def _has(kind: str, names: Iterable[str]) -> str:
    """Returns the condition that a message has one of these names; an impossible one without names."""
    return f"@k:{{{' | '.join(tag(kind, name) for name in names) or 'nothing'}}}"
