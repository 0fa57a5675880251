"""The words of an FTS5 index that have a piece: how `match="part"` is searched.

No index of pieces is kept. A search for a piece reads the words of the whole index, each once, and then searches those
that have it.
"""

from __future__ import annotations

import sqlite3

from msgspec import structs

from hansard.analysis import Lookup, pieces_of, with_words
from hansard.analysis.queries import Phrase

MOST = 1000
"""Words that are searched for a piece: those in the most messages."""
_CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab ('main', 'search', 'col')"
_SELECT = (
    "SELECT term, sum(doc) FROM temp.vocabulary WHERE col <> 'owner' AND {where} "
    "GROUP BY term ORDER BY sum(doc) DESC, term LIMIT ?"
)
_CONTAINS = _SELECT.format(where="instr(term, ?1)")
_ENDS = _SELECT.format(where="substr(term, -length(?1)) = ?1")


def with_pieces(connection: sqlite3.Connection, lookup: Lookup) -> tuple[Lookup, bool]:
    """Returns the lookup with the words that have the pieces of its query, and whether these are all."""
    pieces = pieces_of(lookup.query)
    if not pieces:
        return lookup, True
    _create(connection)
    words = {piece: _words(connection, piece) for piece in pieces}
    query = with_words(lookup.query, {piece: found[:MOST] for piece, found in words.items()})
    return structs.replace(lookup, query=query), all(len(found) <= MOST for found in words.values())


def _words(connection: sqlite3.Connection, piece: Phrase) -> list[str]:
    sql = _ENDS if len(piece.parts) > 1 else _CONTAINS
    return [term for term, _ in connection.execute(sql, (piece.parts[0], MOST + 1))]


def _create(connection: sqlite3.Connection) -> None:
    """Makes the words readable until the transaction ends, also on a connection that only reads."""
    (query_only,) = connection.execute("PRAGMA query_only").fetchone()
    connection.execute("PRAGMA query_only = OFF")
    try:
        connection.execute(_CREATE)
    finally:
        connection.execute(f"PRAGMA query_only = {query_only}")
