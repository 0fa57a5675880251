"""Stores a judged set, asks its questions, and counts what is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import hansard
from benchmarks.retrieval.judgements import JudgedSet
from hansard import Message, Store
from hansard.search import Embedder
from hansard.store.search_modes import SearchMode

DEPTHS = (5, 10, 25, 40, 50)


@dataclass(frozen=True)
class Outcome:
    """The recall of one mode."""

    mode: str
    recall: dict[int, float]
    """For each k, the mean share of a question's messages among the first k hits, in percent."""
    whole: dict[int, float]
    """For each k, the share of questions all of whose messages are among them, in percent."""
    by_kind: dict[str, float]
    """The recall at 10 of each kind of question."""
    incomplete: int
    """Answers that did not compare everything."""


async def measure(
    judged: JudgedSet,
    url: str,
    embedder: Embedder | None,
    modes: Sequence[SearchMode],
    options: dict[str, Any],
    report: Callable[[str], None] = lambda step: None,
) -> list[Outcome]:
    """`report` is told of each step: embedding a set takes minutes."""
    async with hansard.connect(url, embedder=embedder) as store:
        stored = 0
        for (user, id), said in judged.conversations.items():
            messages = [Message(each.role, each.text, id=each.id) for each in said]
            await store.append(id, messages, user_id=user)
            stored += len(said)
            if embedder is not None:
                await store.embed()
                report(f"{stored:,} of {judged.messages:,} messages embedded")
        outcomes = []
        for mode in modes:
            report(f"asking {len(judged.questions):,} questions by {mode}")
            outcomes.append(await _ask(store, judged, mode, options))
        return outcomes


async def _ask(store: Store, judged: JudgedSet, mode: SearchMode, options: dict[str, Any]) -> Outcome:
    shares: dict[int, list[float]] = defaultdict(list)
    kinds: dict[str, list[float]] = defaultdict(list)
    incomplete = 0
    chosen = options if mode == "words" else {}
    for question in judged.questions:
        view = store.user(question.user)
        hits = await view.search(question.text, mode=mode, limit=max(DEPTHS), token_cap=None, **chosen)
        incomplete += not hits.complete
        found = [hit.message.id for hit in hits]
        for depth in DEPTHS:
            shares[depth].append(len(question.evidence.intersection(found[:depth])) / len(question.evidence))
        kinds[question.kind].append(shares[10][-1])
    return Outcome(
        mode,
        {depth: _percent(each) for depth, each in shares.items()},
        {depth: _percent(share == 1 for share in each) for depth, each in shares.items()},
        {kind: _percent(each) for kind, each in kinds.items()},
        incomplete,
    )


def _percent(shares: Iterable[float]) -> float:
    values = list(shares)
    return round(100 * sum(values) / len(values), 1)
