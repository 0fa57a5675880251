"""A judged set of long messages, made by this module: projects discussed with an assistant that explains at length.

Each conversation is about one project. The assistant's answers have several paragraphs, so its name and the words of
its trade are in every message, and a fact is stated once, in one sentence of a long message. The questions name the
project and the fact. The texts are ours, under the licence of this repository; the same ones are made each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

PROJECTS = (
    *("harbour museum", "school kitchen", "night bus line", "alpine hut", "city archive", "river clinic"),
    *("glass factory", "bird reserve", "open air stage", "bicycle garage", "seed library", "ferry terminal"),
)
THINGS = (
    *("budget", "deadline", "architect", "roof", "lighting", "insurance", "storage room", "opening speech", "permit"),
    *("heating", "entrance", "parking", "signage", "cleaning contract", "fire drill", "website", "staff canteen"),
)
VALUES = (
    *("is fixed at forty thousand", "moves to the ninth of October", "comes from Lisbon", "will be copper"),
    *("is dimmed after ten", "covers flooding as well", "lies under the stairs", "is given by Ms. Okafor"),
    *(
        "expires in spring",
        "runs on wood pellets",
        "faces the canal",
        "is for residents only",
        "is set in two languages",
    ),
    *("goes to a cooperative", "takes place every quarter", "is rebuilt from scratch", "serves breakfast until eleven"),
)
_OPENINGS = ("In practice,", "As a rule,", "From experience,", "To begin with,", "Looking back,", "On balance,")
_SUBJECTS = ("the committee", "a good plan", "the neighbours", "each supplier", "our schedule", "the first draft")
_VERBS = ("needs", "rarely survives", "depends on", "benefits from", "should describe", "is compared with")
_OBJECTS = (
    *("a clear list of open points", "several rounds of comments", "the weather in the first weeks", "written minutes"),
    *("an honest estimate of the effort", "the experience of similar places", "one person who decides in the end"),
)
_TURNS = 14
_SENTENCES = 24

Long = tuple[list[str], list[tuple[str, int]]]
"""What was said in turn, and the questions, each with the number of the message that answers it."""


def conversations() -> Iterator[tuple[str, Long]]:
    for project in PROJECTS:
        yield project, _conversation(project, random.Random(project))


def _conversation(project: str, chance: random.Random) -> Long:
    texts: list[str] = []
    questions: list[tuple[str, int]] = []
    things = chance.sample(THINGS, _TURNS)
    for nth, thing in enumerate(things):
        asked = f"Let us go on with the {project}. What should we know about the {thing}?"
        fact = f"For the {project}, the {thing} {chance.choice(VALUES)}."
        user, assistant = [*_sentences(project, chance, _SENTENCES // 2)], [*_sentences(project, chance, _SENTENCES)]
        # Each states every other fact.
        stating = (user, assistant)[nth % 2]
        stating.insert(chance.randrange(len(stating)), fact)
        questions.append((f"What did we decide about the {thing} of the {project}?", len(texts) + 1 + nth % 2))
        texts += [" ".join([asked, *user]), " ".join(assistant)]
    return texts, questions


def _sentences(project: str, chance: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        middle = f"{chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_OBJECTS)}"
        # Most things are mentioned in passing, all over the place.
        ending = chance.choice(["", "", "", f" at the {project}", f", as with the {chance.choice(THINGS)}"])
        yield f"{chance.choice(_OPENINGS)} {middle}{ending}."
