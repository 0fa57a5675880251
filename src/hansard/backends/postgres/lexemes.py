"""Terms of `hansard.analysis` for PostgreSQL's text search: a tsvector for a message, a tsquery for a query.

No text search configuration is used: the analysis has already decided what a word is. Words have positions, so that a
phrase is `'a' <-> 'b'`; alternative spellings have positions without a successor, so that they match, but in no phrase.
A prefix is `'a':*`. Scripts without spaces become one term a character, which makes a part of a word a phrase, without
trigrams.

A tsvector has limits: 16,383 positions, 256 of one lexeme, and a megabyte in all. Beyond the first two, and if a term
is too long for a lexeme, a message is *loose*: it has no positions, a phrase finds it by its words alone, exclusions
are ignored, and every hit is checked with `Query.matches`. Beyond the last it has only the prefixes of its words; and
if those are too many as well, every query finds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from hansard.analysis import GAP, Clause, Query, columns, searchable
from hansard.analysis.queries import Phrase
from hansard.model import Message

LONGEST = 100
"""Characters of a lexeme: at most 400 bytes of PostgreSQL's 2,046. Almost no term has more than 40."""
LAST_PLACE = 16_383
MOST_PLACES = 255
"""Positions of one lexeme. PostgreSQL drops those beyond without an error."""
MOST_BYTES = 1_000_000

# No term begins so: words contain no control characters.
LOOSE = "\2loose"
ANY = "\2any"
_BEGINNING = "\3"
_CUT = 6
"""Characters of a prefix."""


class Vector(Struct, frozen=True, gc=False):
    """The terms of a message, in the syntax of a tsvector."""

    text: str
    loose: bool
    words: int
    """The length of the text."""


class Expression(Struct, frozen=True, gc=False):
    """A query, in the syntax of a tsquery."""

    text: str
    in_index: str
    """What is looked up in the index of terms. It may find messages of other tenants, too."""
    exact: bool
    """False if it may find too much: then every hit must be checked."""


# Owners


@lru_cache(4096)
def _owner(kind: str, *names: str) -> str:
    """Short, because each message has it: if two collide, the columns next to the terms tell them apart."""
    text = "\0".join(names).encode("utf-8", "surrogatepass")
    return f"\2{kind}{hashlib.blake2b(text, digest_size=6).hexdigest()}"


def only(owner: str) -> str:
    """Finds everything of an owner."""
    return _quoted(owner)


def of_tenant(tenant: str) -> str:
    return _owner("t", tenant)


def of_user(tenant: str, user_id: str) -> str:
    return _owner("u", tenant, user_id)


def of_conversation(tenant: str, conversation_id: str) -> str:
    return _owner("c", tenant, conversation_id)


def owner_of(tenant: str, user: str | None, conversation_id: str | None) -> str:
    """Returns the term of everything that a search covers."""
    if conversation_id is not None:
        return of_conversation(tenant, conversation_id)
    return of_tenant(tenant) if user is None else of_user(tenant, user)


def owners(tenant: str, conversation_id: str, user_id: str | None) -> list[str]:
    found = [of_tenant(tenant), of_conversation(tenant, conversation_id)]
    return found if user_id is None else [*found, of_user(tenant, user_id)]


# A message


def vector_of(message: Message, belongs_to: Sequence[str]) -> Vector:
    """Returns the terms of a message, and those of its owners."""
    words, more = columns(searchable(message))
    length = len(words.split())
    places = _places(words.split(), more.split())
    if places is not None and _size(places.items()) <= MOST_BYTES:
        texts = [f"{_quoted(term)}:{','.join(map(str, at))}" for term, at in places.items()]
        return Vector(" ".join([*texts, *map(_quoted, belongs_to)]), loose=False, words=length)
    terms = dict.fromkeys(term[:LONGEST] for term in (*words.split(), *more.split()))
    if _size((term, ()) for term in terms) > MOST_BYTES:
        terms = dict.fromkeys(_BEGINNING + term[:_CUT] for term in terms)
    if _size((term, ()) for term in terms) > MOST_BYTES:
        terms = {ANY: None}
    return Vector(" ".join(map(_quoted, (*terms, *belongs_to, LOOSE))), loose=True, words=length)


def _places(words: Sequence[str], more: Sequence[str]) -> dict[str, list[int]] | None:
    """Returns the positions of each term; None if a tsvector cannot hold them."""
    if len(words) + 2 * len(more) > LAST_PLACE:
        return None
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words, 1):
        if word != GAP:
            places.setdefault(word, []).append(place)
    # Two positions apart, so that no phrase spans two of them.
    for nth, other in enumerate(more, 1):
        places.setdefault(other, []).append(len(words) + 2 * nth)
    if any(len(term) > LONGEST or len(at) > MOST_PLACES for term, at in places.items()):
        return None
    return places


def _size(terms: Iterable[tuple[str, Sequence[int]]]) -> int:
    """Returns the bytes of a tsvector that are limited: texts and positions."""
    return sum(len(term.encode()) + 3 + 2 * len(at) for term, at in terms)


def _quoted(term: str) -> str:
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


# A query


def expression_of(query: Query, owner: str, *, has_most: bool = False) -> Expression:
    """Returns an expression that finds every matching message of the owner.

    An owner who has most of the messages is not looked up: finding a hit in such a long list takes longer than reading
    it.
    """
    wanted = " & ".join(f"({_either(group)})" for group in query.groups)
    believed = [clause for clause in query.excluded if _is_sayable(clause) and not _is_unknown(clause)]
    if believed:
        # An exclusion of a phrase is ignored for loose messages.
        wanted += f" & !(({' | '.join(map(_strict, believed))}) & !{_quoted(LOOSE)})"
    exact = all(map(_is_sayable, (*query.wanted, *query.excluded)))
    of_all = f"(({wanted}) | {_quoted(ANY)})"
    of_owner = f"{_quoted(owner)} & {of_all}"
    return Expression(of_owner, of_all if has_most else of_owner, exact)


def _is_sayable(clause: Clause) -> bool:
    """Returns whether the lexemes represent the terms exactly."""
    return all(0 < len(part) <= LONGEST for row in clause.rows for part in row.parts)


def _is_unknown(clause: Clause) -> bool:
    """Returns whether it is a piece that no word has."""
    return all(row.inside for row in clause.rows)


def _either(clauses: Sequence[Clause]) -> str:
    return " | ".join(_row(row) for clause in clauses for row in clause.rows)


def _row(row: Phrase) -> str:
    if row.inside:
        # Words that have the piece stand beside it: see `vocabulary`. A loose message may have others.
        return _quoted(LOOSE)
    *parts, last = row.parts
    loosely = " & ".join([*(_loosely(part) for part in parts), _loosely(last, prefix=row.prefix)])
    return f"({_phrase(row)}) | ({_quoted(LOOSE)} & {loosely})" if parts else loosely


def _strict(clause: Clause) -> str:
    return " | ".join(f"({_phrase(row)})" for row in clause.rows if not row.inside)


def _phrase(row: Phrase) -> str:
    parts = [_quoted(part[:LONGEST]) for part in row.parts]
    if row.prefix:
        parts[-1] += ":*"
    return " <-> ".join(parts)


def _loosely(term: str, *, prefix: bool = False) -> str:
    """Matches a term, or its prefix in a message that has only prefixes."""
    whole = _quoted(term[:LONGEST]) + (":*" if prefix else "")
    beginning = _quoted(_BEGINNING + term[:_CUT]) + (":*" if prefix and len(term) < _CUT else "")
    return f"({whole} | {beginning})"
