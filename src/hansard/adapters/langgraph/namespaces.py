"""What LangGraph's long-term store accepts as a namespace, and the operations that are checked for it.

The rules are those of LangGraph's own stores, without the one against dots: labels are never joined into one text here,
so an e-mail address may be a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    NamespacePath,
    Op,
    PutOp,
    SearchOp,
)

from hansard.errors import ValidationError

Namespace = tuple[str, ...]

RESERVED = "langgraph"
"""The first label of namespaces that LangGraph reserves for itself."""


class InvalidNamespace(ValidationError, InvalidNamespaceError):
    """A namespace that LangGraph's own stores refuse too. Can be caught by LangGraph's class or by Hansard's."""


def checked(ops: Iterable[Op]) -> list[Op]:
    """Returns the operations of a batch; raises if one has a wrong namespace, before any is run."""
    checked = list(ops)
    for op in checked:
        if isinstance(op, PutOp):
            _check_place(op.namespace)
        elif isinstance(op, GetOp):
            check_labels(op.namespace)
        elif isinstance(op, SearchOp):
            check_labels(op.namespace_prefix)
        elif isinstance(op, ListNamespacesOp):
            for condition in op.match_conditions or ():
                check_labels(condition.path)
    return checked


def _check_place(namespace: Namespace) -> None:
    if not namespace:
        raise InvalidNamespace("the namespace of an item is empty: it needs at least one label")
    check_labels(namespace)


def check_new(namespace: Namespace) -> None:
    """Checks a namespace that an item is put into by name; a batch may use the reserved ones."""
    _check_place(namespace)
    if namespace[0] == RESERVED:
        raise InvalidNamespace(f"a namespace that begins with {RESERVED!r} is reserved for LangGraph: {namespace!r}")


def check_labels(path: Sequence[Any]) -> None:
    for label in path:
        if not isinstance(label, str):
            raise InvalidNamespace(f"the labels of a namespace must be strings, not {type(label).__name__}: {path!r}")
        if not label:
            raise InvalidNamespace(f"the labels of a namespace must not be empty: {path!r}")
        if "\x00" in label:
            raise InvalidNamespace(f"the labels of a namespace must not contain NUL: {path!r}")


def conditions(prefix: NamespacePath | None, suffix: NamespacePath | None) -> tuple[MatchCondition, ...] | None:
    for path in (prefix, suffix):
        check_labels(path or ())
    found = (
        *((MatchCondition("prefix", prefix),) if prefix else ()),
        *((MatchCondition("suffix", suffix),) if suffix else ()),
    )
    return found or None
