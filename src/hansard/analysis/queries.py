"""Parses what people type into a search box as conditions on terms.

All words are required; `"a phrase"` in this order; `start*` matches any word that begins so; `-word` and `-"a phrase"`
exclude; `a OR b` is either. Everything else is text: no character is an error, and a query without a word finds
nothing. Text written together without a space (`user_id`, `src/app.py`, 東京) must occur in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from msgspec import Struct

from hansard.analysis.normalize import as_if_umlaut
from hansard.analysis.terms import Terms, Word, spans
from hansard.limits import MOST_TERMS

MAX_CLAUSES = MOST_TERMS
"""The most words and phrases of a query that are read."""
MAX_PARTS = 64
"""The most terms of one phrase that count."""
PIECE = 3
"""The least characters of a piece of a word. Shorter ones are in thousands of words, and are found as words."""
MAX_CHARACTERS = 10_000
"""The most characters of a query that are read."""
_REMEMBERED = 200
"""The most characters of a query whose parse result is cached."""

_QUOTES = str.maketrans("“”„‟＂", '"""""')
_DIGITS = re.compile("[1-9][0-9]{3,14}")
_THOUSANDS = re.compile("[1-9][0-9]{0,2}(?:,[0-9]{3}){1,4}|[1-9][0-9]{0,2}(?:[.'’][0-9]{3}){1,4}")
_IN_A_WORD = re.compile(r"[A-Za-z0-9#%+$&@]|[^\x00-\x7f]")
_DIGIT = re.compile("[0-9]")
_PIECE = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')


class Phrase(Struct, frozen=True, gc=False):
    """Terms that must follow each other; a single one may also be another spelling of a word."""

    parts: tuple[str, ...]
    prefix: bool = False
    """The last one is only the beginning of a word."""
    inside: bool = False
    """It is part of a word, or of a row of them: then the first one is only an end, and the last one a beginning."""

    def is_in(self, terms: Terms) -> bool:
        if len(self.parts) > 1:
            return self._is_row_of(terms.words)
        only = self.parts[0]
        if self.inside:
            return any(only in term for term in terms.words) or any(only in term for term in terms.more)
        if self.prefix:
            return any(term.startswith(only) for term in terms.words) or any(
                term.startswith(only) for term in terms.more
            )
        return only in terms.words or only in terms.more

    def _is_row_of(self, words: Sequence[str]) -> bool:
        return next(self.places(words), None) is not None

    def places(self, words: Sequence[str]) -> Iterator[int]:
        """Yields the positions at which it begins in a list of words."""
        first, size = self.parts[0], len(self.parts)
        if self.inside:
            yield from (at for at in range(len(words) - size + 1) if self.fits(words[at : at + size]))
            return
        at = -1
        for _ in range(words.count(first)):
            at = words.index(first, at + 1)
            if self.fits(words[at : at + size]):
                yield at

    def fits(self, words: Sequence[str]) -> bool:
        if not self.prefix:
            return tuple(words) == self.parts
        first = 1 if self.inside else 0
        return (
            len(words) == len(self.parts)
            and (not self.inside or words[0].endswith(self.parts[0]))
            and tuple(words[first:-1]) == self.parts[first:-1]
            and words[-1].startswith(self.parts[-1])
        )


class Clause(Struct, frozen=True, gc=False):
    """One word or phrase, with its other spellings: any of the phrases may match."""

    rows: tuple[Phrase, ...]
    is_name: bool = False
    """It names one thing: a quoted phrase, a number or code, or a capitalized word within a sentence."""
    pieces: tuple[Phrase, ...] = ()
    """The same as a piece of words; nothing if it is too short."""

    def is_in(self, terms: Terms) -> bool:
        return any(row.is_in(terms) for row in self.rows)


class Query(Struct, frozen=True, gc=False):
    """Matches if one clause of each group occurs, and none of the excluded ones."""

    text: str
    groups: tuple[tuple[Clause, ...], ...] = ()
    excluded: tuple[Clause, ...] = ()
    in_pieces: bool = False
    """Its words may be pieces of words."""

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def size(self) -> int:
        """How many words and phrases it has."""
        return len(self.wanted) + len(self.excluded)

    @property
    def wanted(self) -> tuple[Clause, ...]:
        return self.groups[0] if len(self.groups) == 1 else tuple(chain.from_iterable(self.groups))

    def matches(self, terms: Terms) -> bool:
        return (
            bool(self.groups)
            and all(any(clause.is_in(terms) for clause in group) for group in self.groups)
            and not any(clause.is_in(terms) for clause in self.excluded)
        )


def parse_query(text: str) -> Query:
    """Never raises: what cannot be read as an operator is text."""
    return _parsed_before(text) if len(text) <= _REMEMBERED else _parsed_lately(text[:MAX_CHARACTERS])


def _parsed(text: str) -> Query:
    groups: list[list[Clause]] = []
    excluded: list[Clause] = []
    either, count = False, 0
    is_mixed = not text.isupper()
    for nth, (minus, phrase, star, word) in enumerate(_PIECE.findall(text.translate(_QUOTES))):
        if word in ("OR", "AND"):
            either = word == "OR" and bool(groups)
            continue
        clause, negative = _clause(phrase, minus, star) if not word else _of_word(word)
        if clause is None:
            continue
        if not word or _DIGIT.search(word) or (is_mixed and nth and word[0].isupper()):
            clause = Clause(clause.rows, is_name=True, pieces=clause.pieces)
        if negative:
            excluded.append(clause)
        elif either:
            groups[-1].append(clause)
        else:
            groups.append([clause])
        either = False
        count += 1
        if count == MAX_CLAUSES:
            break
    return Query(text, tuple(map(tuple, groups)), tuple(excluded))


