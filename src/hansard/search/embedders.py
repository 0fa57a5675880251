"""Embedders by name, a small model of words that works offline, and an embedder without a model for tests."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from hansard.analysis import analyse
from hansard.errors import Unsupported, ValidationError
from hansard.executor import run_in_thread

if TYPE_CHECKING:
    from hansard.search.vectors import Embedder, TextKind


def by_name(name: str) -> Embedder:
    """Returns an installed embedder, one in a folder or a jar, `wordllama`, or the one at `package.module:name`."""
    if name == "wordllama":
        return WordLlama()
    if (path := _path_of(name)) is not None:
        from hansard.search.onnx import Onnx

        return Onnx(path)
    module, colon, attribute = name.partition(":")
    if not colon or not attribute:
        raise ValidationError(f"--embedder is {name!r}: {_hint(name)}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValidationError(f"--embedder {name!r} cannot be loaded: {error}") from error
    is_made = inspect.isclass(found) or (inspect.isfunction(found) and not inspect.iscoroutinefunction(found))
    return cast("Embedder", found() if is_made else found)


def _path_of(name: str) -> Path | None:
    from hansard.search import installation

    given = Path(name).expanduser()
    return installation.path_of(name) or (given if os.sep in name and given.exists() else None)


def _hint(name: str) -> str:
    from hansard.search import catalogue

    if name in catalogue.ARTIFACTS:
        return f"it is not installed; run `hansard embedder install {name}`"
    return "the name of an installed embedder, the path of a folder or jar, 'wordllama', or 'package.module:name'"


class WordLlama:
    """A small model of word meanings, offline and on the CPU: 256 dimensions, a fraction of a millisecond for a text.

    Needs the extra `hansard[embeddings]`. Good in English, fair in other languages. Its weights are derived from the
    word tables of large language models: read their terms before you ship it.
    """

    def __init__(self) -> None:
        try:
            import wordllama
        except ImportError as error:
            raise Unsupported(
                "this embedder needs a package that is not installed: pip install 'hansard[embeddings]'",
                capability="embeddings",
            ) from error
        # By default it looks for its files in a missing folder, and would download them: they are here.
        home = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(cache_dir=home, disable_download=True)
        self.name = "wordllama-l2-supercat-256"
        self.version = "1"
        self.dimensions = 256

    async def __call__(self, texts: Sequence[str], kind: TextKind = "passage") -> Sequence[Sequence[float]]:
        # CPU-bound, so it runs in a thread.
        return await run_in_thread(lambda: self._model.embed(list(texts), norm=True).tolist())


class Spelling:
    """No model: texts are near each other if they share pieces of words. For tests, and for trying things out.

    It knows nothing of meaning; `order` and `ordering` are near, `car` and `automobile` are not.
    """

    def __init__(self, dimensions: int = 256) -> None:
        self.name = f"spelling-{dimensions}"
        self.version = "1"
        self.dimensions = dimensions

    async def __call__(self, texts: Sequence[str], kind: TextKind = "passage") -> Sequence[Sequence[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in analyse(text).words:
            framed = f" {word} "
            for at in range(len(framed) - 2):
                number = crc32(framed[at : at + 3].encode("utf-8", "surrogatepass"))
                vector[number % self.dimensions] += 1.0 if number & 0x8000_0000 else -1.0
        return vector
