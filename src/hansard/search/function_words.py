"""Words that say little by themselves: articles, pronouns, prepositions, forms of "to be".

Ranking needs no such list, since frequent words count little there. A snippet has no frequencies: it uses this list to
mark the words that a message was found for, in the languages that queries are most often written in.
"""

from __future__ import annotations

from functools import cache

from hansard.analysis import Query, parse_query
from hansard.analysis.queries import Clause

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


@cache
def _terms() -> frozenset[str]:
    words = f"{_ENGLISH} {_GERMAN} {_FRENCH} {_SPANISH}".split()
    terms = (row.parts[0] for word in words for clause in parse_query(word).wanted for row in clause.rows)
    return frozenset((*words, *terms))


def telling(query: Query) -> tuple[Clause, ...]:
    """Returns the words and phrases of a query without function words; all, if it has no others."""
    wanted = query.wanted
    return tuple(clause for clause in wanted if not _is_function_word(clause)) or wanted


def _is_function_word(clause: Clause) -> bool:
    """Whether a clause is one such word, and neither quoted, capitalized within a sentence, nor a prefix."""
    if clause.is_name:
        return False
    return all(len(row.parts) == 1 and not row.prefix and row.parts[0] in _terms() for row in clause.rows)