# A query is parsed again for every page and every snippet.
_parsed_before = lru_cache(1024)(_parsed)
_parsed_lately = lru_cache(8)(_parsed)


def parse_pieces(text: str) -> Query:
    """Returns the query whose words may be pieces of words, from three characters on."""
    query = parse_query(text)
    return Query(text, _each(_inside, query.groups), tuple(map(_inside, query.excluded)), in_pieces=True)


def _each(change: Callable[[Clause], Clause], groups: tuple[tuple[Clause, ...], ...]) -> tuple[tuple[Clause, ...], ...]:
    return tuple(tuple(map(change, group)) for group in groups)


def _inside(clause: Clause) -> Clause:
    return Clause(clause.pieces, clause.is_name) if clause.pieces else clause


def pieces_of(query: Query) -> list[Phrase]:
    """Returns the phrases of a query that are inside words."""
    clauses = (*query.wanted, *query.excluded)
    return [*dict.fromkeys(row for clause in clauses for row in clause.rows if row.inside)]


def with_words(query: Query, words: Mapping[Phrase, Iterable[str]]) -> Query:
    """Returns the query with the words that have its pieces, as an index finds them."""

    def filled(clause: Clause) -> Clause:
        found = [_with_word(row, word) for row in clause.rows if row.inside for word in words[row]]
        return Clause((*clause.rows, *found), clause.is_name)

    return Query(query.text, _each(filled, query.groups), tuple(map(filled, query.excluded)), query.in_pieces)


def _with_word(row: Phrase, word: str) -> Phrase:
    return Phrase((word, *row.parts[1:]), prefix=len(row.parts) > 1)


def count_terms(text: str) -> int:
    """Counts the words and phrases in a query, with a quick scan that costs less than parsing."""
    pieces = _PIECE.findall(text.translate(_QUOTES))
    return sum(1 for _, phrase, _, word in pieces if word not in ("OR", "AND") and _IN_A_WORD.search(word or phrase))


def relaxed(query: Query) -> Query:
    """Returns the same query, for which any one word is enough."""
    return Query(query.text, (query.wanted,) if query.groups else (), query.excluded)


def shortened(query: Query, most: int) -> Query:
    """Returns the query of at most this many first words of the same text."""
    if query.size <= most:
        return query
    short = parse_query(" ".join(query.text[:MAX_CHARACTERS].split()[:most]))
    return relaxed(short) if query.groups == relaxed(query).groups else short


def _of_word(word: str) -> tuple[Clause | None, bool]:
    minus = "-" if word.startswith("-") and not word.startswith("--") else ""
    body = word.lstrip("+").removeprefix(minus)
    star = "*" if len(body) > 1 and body.endswith("*") else ""
    return _clause(body, minus, star)


def _clause(text: str, minus: str, star: str) -> tuple[Clause | None, bool]:
    found = [word for _, _, word in spans(text)]
    if not found:
        return None, False
    last = found[-1]
    rows = [_row([word.parts for word in found], last.raw, star)]
    if any(word.pieces for word in found):
        rows.append(_row([word.finest for word in found], last.raw_pieces or last.raw, star))
    rows += (
        _row([_nth(word, nth) or word.parts for word in found], _nth(last, nth) or last.raw, star)
        for nth in range(max(len(word.others) for word in found))
    )
    if len(found) > 1 and not star:
        # In a sequence of words a text has only one spelling of each: with umlauts, if it has them.
        rows.append(_row([tuple(map(as_if_umlaut, word.raw)) for word in found], (), ""))
    rows += _numbers(text, star)
    return Clause(tuple(dict.fromkeys(rows)), pieces=_pieces(found)), bool(minus)


def _pieces(found: Sequence[Word]) -> tuple[Phrase, ...]:
    """Returns the clause as a piece of words. In a row of words, all but the first and last must be whole."""
    raw = [part for word in found for part in word.raw][:MAX_PARTS]
    if len(raw) == 1:
        return (Phrase((raw[0],), inside=True),) if len(raw[0]) >= PIECE else ()
    stems = [part for word in found for part in word.parts][:MAX_PARTS]
    rows = [(first, *stems[1:-1], last) for first in (raw[0], stems[0]) for last in (raw[-1], stems[-1])]
    return tuple(Phrase(row, prefix=True, inside=len(row[0]) >= PIECE) for row in dict.fromkeys(rows))


def _nth(word: Word, nth: int) -> tuple[str, ...]:
    """Returns another spelling; nothing if there are fewer."""
    return word.others[nth : nth + 1]


def _row(chosen: Sequence[tuple[str, ...]], raw: Sequence[str], star: str) -> Phrase:
    """Returns these terms as a phrase; before a star, the last one is as it was typed."""
    parts = [part for each in chosen for part in each]
    if star:
        parts[-1] = raw[-1]
    return Phrase(tuple(parts[:MAX_PARTS]), bool(star) and len(parts) <= MAX_PARTS)


def _numbers(text: str, star: str) -> Iterator[Phrase]:
    """Yields a number with and without thousands separators: `1250` and `1,250`."""
    if _DIGITS.fullmatch(text) and not star:
        first = len(text) % 3 or 3
        yield Phrase((text[:first], *(text[at : at + 3] for at in range(first, len(text), 3))))
    elif _THOUSANDS.fullmatch(text):
        yield Phrase(("".join(filter(str.isdigit, text)),), bool(star))
