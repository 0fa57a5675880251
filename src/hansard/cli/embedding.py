"""Embedders by name: `--embedder wordllama`, or `--embedder package.module:name`."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import Parameter

from hansard.errors import ValidationError

if TYPE_CHECKING:
    from hansard.search import Embedder

Named = Annotated[
    str | None, Parameter(help="What embeds: wordllama, or package.module:name of an embedder or of what makes one.")
]


def load(name: str | None) -> Embedder | None:
    if name is None:
        return None
    if name == "wordllama":
        from hansard.search import WordLlama

        return WordLlama()
    module, colon, attribute = name.partition(":")
    if not colon or not attribute:
        raise ValidationError(f"--embedder is {name!r}: 'wordllama', or 'package.module:name'")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValidationError(f"--embedder {name!r} cannot be had: {error}") from error
    is_made = inspect.isclass(found) or (inspect.isfunction(found) and not inspect.iscoroutinefunction(found))
    return cast("Embedder", found() if is_made else found)
