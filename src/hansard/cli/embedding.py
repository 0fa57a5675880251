"""Embedders by name: `--embedder wordllama`, or `--embedder package.module:name`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from hansard.search import Embedder

Named = Annotated[
    str | None, Parameter(help="What embeds: wordllama, or package.module:name of an embedder or of what makes one.")
]


def load(name: str | None) -> Embedder | None:
    if name is None:
        return None
    from hansard.search.embedders import by_name

    return by_name(name)
