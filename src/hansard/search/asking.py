"""Asking an embedder: in batches, for a bounded time, and believing nothing that it says before it is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hansard.errors import TimedOut, Unavailable
from hansard.search import vectors
from hansard.search.vectors import Embedder

BATCH = 64
"""Texts that the embedder gets at once."""
PATIENCE = 60.0
"""Seconds that it may take for them."""


async def vectors_of(embedder: Embedder, texts: Sequence[str], seconds: float | None = None) -> list[bytes]:
    """The vectors of these texts. `Unavailable` when the embedder fails, hangs, or gives something else."""
    made: list[bytes] = []
    for at in range(0, len(texts), BATCH):
        made += await _asked(embedder, list(texts[at : at + BATCH]), PATIENCE if seconds is None else seconds)
    return made


async def _asked(embedder: Embedder, texts: list[str], seconds: float) -> list[bytes]:
    asking = asyncio.ensure_future(embedder(texts))
    try:
        done, _ = await asyncio.wait({asking}, timeout=seconds)
    finally:
        asking.cancel()
    if not done:
        raise TimedOut(f"the embedder gave no answer in {seconds:g} seconds", retryable=True, outcome="not_applied")
    try:
        found = list(asking.result())
        if len(found) != len(texts):
            raise ValueError(f"it gave {len(found)} vectors for {len(texts)} texts")
        return [vectors.unit(each, embedder.dimensions) for each in found]
    except asyncio.CancelledError as error:
        raise Unavailable("the embedder was cancelled", retryable=True, outcome="not_applied") from error
    except Exception as error:
        raise Unavailable(
            f"the embedder failed: {type(error).__name__}: {error}", retryable=True, outcome="not_applied"
        ) from error
