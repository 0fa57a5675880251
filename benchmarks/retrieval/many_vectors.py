"""Search by meaning beyond the vectors that are read from the store: recall and processor time of the index.

`python -m benchmarks.retrieval.many_vectors`: messages whose vectors of 384 dimensions lie in clusters, or anywhere.
The same questions are searched by the index and by reading every vector; recall is the share of the exact first k.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence

import numpy

import hansard
from hansard import Message, Store
from hansard.search.vectors import TextKind
from hansard.store import nearest_messages

_CONVERSATION = 200
_QUESTIONS = 20
_CLUSTERS = 500
_SPREAD = 0.8
"""Of a cluster, against the distance between two: neither apart nor all over each other."""


class RandomVectors:
    """Vectors that depend on nothing but the text."""

    version, dimensions = "1", 384

    def __init__(self, name: str) -> None:
        self.name = name
        centres = numpy.random.default_rng(1).standard_normal((_CLUSTERS, self.dimensions))
        self._centres = centres / _SPREAD if name == "clustered" else 0 * centres

    async def __call__(self, texts: Sequence[str], kind: TextKind) -> Sequence[Sequence[float]]:
        return [self._vector(int(text)) for text in texts]

    def _vector(self, number: int) -> list[float]:
        own = numpy.random.default_rng(number).standard_normal(self.dimensions)
        return (self._centres[number % _CLUSTERS] + own).tolist()  # type: ignore[no-any-return]


async def measure(name: str, size: int, folder: str) -> None:
    async with hansard.connect(f"sqlite:///{folder}/{name}.db", embedder=RandomVectors(name)) as store:
        for at in range(0, size, _CONVERSATION):
            numbers = range(at, min(at + _CONVERSATION, size))
            # Shuffled, so that neighbours in a conversation are not neighbours in a cluster.
            said = [Message("user", str(number * 7919 % size)) for number in numbers]
            await store.append(f"c{at}", said, user_id="ann")
        await store.embed()
        limit, start = nearest_messages.MOST, time.process_time()
        nearest_messages._WAIT_SECONDS = 600.0
        await _ask(store, 0)
        print(f"{name}, {size:,} vectors: made in {time.process_time() - start:.1f} s of processor time")
        by_index, index_time = await _answers(store)
        nearest_messages.MOST, indexed = size + 1, nearest_messages.INDEXED
        nearest_messages.INDEXED = size + 1
        exact, exact_time = await _answers(store)
        nearest_messages.MOST, nearest_messages.INDEXED = limit, indexed
        shares = [
            sum(len({*one[:k]} & {*other[:k]}) / k for one, other in zip(by_index, exact, strict=True)) / _QUESTIONS
            for k in (10, 100)
        ]
        print(f"  recall at 10: {shares[0]:.4f}, at 100: {shares[1]:.4f}")
        print(f"  processor time of a search: index {index_time * 1000:.0f} ms, exact {exact_time * 1000:.0f} ms")


async def _answers(store: Store) -> tuple[list[list[str]], float]:
    start = time.process_time()
    found = [await _ask(store, at) for at in range(_QUESTIONS)]
    return found, (time.process_time() - start) / _QUESTIONS


async def _ask(store: Store, number: int) -> list[str]:
    question = str(10_000_000 + number)
    hits = await store.search(question, user_id="ann", mode="meaning", limit=100, token_cap=None)
    assert hits.complete
    return [hit.message.id for hit in hits]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval.many_vectors", description=__doc__)
    parser.add_argument("--size", type=int, default=120_000, help="messages (120,000)")
    size = parser.parse_args().size
    for name in ("clustered", "random"):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(name, size, folder))


if __name__ == "__main__":
    main()
