"""Judged sets: what was said, and for each question the messages that answer it.

LoCoMo and BEAM are not part of this project, because of their licences. Their files are read as they are published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.retrieval import judged, long_messages
from benchmarks.retrieval.long_messages import Shape


@dataclass(frozen=True)
class Said:
    """A message."""

    id: str
    role: str
    text: str


@dataclass(frozen=True)
class Question:
    user: str
    text: str
    evidence: frozenset[str]
    """The ids of the messages that answer it."""
    kind: str


@dataclass
class JudgedSet:
    name: str
    conversations: dict[tuple[str, str], list[Said]] = field(default_factory=dict)
    """By user and conversation. A question is searched in all conversations of its user."""
    questions: list[Question] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(map(len, self.conversations.values()))

    @property
    def users(self) -> int:
        return len({user for user, _ in self.conversations})


def own() -> JudgedSet:
    """Returns the set that is shipped: ten languages, code, ids and typing errors."""
    made = JudgedSet("judged set of Hansard")
    for language, (texts, questions) in judged.SETS.items():
        said = [Said(f"{language}:{at}", "user" if at % 2 else "assistant", text) for at, text in enumerate(texts, 1)]
        # A conversation for each, of one user: the other languages are what must not be found.
        made.conversations["everybody", language] = said
        for text, answers in questions:
            evidence = frozenset(f"{language}:{at}" for at in answers)
            made.questions.append(Question("everybody", text, evidence, language))
    return made


def long(shape: Shape, users: int = long_messages.USERS) -> JudgedSet:
    """Returns the set of long messages of one shape."""
    made = JudgedSet(f"long messages of Hansard, {shape.name}")
    for seed in range(users):
        user = f"user {seed}"
        for nth, each in enumerate(long_messages.conversations(shape, seed), 1):
            ids = [f"{seed}:{nth}:{at}" for at in range(len(each.texts))]
            roles = ["assistant" if at % 2 else "user" for at in range(len(each.texts))]
            made.conversations[user, f"talk {seed}:{nth}"] = list(map(Said, ids, roles, each.texts))
            made.questions += [Question(user, text, frozenset({ids[at]}), roles[at]) for text, at in each.questions]
    return made


def locomo(path: Path) -> JudgedSet:
    """Reads LoCoMo's file: a user for each sample, a conversation for each session, a message for each turn."""
    made = JudgedSet(f"LoCoMo ({path.name})")
    for number, sample in enumerate(json.loads(path.read_text("utf-8"))):
        user = str(sample.get("sample_id", number))
        for session, turns in _sessions(sample["conversation"]):
            made.conversations[user, f"{user}-{session}"] = [
                Said(f"{user}/{turn['dia_id']}", "user", _spoken(turn)) for turn in turns
            ]
        for asked in sample["qa"]:
            # A few of these are written with other characters around them.
            found = re.findall(r"D\d+:\d+", " ".join(asked.get("evidence") or ()))
            if found:
                evidence = frozenset(f"{user}/{each}" for each in found)
                made.questions.append(Question(user, asked["question"], evidence, str(asked.get("category"))))
    return made


def _sessions(conversation: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    names = [name for name in conversation if re.fullmatch(r"session_\d+", name)]
    for name in sorted(names, key=lambda each: int(each.rpartition("_")[2])):
        if conversation[name]:
            yield name, conversation[name]


def _spoken(turn: dict[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [shares {caption}]" if caption else "")


def beam(folder: Path) -> JudgedSet:
    """Reads BEAM's folders of one size, each with `chat.json` and `probing_questions/probing_questions.json`."""
    made = JudgedSet(f"BEAM ({folder.name})")
    for chat in sorted(folder.glob("*/chat.json")):
        user = chat.parent.name
        said = [
            Said(f"{user}/{message.get('id')}/{at}", message["role"], message["content"])
            for at, message in enumerate(_messages(json.loads(chat.read_text("utf-8"))))
        ]
        made.conversations[user, user] = said
        asked = json.loads((chat.parent / "probing_questions" / "probing_questions.json").read_text("utf-8"))
        for ability, questions in asked.items():
            for each in questions:
                ids = {f"{user}/{id}/" for id in _numbers(each.get("source_chat_ids"))}
                evidence = frozenset(one.id for one in said if one.id[: one.id.rfind("/") + 1] in ids)
                # A question without an answer has no evidence.
                if evidence and ability != "abstention":
                    made.questions.append(Question(user, each["question"], evidence, ability))
    return made


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yields the messages in lists of batches, sessions and turns, however they are nested."""
    if isinstance(value, list):
        for each in value:
            yield from _messages(each)
    elif "content" in value:
        yield value
    else:
        for each in value.values():
            if isinstance(each, list):
                yield from _messages(each)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each)
