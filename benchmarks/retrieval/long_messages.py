"""Judged sets of long messages, made by this module: projects discussed with an assistant that explains at length.

Each conversation goes through several projects, and each project comes up in several conversations. So the words of a
question are all around the message that answers it, and in other conversations, too: what the neighbours say misleads
as often as it helps. A fact is stated once, by the user or the assistant, in one sentence. Other things are mentioned
in passing everywhere, and some are discussed again without anything new.

The shapes differ in who writes at length. The texts are ours, under the licence of this repository; a seed always makes
the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """Who writes at length."""

    name: str
    user: tuple[int, int]
    """The least and the most sentences of a message, beside the question or the fact."""
    assistant: tuple[int, int]


SHAPES = (
    Shape("short questions, long answers", (0, 2), (20, 40)),
    Shape("long questions, long answers", (10, 20), (20, 40)),
    Shape("long questions, short answers", (20, 40), (0, 2)),
    Shape("mixed lengths", (0, 30), (0, 30)),
)
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
    *("is dimmed after ten", "covers flooding as well", "lies under the stairs", "is left to Ms. Okafor"),
    *("expires in spring", "runs on wood pellets", "faces the canal", "is for residents only"),
    *("is set in two languages", "goes to a cooperative", "takes place every quarter", "is rebuilt from scratch"),
)
USERS = 2
"""With so many, a judged set has 288 questions: one of them is less than half a point."""
_VISITS = 3
"""Conversations in which a project comes up."""
_NEW = 4
"""Things that are settled in each."""
_AGAIN = 2
"""Things that are discussed again, in each but the first."""
_OPENINGS = ("In practice,", "As a rule,", "From experience,", "To begin with,", "Looking back,", "On balance,")
_SUBJECTS = ("the committee", "a good plan", "the neighbours", "each supplier", "our schedule", "the first draft")
_VERBS = ("needs", "rarely survives", "depends on", "benefits from", "should describe", "is compared with")
_OBJECTS = (
    *("a clear list of open points", "several rounds of comments", "the weather in the first weeks", "written minutes"),
    *("an honest estimate of the effort", "the experience of similar places", "one person who decides in the end"),
)
_ASKED = (
    "What did we decide about the {thing} of the {project}?",
    "Remind me what was said about the {thing} at the {project}.",
    "How did we settle the question of the {project}'s {thing}?",
)


@dataclass
class LongConversation:
    texts: list[str] = field(default_factory=list)
    """What was said in turn, by the user first."""
    questions: list[tuple[str, int]] = field(default_factory=list)
    """Each with the number of the message that answers it, from 0 on."""


def conversations(shape: Shape, seed: int) -> Iterator[LongConversation]:
    """Yields what one user said and was told, about 100,000 tokens."""
    chance = random.Random(f"{shape.name} {seed}")
    things = {project: chance.sample(THINGS, _VISITS * _NEW) for project in PROJECTS}
    for visit in range(_VISITS):
        projects = chance.sample(PROJECTS, len(PROJECTS))
        for start in range(0, len(projects), _VISITS):
            made = LongConversation()
            for project in projects[start : start + _VISITS]:
                _discuss(made, shape, project, things[project], visit, chance)
            yield made


def _discuss(
    made: LongConversation, shape: Shape, project: str, things: Sequence[str], visit: int, chance: random.Random
) -> None:
    settled = things[: visit * _NEW]
    turns = [*things[visit * _NEW : (visit + 1) * _NEW], *(chance.sample(settled, _AGAIN) if settled else ())]
    chance.shuffle(turns)
    for nth, thing in enumerate(turns):
        named = nth == 0 or chance.random() < 0.5
        user = [_opening(project, thing, is_named=named), *_sentences(project, chance, *shape.user)]
        assistant = [f"About the {thing}, there are some points.", *_sentences(project, chance, *shape.assistant)]
        if thing not in settled:
            at = chance.randrange(2)
            stating = (user, assistant)[at]
            stating.insert(chance.randrange(len(stating)) + 1, _fact(project, thing, chance))
            asked = chance.choice(_ASKED).format(thing=thing, project=project)
            made.questions.append((asked, len(made.texts) + at))
        made.texts += [" ".join(user), " ".join(assistant)]


def _opening(project: str, thing: str, *, is_named: bool) -> str:
    return f"What should we know about the {thing}{f' of the {project}' if is_named else ''}?"


def _fact(project: str, thing: str, chance: random.Random) -> str:
    value = chance.choice(VALUES)
    return f"For the {project}, the {thing} {value}." if chance.random() < 0.5 else f"The {thing} {value}."


def _sentences(project: str, chance: random.Random, least: int, most: int) -> Iterator[str]:
    for _ in range(chance.randint(least, most)):
        middle = f"{chance.choice(_SUBJECTS)} {chance.choice(_VERBS)} {chance.choice(_OBJECTS)}"
        # Most things are mentioned in passing, all over the place.
        ending = chance.choice(["", "", "", f" at the {project}", f", as with the {chance.choice(THINGS)}"])
        yield f"{chance.choice(_OPENINGS)} {middle}{ending}."
