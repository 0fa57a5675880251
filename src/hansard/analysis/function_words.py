"""Words that say little by themselves: articles, pronouns, prepositions, forms of "to be".

Where there are no frequencies, in a snippet, this list tells which words a message was found for. In a ranking frequent
words count little anyway, in every language; but those of a question can be rare in what was said. The languages are
those that queries are most often written in.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from hansard.analysis.queries import Clause, Query, parse_query

_ENGLISH = """a about after all also am an and any are as at be been before being but by can could did do does doing for
from had has have having he her here him his how i if in into is it its just me my no nor not of on or our out over
please she should so some such than that the their them then there these they this those to too under until up us very
was we were what when where which while who whom whose why will with would you your"""
_GERMAN = """aber als am an auch auf aus bei bin bis bitte da damit das dass dem den der des die dies diese dieser
dieses doch du durch ein eine einem einen einer eines er es für haben hat hatte ich ihm ihn ihr ihre im in ist ja kann
mein meine mich mir mit nach nicht noch nur ob oder ohne sein seine sich sie sind so über um und uns unser unter vom von
vor wann war waren warum was wegen weil welche welcher wenn wer werden wie wieso wir wird wo wurde zu zum zur"""
_FRENCH = """à au aux avec ce ces cette comment dans de des du elle en est et il ils je la le les leur mais me mes moi
mon ne nous où par pas pour pourquoi qu quand que quel quelle qui sa se ses son sont sur ta te tu un une vous"""
_SPANISH = """al como con cuando cuál de del dónde el ella en es esta este esto está fue la las lo los más me mi muy no
nos o para pero por porque que quién qué se si sin su sus te tu un una y ya yo"""


_LANGUAGES = (_ENGLISH, _GERMAN, _FRENCH, _SPANISH)
_RECOGNIZED = 2
"""Function words by which a language is recognized: one may be another word elsewhere, as German "hat" and "war"."""


def telling(query: Query) -> tuple[Clause, ...]:
    """Returns the words and phrases of a query without function words; all, if it has no others."""
    wanted = query.wanted
    every = frozenset().union(*_terms())
    return tuple(clause for clause in wanted if not _is_one(clause, every)) or wanted


def asking(clauses: Collection[Clause]) -> frozenset[Clause]:
    """Returns the function words with which a question is asked: those of its language, if it has other words, too."""
    found = max(
        (frozenset(clause for clause in clauses if _is_whole(clause) and _is_one(clause, terms)) for terms in _terms()),
        key=len,
    )
    return found if _RECOGNIZED <= len(found) < len(clauses) else frozenset()


@cache
def _terms() -> tuple[frozenset[str], ...]:
    """Returns the function words of each language, as they are written and as terms."""
    return tuple(
        frozenset((*words, *(row.parts[0] for word in words for each in parse_query(word).wanted for row in each.rows)))
        for words in map(str.split, _LANGUAGES)
    )


def _is_one(clause: Clause, terms: Collection[str]) -> bool:
    """Whether a clause is one of these words, and neither quoted, capitalized within a sentence, nor a prefix."""
    if clause.is_name:
        return False
    return all(len(row.parts) == 1 and not row.prefix and row.parts[0] in terms for row in clause.rows)


def _is_whole(clause: Clause) -> bool:
    """Whether it is no piece of words."""
    return not any(row.inside for row in clause.rows)
