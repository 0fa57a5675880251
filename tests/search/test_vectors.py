"""Vectors by themselves: how they are kept and compared; and the embedders that come with Hansard."""

from __future__ import annotations

import asyncio
import builtins
import math
from array import array
from typing import Any

import pytest
from tests.search.labelled import MESSAGES, QUESTIONS, answers

import hansard
from hansard import Message
from hansard.errors import Corrupt, Unsupported
from hansard.search import Embedder, Spelling, WordLlama, vectors
from hansard.search.vectors import VectorRow


def rows(*given: list[float]) -> list[VectorRow]:
    return [
        VectorRow(at, f"m{at}", b"d", vectors.stored(vectors.unit(each, len(each)))) for at, each in enumerate(given)
    ]


def test_vectors_are_kept_at_length_one() -> None:
    for given, direction in (([3.0, 4.0], [0.6, 0.8]), ([0, 0], [0.0, 0.0]), ([0.0, -7.0], [0.0, -1.0])):
        kept = vectors.stored(vectors.unit(given, 2))
        assert len(kept) == 2, "a byte for each dimension"
        assert list(vectors.numbers_of(kept, 2)) == pytest.approx(direction, abs=0.005)
    for wrong in ([1.0], [1.0, 2.0, 3.0], ["a", "b"], [math.nan, 1.0], [math.inf, 1.0], 7, [None, None]):
        with pytest.raises(ValueError, match=r"vector|float"):
            vectors.unit(wrong, 2)  # type: ignore[arg-type]


def test_chunks_come_back_as_they_went() -> None:
    given = rows([1.0, 0.0], [0.6, 0.8])
    assert vectors.unpack(vectors.pack(reversed(given)), "c") == given
    for damaged in (b"", b"odd", vectors.pack(given)[:-3], "text", None):
        with pytest.raises(Corrupt, match="hansard reindex"):
            vectors.unpack(damaged, "c")


@pytest.mark.parametrize("has_numpy", [True, False])
def test_how_near(monkeypatch: pytest.MonkeyPatch, has_numpy: bool) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "numpy":
            raise ImportError(name)
        return real(name, *args, **options)

    if has_numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(builtins, "__import__", without)
    query = vectors.unit([1.0, 1.0], 2)
    older = VectorRow(9, "m9", b"d", array("f", [0.0, 1.0]).tobytes())
    found = vectors.scores([older, *rows([1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0])], query)
    assert found == pytest.approx([0.7071, 1.0, 0.7071, -0.7071, 0.0], abs=1e-4)
    assert vectors.scores([], query) == []


def test_spelling_is_near_for_words_that_look_alike() -> None:
    made = asyncio.run(Spelling()(["shipping orders", "an order was shipped", "東京タワー", "the weather is nice", ""]))
    units = [vectors.unit(each, 256) for each in made]
    near = vectors.scores([VectorRow(at, "", b"", vectors.stored(each)) for at, each in enumerate(units)], units[0])
    assert near[1] > near[3]
    assert near[4] == 0.0


async def recall(embedder: Embedder, **options: Any) -> float:
    """Of the answers to each question, how many are among the first ten hits, on the average."""
    async with hansard.connect("memory://", embedder=embedder) as store:
        await store.append("c", [Message("user", text) for text in MESSAGES])
        total = 0.0
        for question in QUESTIONS:
            hits = [hit.message.text for hit in await store.search(question, limit=10, token_cap=None, **options)]
            wanted = answers(question)
            total += sum(each in hits for each in wanted) / len(wanted)
    return total / len(QUESTIONS)


def test_both_together_find_no_less_than_either() -> None:
    pytest.importorskip("wordllama", reason="wordllama is not installed: it has no wheel for this Python")

    async def play() -> None:
        model = WordLlama()
        words = [await recall(model, match="all"), await recall(model, match="any")]
        meaning = await recall(model, mode="meaning")
        both = await recall(model, mode="hybrid")
        assert both >= meaning > max(words) > 0.4
        assert both > 0.83

    asyncio.run(play())


def test_a_model_whose_package_is_missing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    with pytest.raises(Unsupported, match=r"hansard\[embeddings\]"):
        WordLlama()
