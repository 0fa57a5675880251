"""Hypothesis strategies for all input of a store: unusual, but valid with the default limits.

Text may contain every Unicode character, NUL included; numbers may exceed 64 bits; containers may be empty.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from hypothesis import strategies as st

from hansard.cursors import PREFIX
from hansard.model import ROLES, SCOPES, STATUSES, Message, Participant, Source, Usage
from hansard.store import Put


@cache
def texts(max_size: int = 20) -> st.SearchStrategy[str]:
    """Any text without lone surrogates, which are not valid Unicode."""
    odd = st.sampled_from(["", "\0", "a\0b", "😀", "'\"`\\", "\u2028", "null", "1", "{}", "\r\n", "%_?", "Ü"])
    return odd | st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


@cache
def ids() -> st.SearchStrategy[str]:
    """Valid ids of conversations, messages, users, tenants, branches and records."""
    odd = st.sampled_from(["a", "A", "..", "a/b", "x" * 256, "ü" * 128, "%", " ", "it's"])
    plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
    return odd | plain.filter(lambda id: not id.startswith(PREFIX) and len(id.encode()) <= 256)


@cache
def numbers() -> st.SearchStrategy[int | float]:
    whole = st.integers() | st.sampled_from([0, 2**53, 2**63, -(2**64), 10**100])
    return whole | st.floats(allow_nan=False, allow_infinity=False)


@cache
def json_values(max_leaves: int = 10) -> st.SearchStrategy[Any]:
    """Any JSON value."""
    leaves = st.none() | st.booleans() | numbers() | texts()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(8), inner, max_size=4),
        max_leaves=max_leaves,
    )


@cache
def metadata() -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts(8), json_values(4), max_size=3)


@cache
def times() -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime(1900, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def participants(ids: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Participant]:
    return st.builds(
        Participant,
        st.sampled_from(["user", "agent", "system"]),
        texts() if ids is None else ids,
        st.none() | texts(),
        st.none() | metadata(),
    )


@cache
def sources() -> st.SearchStrategy[Source]:
    words = st.none() | texts()
    return st.builds(Source, words, words, words, st.none() | st.floats(-1e9, 1e9))


@cache
def usages() -> st.SearchStrategy[Usage]:
    tokens = st.integers(0, 10**9)
    # Multiples of 1/4: their sums are exact in any order of addition.
    cost = st.integers(0, 4000).map(lambda quarters: quarters / 4)
    return st.builds(Usage, tokens, tokens, tokens, tokens, cost, st.none() | texts())


def messages(
    ids: st.SearchStrategy[str] | None = None,
    participant_ids: st.SearchStrategy[str] | None = None,
    contents: st.SearchStrategy[Any] | None = None,
) -> st.SearchStrategy[Message]:
    """A message to append. Most fields of most messages have their defaults."""
    rare: dict[str, st.SearchStrategy[Any]] = {
        "participant": participants(participant_ids),
        "mentions": st.lists(texts(), max_size=3).map(tuple),
        "scope": st.sampled_from(SCOPES),
        "status": st.sampled_from(STATUSES),
        "pinned": st.booleans(),
        "created_at": times(),
        "trace_id": texts(),
        "sources": st.lists(sources(), max_size=2).map(tuple),
        "usage": usages(),
        "metadata": metadata(),
    }
    always = st.fixed_dictionaries(
        {
            "role": st.sampled_from(ROLES),
            "content": json_values() if contents is None else contents,
            "id": st.just("") if ids is None else ids,
            "format": st.sampled_from(["", "", "parts", "openai.chat"]),
        }
    )
    chosen = st.lists(st.sampled_from(sorted(rare)), max_size=3, unique=True)

    # Strategies are built once, because building and validating them takes several times as long as drawing.
    @st.composite
    def message(draw: st.DrawFn) -> Message:
        return Message(**draw(always), **{name: draw(rare[name]) for name in draw(chosen)})

    return message()


def records() -> st.SearchStrategy[Put]:
    namespaces = st.lists(ids(), min_size=1, max_size=3).map(tuple)
    return st.builds(Put, namespaces, ids(), json_values() | st.binary(max_size=50))
