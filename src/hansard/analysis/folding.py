"""What counts as the same word: case and accents folded, common endings of English and German taken off.

The language of a message is not known, and one message may hold several. So the endings are few and careful, and the
same function runs on text and query: a stem need not be a word, it must only be the same for the forms of one.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 40
"""Characters of a term that count: what is longer is noise, and would only fill the index."""

# Latin accents, Hebrew points, the tatweel and vowel marks of Arabic. Marks of other scripts are part of the letter.
_MARKS = re.compile(r"[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u0652\u0670]+")
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d", "ς": "σ"})
_UMLAUT = re.compile("[äöü]")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_VOWELS = frozenset("aeiouy")


def fold(word: str) -> str:
    """Without case and accents. Expects NFKC."""
    if word.isascii():
        return word.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFD", word.casefold()))
    return unicodedata.normalize("NFC", plain).translate(_LETTERS)


def spelled_out(word: str) -> str | None:
    """A word with umlauts as it is typed without them: `Müller`, `mueller`."""
    lower = word.casefold()
    return fold(lower.translate(_UMLAUTS)) if _UMLAUT.search(lower) else None


def stem(word: str, *, umlaut: bool = False) -> str:
    """A folded word without its ending. `umlaut`: it had one, so `er` may be the ending of a plural (`Häuser`)."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    return _without_case_ending(_without_verb_ending(_singular(word)), umlaut=umlaut)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_verb_ending(word: str) -> str:
    for ending in ("ing", "ed"):
        if not word.endswith(ending) or word.endswith("eed"):
            continue
        rest = word[: -len(ending)]
        if len(rest) < 3 or not _VOWELS.intersection(rest):
            continue
        doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
        return rest[:-1] if doubled else rest
    return word


def _without_case_ending(word: str, *, umlaut: bool) -> str:
    if word.endswith(("ern", "eln")) and len(word) > 5:
        word = word[:-1]
    for ending in ("en", "er", "e") if umlaut else ("en", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
