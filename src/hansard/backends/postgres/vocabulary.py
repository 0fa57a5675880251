"""The words of the index that have a piece: how `match="part"` is searched.

No index of pieces is kept. A search for a piece reads the words of every message that it covers, and then searches
those that have it.
"""

from __future__ import annotations

from msgspec import structs

from hansard.analysis import Lookup, pieces_of, with_words
from hansard.analysis.queries import Phrase
from hansard.backends.postgres import lexemes
from hansard.backends.postgres.connection import PostgresConnection
from hansard.backends.shared.vocabulary import MOST
from hansard.contract.types import Context


async def with_pieces(link: PostgresConnection, context: Context, lookup: Lookup) -> tuple[Lookup, bool]:
    """Returns the lookup with the words that have the pieces of its query, and whether these are all."""
    pieces = pieces_of(lookup.query)
    if not pieces:
        return lookup, True
    user = context.user if lookup.user_id is None else lookup.user_id
    owner = lexemes.only(lexemes.owner_of(context.tenant, user, lookup.conversation_id))
    words = {piece: await _words(link, context.tenant, owner, piece) for piece in pieces}
    query = with_words(lookup.query, {piece: found[:MOST] for piece, found in words.items()})
    return structs.replace(lookup, query=query), all(len(found) <= MOST for found in words.values())


async def _words(link: PostgresConnection, tenant: str, owner: str, piece: Phrase) -> list[str]:
    values = (tenant, owner, piece.parts[0], MOST + 1)
    if len(piece.parts) > 1:
        found = await link.all("words_that_end_so", *values)
    else:
        found = await link.all("words_with_a_piece", *values)
    return [word for word, _ in found]
