"""Full text search over SQLite: the rows of an FTS5 table, and queries against it.

The columns `words` and `more` hold the terms of the text (see `hansard.analysis`). The column `owner` holds a term for
the conversation and one for its user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache

from hansard.analysis import Clause, Query, columns
from hansard.analysis.queries import Phrase

_LIKE_AN_OWNER = re.compile("c[0-9]+|u[0-9a-f]{16}")
"""Words that look like owner terms. Those are stored in a column of their own."""


_NEVER = '"#never#"'
"""A term that no text has, because signs are terms of their own."""


@lru_cache(1024)
def user_term(user_id: str) -> str:
    return "u" + hashlib.sha256(user_id.encode()).hexdigest()[:16]


def conversation_term(pk: int) -> str:
    return f"c{pk}"


def owner_terms(user_id: str | None, conversation: int) -> str:
    owner = conversation_term(conversation)
    return owner if user_id is None else f"{owner} {user_term(user_id)}"


def columns_of(text: str, user_id: str | None, conversation: int) -> tuple[str, str, str]:
    """Of the searchable text of a message."""
    return (*columns(text), owner_terms(user_id, conversation))


# FTS5 query syntax. Every term is quoted, and no term contains a character with a meaning in FTS5.


@lru_cache(1024)
def expression(query: Query, owner: str | None) -> str:
    wanted = " AND ".join(f"({_either(group)})" for group in query.groups)
    if query.excluded:
        wanted = f"({wanted}) NOT ({_either(query.excluded)})"
    return _and(wanted, owner)


def clause_expression(query: Query, clause: Clause, owner: str | None) -> str:
    """Finds the matches of a query that have this one of its clauses."""
    return f"({expression(query, owner)}) AND ({_clause(clause)})"


def _and(wanted: str, owner: str | None) -> str:
    return wanted if owner is None else f'(owner: "{owner}") AND ({wanted})'


def _either(clauses: Sequence[Clause]) -> str:
    return " OR ".join(map(_clause, clauses))


def _clause(clause: Clause) -> str:
    # Pieces of words are found by the words that have them: see `vocabulary`.
    return " OR ".join(_row(row) for row in clause.rows if not row.inside) or _NEVER


def _row(row: Phrase) -> str:
    terms = " + ".join(f'"{term}"' for term in row.parts) + (" *" if row.prefix else "")
    if len(row.parts) > 1:
        return f"{{words}}: ({terms})"
    # A query without column filters is faster.
    return f"{{words more}}: {terms}" if row.prefix or _LIKE_AN_OWNER.fullmatch(row.parts[0]) else terms
