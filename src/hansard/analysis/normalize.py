"""Decides what counts as the same word: case and accents are folded, common endings removed.

The language of a message is not known, and one message may hold several. So the endings are few and conservative, and
the same function runs on text and query: a stem need not be a word, it must only be the same for the forms of one.
Latin words lose English and German endings; Cyrillic ones those of Russian nouns and adjectives; Arabic ones the
article; Devanagari ones the plurals of Hindi.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 40
"""The most characters of a term: longer ones are noise, and would only fill the index."""

# Latin accents, Hebrew points, the tatweel and vowel marks of Arabic, the nukta. Other marks are part of the letter.
_MARKS = re.compile(r"[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u0655\u0670\u093c]+")
_LETTERS = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "þ": "th",
        "ð": "d",
        "ς": "σ",
        # Arabic letters that are used interchangeably, and those of Persian and Urdu.
        "ٱ": "ا",
        "ى": "ي",
        "ی": "ي",
        "ک": "ك",
        "ة": "ه",
    }
)
_UMLAUT = re.compile("[äöü]")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_TYPED_UMLAUT = re.compile("([aou])e")
_VOWELS = frozenset("aeiouy")
_NO_VERB_ENDINGS = ("eed", "embed", "schied", "schmied", "glied")
_SHORTEST = ("be", "do", "go")
"""Verbs of two letters. Other two-letter rests, as of `Laing` or `coed`, are not verbs."""
# A nasal before a consonant may be written as a letter or as a dot: हिन्दी, हिंदी.
_NASAL = re.compile("[ङञणनम]्(?=[क-ह])|ँ")

# For folded words, in which й is и and ё is е; the longest match is removed.
_CYRILLIC = re.compile(
    "(?:иями|иях|иям|ием|иеи|ями|ами|ыми|ими|ого|его|ому|ему|"
    "ые|ие|ыи|ии|ои|ая|яя|ое|ее|ым|им|ом|ем|ых|их|ую|юю|ою|ею|ев|ов|еи|ью|ия|ья|ье|ию|ах|ях|ам|ям|"
    "а|я|о|е|ы|и|у|ю|ь|і)$"
)
_ARABIC = re.compile("^(?:[وفبك]?ال|لل)")
_HINDI = re.compile("(?:(ि)य(?:ों|ां)|(ा)(?:ओं|एं)|(ु)(?:ओं|एं)|ों|ें)$")
_CYRILLIC_REST = _ARABIC_REST = 3
_HINDI_REST = 2


def fold(word: str) -> str:
    """Returns the word without case and accents. Expects NFKC."""
    if word.isascii():
        return word.lower()
    plain = _MARKS.sub("", unicodedata.normalize("NFD", word.casefold()))
    return _NASAL.sub("ं", unicodedata.normalize("NFC", plain).translate(_LETTERS))


def spelled_out(word: str) -> str | None:
    """Returns a word with umlauts as it is typed without them: `Müller`, `mueller`."""
    lower = word.casefold()
    return fold(lower.translate(_UMLAUTS)) if _UMLAUT.search(lower) else None


def as_if_umlaut(word: str) -> str:
    """Returns the stem that a folded word has when written with umlauts: for `mueller`, that of `Müller`."""
    return stem(_TYPED_UMLAUT.sub(r"\1", word) if word.isascii() else word, umlaut=True)


def stem(word: str, *, umlaut: bool = False) -> str:
    """Returns a folded word without its ending. With `umlaut` the word had one, so `er` may be a plural (`Häuser`)."""
    if len(word) < 4:
        return word
    if not word.isascii():
        return _other_stem(word)
    if not word.isalpha():
        return word
    return _without_double(_without_case_ending(_without_verb_ending(_singular(word)), umlaut=umlaut))


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_verb_ending(word: str) -> str:
    if word.endswith(_NO_VERB_ENDINGS):
        return word
    if word.endswith("ied") and len(word) > 4 and word[-4] not in _VOWELS:
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        if not word.endswith(ending):
            continue
        rest = word[: -len(ending)]
        if len(rest) < 2 or rest.endswith("i") or not _VOWELS.intersection(rest):
            continue
        if len(rest) > 3:
            return rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
        if _has_lost_e(rest):
            return rest + "e"
        if len(rest) > 2 or rest in _SHORTEST:
            return rest
    return word


def _has_lost_e(rest: str) -> bool:
    """Whether so short a verb ends in an `e`: `using`, `saved`; not `asked`, `doing`, `fixed`."""
    vowel, last = rest[-2], rest[-1]
    is_short = vowel in _VOWELS and last not in _VOWELS and last not in "wx"
    return is_short and not _VOWELS.intersection(rest[:-2])


def _without_case_ending(word: str, *, umlaut: bool) -> str:
    if word.endswith(("ern", "eln")) and len(word) > 5:
        word = word[:-1]
    for ending in ("en", "er", "e") if umlaut else ("en", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def _without_double(word: str) -> str:
    """Removes a doubled consonant: `cancelled` and `cancel`, `modeling` and `modelling`."""
    return word[:-1] if word.endswith("ll") and len(word) > 5 else word


def _other_stem(word: str) -> str:
    first = word[0]
    if "\u0400" <= first <= "\u04ff":
        ending = _CYRILLIC.search(word)
        return word[: ending.start()] if ending and ending.start() >= _CYRILLIC_REST else word
    if "\u0621" <= first <= "\u06ff":
        article = _ARABIC.match(word)
        return word[article.end() :] if article and len(word) - article.end() >= _ARABIC_REST else word
    if "\u0900" <= first <= "\u097f":
        plural = _HINDI.search(word)
        if plural and plural.start() >= _HINDI_REST:
            kept = "".join(filter(None, plural.groups()))
            return word[: plural.start()] + ("ी" if kept == "ि" else kept)  # बेटियां is the plural of बेटी
    return word
