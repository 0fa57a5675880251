"""Search: the scan for backends without an index, ranking, snippets, vectors.

Modules that are slow to import are imported with the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.search.hits import Hit, Hits, Passage, Snippet

if TYPE_CHECKING:
    from hansard.search.embedders import Spelling, WordLlama
    from hansard.search.onnx import Onnx
    from hansard.search.reranker import Reranker
    from hansard.search.vectors import Embedder, Embedding

_WHERE = {
    "Embedder": "vectors",
    "Embedding": "vectors",
    "Onnx": "onnx",
    "Reranker": "reranker",
    "Spelling": "embedders",
    "WordLlama": "embedders",
}

__all__ = ["Embedder", "Embedding", "Hit", "Hits", "Onnx", "Passage", "Reranker", "Snippet", "Spelling", "WordLlama"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"hansard.search.{_WHERE[name]}"), name)
