"""A reranker: a second, slower look at the best candidates of a search, each together with the query."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isfinite
from typing import Any, Protocol, cast

from hansard.analysis import Match, searchable
from hansard.errors import TimedOut, Unavailable, ValidationError

CANDIDATES = 50
"""The best of a ranking, which are ranked again."""
PASSAGE = 8000
"""The most characters of a message that a reranker reads."""
_PATIENCE = 20.0


class Reranker(Protocol):
    """Scores passages for a query: the higher, the better. Any scale will do."""

    async def __call__(self, query: str, passages: Sequence[str], /) -> Sequence[float]: ...


def checked(reranker: Any) -> Reranker:
    if not callable(reranker):
        raise ValidationError("reranker must be an async callable that takes a query and texts, and returns numbers")
    return cast(Reranker, reranker)


async def reranked(reranker: Reranker, query: str, ranked: Sequence[tuple[float, Match]]) -> list[tuple[float, Match]]:
    """Returns a ranking with its best candidates in the order of the reranker, and then the others.

    `Unavailable` if the reranker fails, hangs, or returns anything but a number for each passage.
    """
    best, others = ranked[:CANDIDATES], ranked[CANDIDATES:]
    if not best:
        return []
    scores = await _scores(reranker, query, [searchable(match.message)[:PASSAGE] for _, match in best])
    again = [(score, match) for score, (_, match) in zip(scores, best, strict=True)]
    return [*sorted(again, key=lambda pair: -pair[0]), *others]


async def _scores(reranker: Reranker, query: str, passages: list[str]) -> list[float]:
    async def call() -> Sequence[float]:
        return await reranker(query, passages)

    answer = asyncio.ensure_future(call())
    try:
        done, _ = await asyncio.wait({answer}, timeout=_PATIENCE)
    finally:
        answer.cancel()
    if not done:
        raise TimedOut(
            f"the reranker did not answer within {_PATIENCE:g} seconds", retryable=True, outcome="not_applied"
        )
    try:
        return _checked([float(score) for score in answer.result()], len(passages))
    except asyncio.CancelledError as error:
        raise Unavailable("the reranker was cancelled", retryable=True, outcome="not_applied") from error
    except Exception as error:
        raise Unavailable(
            f"the reranker failed: {type(error).__name__}: {error}", retryable=True, outcome="not_applied"
        ) from error


def _checked(scores: list[float], passages: int) -> list[float]:
    if len(scores) != passages:
        raise ValueError(f"it returned {len(scores)} scores for {passages} passages")
    if not all(map(isfinite, scores)):
        raise ValueError("it returned a score that is not a finite number")
    return scores
