"""Text to terms.

- A word is a run of letters or of digits, folded and stemmed. Everything else separates, so `snake_case`, `kebab-case`,
  paths and error codes are split into their parts, and a query for the whole is a query for its parts in sequence.
- `camelCase` is one word, because people type `github.com` for `GitHub.com`. Its parts follow after the text, each
  group after a `GAP` that no phrase crosses.
- Scripts without spaces (Chinese, Japanese, Thai, …), and Korean, whose words have endings, produce one term for each
  character; a word of theirs is a sequence of such terms, of any length. Emoji and other symbols are terms of their
  own.

So a text becomes a sequence of terms (`words`) and a set of other spellings of some of them (`more`): unstemmed, for
prefixes; with `ue` for `ü`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from hansard.analysis.normalize import LONGEST, fold, spelled_out, stem

# Non-ASCII punctuation that is common enough to be handled here, not character by character.
POINTS = (
    r"\u2000-\u200b\u2010-\u2027\u202f-\u205e\u3000-\u3003\u3008-\u3011\u3014-\u301f"
    r"\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
)
# English endings stay with their word (`don't`); any other apostrophe separates two words (`l'été`).
_ENDING = r"(?:['’](?:[stdmSTDM]|re|ve|ll|RE|VE|LL)(?!\w))?"
_CHUNK = re.compile(rf"[^\x00-/:-@\[-`{{-\x7f{POINTS}]+{_ENDING}|[#%+$&@]")
_ASCII_CHUNK = re.compile(rf"[A-Za-z0-9]+{_ENDING}|[#%+$&@]")
_MARK_OF_OTHERS = b"\x01"
_SEPARATED = bytes(
    code if chr(code).isalnum() else ord(_MARK_OF_OTHERS if chr(code) in "#%+$&@'" else " ") for code in range(128)
) + bytes(128)
"""Spaces between letters and digits, and a mark for what may be part of a word or a word of its own."""
SINGLES = r"\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
"""Characters of scripts without spaces, already composed: most of a Chinese or Japanese text."""
_ALL_SINGLES = re.compile(f"[{SINGLES}]+")
_PLURAL = re.compile("[A-Z]{2,}s")
"""Of an abbreviation: `APIs`, `IDs`."""
_CAMEL = re.compile(r"[A-Z]{2,}s(?![^A-Z])|[A-Z]+(?![^A-Z])|[A-Z]+(?=[A-Z][^A-Z])|[A-Z]?[^A-Z]+")
_APOSTROPHES = re.compile("['’]")
_ASCII_RUN = re.compile("[A-Za-z']+|[0-9]+|[#%+$&@]")
# Invisible characters that separate nothing: soft hyphens, joiners, direction marks.
_UNSEEN = re.compile("[\u00ad\u200c\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")
# A character with its combining marks, or joined to a syllable: it is normalized alone.
_CLUSTER = re.compile(
    r".[\u0300-\u036f\u1160-\u11ff\u3099\u309a\uff9e\uff9f\uffa0-\uffdc\u00ad\u200c-\u200f]*", re.DOTALL
)
GAP = "·"
"""Separates the text from the parts of its `camelCase`. No word contains it."""
_CACHED = 300_000
"""Characters of the chunks that are cached."""
_CACHED_LENGTH = LONGEST
_AT_ONCE = 10_000
"""Chunks that are looked up in one cache, which may grow by them."""


class Word(NamedTuple):
    """The terms of one piece of text: its parts in sequence, the unstemmed forms, and other spellings of the whole."""

    parts: tuple[str, ...]
    raw: tuple[str, ...]
    """As `parts`, before their endings were removed."""
    others: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    """The parts of a `camelCase`."""
    raw_pieces: tuple[str, ...] = ()

    @property
    def finest(self) -> tuple[str, ...]:
        return self.pieces or self.parts


class Terms(NamedTuple):
    words: list[str]
    more: list[str]


def analyse(text: str) -> Terms:
    """Returns the terms of a text."""
    words, more = columns(text)
    return Terms(words.split(), more.split())


def columns(text: str) -> tuple[str, str]:
    """Returns the same separated by spaces, as an index takes them."""
    chunks = _CHUNK.findall(text) if not text.isascii() else _ascii_chunks(text)
    if len(chunks) > _AT_ONCE:
        return _long_columns(chunks)
    known = _known_chunks()
    # In this order: the first makes sure that all are known.
    words = " ".join([*map(known.__getitem__, chunks)])
    return _apart(words, dict.fromkeys(filter(None, map(known.more.get, chunks))))


def _long_columns(chunks: list[str]) -> tuple[str, str]:
    words: list[str] = []
    more: dict[str, None] = {}
    for start in range(0, len(chunks), _AT_ONCE):
        some = chunks[start : start + _AT_ONCE]
        known = _known_chunks()
        words += map(known.__getitem__, some)
        more |= dict.fromkeys(filter(None, map(known.more.get, some)))
    return _apart(" ".join(words), more)


def _apart(words: str, more: dict[str, None]) -> tuple[str, str]:
    """Returns the columns, with the parts of every `camelCase` once after the words."""
    bag = " ".join(more)
    if GAP not in bag:
        return words, bag
    groups = dict.fromkeys(group for each in more for group in each.split(GAP)[1:])
    bag = " ".join(filter(None, (each.partition(GAP)[0] for each in more)))
    return f" {GAP} ".join((words, *groups)), bag


def _ascii_chunks(text: str) -> list[str]:
    raw = text.encode("ascii").translate(_SEPARATED)
    if _MARK_OF_OTHERS in raw:
        return _ASCII_CHUNK.findall(text)
    # The same, several times as fast: only letters and digits are part of a word.
    return raw.decode("ascii").split()


def spans(text: str) -> Iterator[tuple[int, int, Word]]:
    """Yields the words of a text with their positions."""
    for match in _CHUNK.finditer(text):
        at, chunk = match.start(), match.group()
        for start, end, word in _placed(chunk) if len(chunk) <= _CACHED_LENGTH else _words_of(chunk):
            yield at + start, at + end, word


class _Known(dict[str, str]):
    """The words of chunks, and in `more` the other spellings of those that have any. Words repeat, so they are cached.

    Threads share it, and nothing is ever removed from it: it is replaced when it has become too large.
    """

    def __init__(self) -> None:
        super().__init__()
        self.more: dict[str, str] = {}
        self.size = 0

    def __missing__(self, chunk: str) -> str:
        if chunk.isascii() and chunk.isdigit():
            return chunk[:LONGEST]  # numbers rarely repeat
        word, more = _analyse_chunk(chunk)
        if more:
            self.more[chunk] = more  # before the word, whose presence says that both are known
        self[chunk] = word
        self.size += len(chunk)
        return word


_known = _Known()


def _known_chunks() -> _Known:
    global _known  # noqa: PLW0603  (other threads keep using the one that they have)
    if _known.size > _CACHED:
        _known = _Known()
    return _known


def _analyse_chunk(chunk: str) -> tuple[str, str]:
    # The common cases, by shorter paths.
    if chunk.isascii() and chunk.isalpha() and _is_plain(chunk):
        raw = chunk.lower()[:LONGEST]
        part = stem(raw)
        return part, "" if part == raw else raw
    if _ALL_SINGLES.fullmatch(chunk):
        return " ".join(chunk), ""
    # Positions are not needed here, and take longer to compute.
    chunks = (chunk,) if _is_normal(chunk) else _CHUNK.findall(_normal(chunk))
    found = [word for each in chunks for _, _, word in _runs(each)]
    others = (other for word in found for other in _others(word))
    bag = [" ".join(dict.fromkeys(others)), *_groups(found)]
    return " ".join(part for word in found for part in word.parts), GAP.join(bag)


def _others(word: Word) -> Iterator[str]:
    yield from (raw for raw in word.raw if raw not in word.parts)
    yield from word.others
    yield from (raw for raw in word.raw_pieces if raw not in word.pieces)


def _groups(found: list[Word]) -> Iterator[str]:
    """Yields the parts of every `camelCase`, with the words and digits written together with it."""
    for is_single, words in groupby(found, lambda word: _kinds[word.raw[0][0]] == _SINGLE):
        together = [] if is_single else list(words)
        if any(word.pieces for word in together):
            yield " ".join(part for word in together for part in word.finest)


@lru_cache(4096)
def _placed(chunk: str) -> list[tuple[int, int, Word]]:
    """The same, cached: callers that need positions ask for the same texts again."""
    return _words_of(chunk)


def _words_of(chunk: str) -> list[tuple[int, int, Word]]:
    if _is_normal(chunk):
        return _runs(chunk)
    normal = _normal(chunk)
    places = _places(chunk, normal)
    return [
        (places[at + start][0], places[at + end - 1][1], word)
        for piece in _CHUNK.finditer(normal)
        for at in (piece.start(),)
        for start, end, word in _runs(piece.group())
    ]


def _is_normal(chunk: str) -> bool:
    return chunk.isascii() or (unicodedata.is_normalized("NFKC", chunk) and not _UNSEEN.search(chunk))


def _normal(chunk: str) -> str:
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", chunk))


def _places(chunk: str, normal: str) -> list[tuple[int, int]]:
    """Returns the position of each character of the normal form in a chunk; the whole chunk if it is unknown."""
    places: list[tuple[int, int]] = []
    normalized: list[str] = []
    for cluster in _CLUSTER.finditer(chunk):
        made = _normal(cluster.group())
        normalized.append(made)
        places += [cluster.span()] * len(made)
    return places if "".join(normalized) == normal else [(0, len(chunk))] * len(normal)


def _runs(chunk: str) -> list[tuple[int, int, Word]]:
    """Returns the words of a chunk: runs of letters, runs of digits, and single characters, with their positions."""
    found: list[tuple[int, int, Word]] = []
    end = 0
    for run in _ASCII_RUN.findall(chunk) if chunk.isascii() else _same_kind(chunk):
        kind = _kinds[run[0]]
        start, end = end, end + len(run)
        if kind == _SINGLE:
            found += ((start + at, start + at + 1, _single(char)) for at, char in enumerate(run))
        elif kind == _MARK:
            # A vowel or tone sign, or a joiner: part of the character before it.
            if found and found[-1][1] == start:
                found[-1] = _with_combining_marks(found[-1], end, run)
        elif kind == _DIGIT:
            found.append((start, end, _number(run[:LONGEST])))
        elif kind == _LETTER:
            found.append((start, end, _short_word(run) if end - start <= LONGEST else _word(run)))
    return [each for each in found if each[2].parts and each[2].parts[0]]


def _same_kind(chunk: str) -> Iterator[str]:
    for _, group in groupby(chunk, _kinds.__getitem__):
        yield "".join(group)


def _with_combining_marks(before: tuple[int, int, Word], end: int, marks: str) -> tuple[int, int, Word]:
    start, _, word = before
    kept = "".join(mark for mark in marks if unicodedata.category(mark) in ("Mn", "Mc") and mark not in _INVISIBLE)
    if not kept:
        return start, end, word
    # There may be no letters before it, if all of them were accents.
    whole = "".join(word.parts[-1:]) + kept
    return start, end, word._replace(parts=(*word.parts[:-1], whole), raw=(*word.raw[:-1], whole))


@lru_cache(4096)
def _single(char: str) -> Word:
    return Word((char,), (char,))


def _number(run: str) -> Word:
    """Returns the word of a run of digits, of any script."""
    return _single(run if run.isascii() else "".join(str(unicodedata.digit(char)) for char in run))


def _word(run: str) -> Word:
    """Returns the word of a run of letters and apostrophes, which may be a `camelCase`."""
    run = _without_apostrophe(run)
    raw = fold(run)[:LONGEST]
    others: tuple[str, ...] = ()
    has_umlaut = False
    if not run.isascii() and (written := spelled_out(run)) is not None:
        # With its umlaut, without it, and as it is typed on keyboards without umlauts.
        others = tuple(stem(each)[:LONGEST] for each in (fold(run), written))
        has_umlaut = True
    if _is_plain(run):
        return Word((stem(raw, umlaut=has_umlaut),), (raw,), others)
    if _PLURAL.fullmatch(run):
        return Word((_stem_of(run),), (raw,), (stem(raw),))
    pieces = [piece for piece in _CAMEL.findall(run) if fold(piece)]
    parts = (stem(raw, umlaut=has_umlaut),)
    if len(pieces) < 2:
        return Word(parts, (raw,), others)
    stems = tuple(_stem_of(piece, umlaut=has_umlaut) for piece in pieces)
    return Word(parts, (raw,), others, stems, tuple(fold(piece)[:LONGEST] for piece in pieces))


def _stem_of(piece: str, *, umlaut: bool = False) -> str:
    """Returns the stem of a part of a `camelCase`."""
    raw = fold(piece)[:LONGEST]
    return raw.removesuffix("s") if _PLURAL.fullmatch(piece) else stem(raw, umlaut=umlaut)


_short_word = lru_cache(4096)(_word)


def _is_plain(run: str) -> bool:
    """Whether it is not a `camelCase`."""
    return run[1:].islower() or run.isupper() or len(run) == 1


def _without_apostrophe(run: str) -> str:
    if "'" not in run and "’" not in run:
        return run
    for ending in ("'s", "’s", "'S", "’S"):
        run = run.removesuffix(ending)
    return _APOSTROPHES.sub("", run)


# Kinds of characters

_LETTER, _DIGIT, _SINGLE, _MARK, _SPACE = range(5)
_INVISIBLE = frozenset("\ufe0e\ufe0f\u200d\u20e3")

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # ideographic iteration mark, closing mark, zero
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x3130, 0x318F),  # Hangul Compatibility Jamo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # ideographs, extension A
    (0x4E00, 0x9FFF),  # ideographs
    (0xA960, 0xA97F),  # Hangul Jamo Extended-A
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0xFF66, 0xFFDC),  # halfwidth forms
    (0x1AFF0, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFF),  # ideographs, extensions B and later
)


class _Kinds(dict[str, int]):
    """The kind of each character, cached."""

    def __missing__(self, char: str) -> int:
        kind = self[char] = _kind(char)
        return kind


def _kind(char: str) -> int:
    category = unicodedata.category(char)
    if char in _INVISIBLE or 0x1F3FB <= ord(char) <= 0x1F3FF:
        return _MARK  # variation selectors and skin tones of emoji
    if category == "Nd":
        return _DIGIT
    if category[0] in "LMN":
        unspaced = any(low <= ord(char) <= high for low, high in _UNSPACED)
        if category[0] == "M":
            return _MARK if unspaced else _LETTER
        return _SINGLE if unspaced else _LETTER
    if category in ("So", "Sc", "Sm") or char in "#%+$&@":
        return _SINGLE
    return _LETTER if char in "'’" else _SPACE


_kinds = _Kinds()
