"""Which parts of the contract run on which backend, in which API: the one place that says so.

`make test` runs what this table selects. `HANSARD_CONTRACT=all`, as in `make soak`, runs everything everywhere.

A backend with code of its own runs the whole contract through the async API. Through the blocking API it runs the whole
contract only where `Capabilities.blocking` chooses other code, and otherwise what waits or races. With files it is the
reverse: the async API calls the functions of the blocking one on other threads. A variant of another backend runs the
classes that its own lines of code can break. A backend that is not in the table runs like a new one: everything through
the async API. A new class or test of the contract runs everywhere until a line here leaves it out.
"""

from __future__ import annotations

import os
from typing import NamedTuple, cast

import pytest

from hansard.testing import MODES, Mode
from hansard.testing.contract.base import Contract


class Scope(NamedTuple):
    """A part of the contract, by the names of its classes and tests. Tests marked by `races` belong to every scope."""

    only: frozenset[str] | None = None
    """None: all of them."""
    without: frozenset[str] = frozenset()
    races: bool = True

    def has(self, item: pytest.Function) -> bool:
        names = {item.cls.__name__, item.originalname}
        if self.races and _races(item):
            return True
        if self.only is not None and names.isdisjoint(self.only):
            return False
        return names.isdisjoint(self.without) or item.callspec.params.get("act") in EVERYWHERE


OF_EMBEDDINGS = frozenset({"test_a_retried_removal_leaves_no_embedding"})
STRUCK = OF_EMBEDDINGS | {"test_a_fault_leaves_nothing_half_done_and_may_be_retried"}
"""Faults are injected between the Store and the backend, at every call: the Store decides what follows. All operations
are struck on `memory` and `sqlite`, and those in `EVERYWHERE` on every backend. The removals of embeddings are also
struck on `keyvalue-async`, which writes records and messages in separate steps."""
EVERYWHERE = ("append", "delete_message", "write records")
"""Rows of the table of operations that run even where the table is left out."""
READS = frozenset(
    {
        *("TestFilters", "TestJudged", "TestPaging", "TestPinned", "TestPrompts", "TestRollingSummaries"),
        *("TestTurns", "TestWindows"),
    }
)
"""Classes about reading messages by code that knows nothing of a variant."""
BESIDE_JOURNALS = frozenset(
    {
        *("TestAppendRecords", "TestListing", "TestRecords", "TestScans", "TestSearching", "TestStats"),
        *("TestTenants", "TestUsage", "TestWalls"),
    }
)
"""Classes about what the file backend stores in the same way whatever its `mode`, which chooses between a line and a
snapshot of a conversation."""
INDEXED_SLOWLY = frozenset(
    {
        *("test_every_hit_has_a_snippet_with_highlights", "test_no_query_text_is_an_error"),
        "test_relevance_is_computed_over_the_filtered_messages",
    }
)
"""Hundreds of searches on a cluster, to prove what the Store does, or what `test_index.py` compares with `memory`."""
LARGEST = frozenset({"test_a_large_batch_is_atomic_or_refused", "test_fifty_megabytes_are_returned_unchanged"})
"""Ten thousand messages, which the Store splits by a limit that one server and a cluster share; and one of fifty
megabytes, which is one value on one node in both."""
OF_AN_INDEX = frozenset(
    {
        *("TestDeleteConversation", "TestEraseUser", "TestJudged", "TestRemoving", "TestSearching", "TestStats"),
        *("TestTenants", "TestUpdateMessage"),
    }
)
"""Classes about what is found, and about what has to leave an index."""
SURVIVES = frozenset(
    {
        *("TestCorruption", "TestDeleteConversation", "TestDurability", "TestEraseUser", "TestExpiry"),
        *("TestReadYourWrites", "TestTenants"),
    }
)
"""Classes about what several processes see or a crash leaves: for functions of a key-value store that is durable."""
OF_A_MIRROR = frozenset(
    {
        *("TestOrder", "TestBatches", "TestReadYourWrites", "TestConversations", "TestUpdateMessage"),
        *("TestReplaceMessages", "TestRemoving", "TestBranches", "TestForks", "TestDeleteConversation"),
        *("TestExpiry", "TestEraseUser", "TestLeases"),
    }
)
"""Classes about what a mirror adds, removes and takes over by code of its API or its mode."""
OF_ITS_INDEX = READS | {"TestListing", "TestRecords", "TestScans", "TestSearching", "TestUsage"}
"""Classes about calls that a mirror forwards to its index, which is SQLite."""
CHANGED_AT_THE_API = frozenset({"TestReplaceMessages", "TestRemoving", "TestUpdateMessage"})
"""Where the two modes of a mirror, and the two APIs, differ most. `test_far_side.py` compares all four as well."""
SLOW_THROUGH_THE_SDK = frozenset(
    {
        *STRUCK,
        "test_a_killed_writer_loses_nothing",
        "test_a_large_batch_is_atomic_or_refused",
        "test_a_long_conversation_is_forked_in_full",
        "test_each_query_finds_exactly_the_judged_messages",
        "test_five_megabytes_are_returned_unchanged",
        "test_writers_of_several_processes_do_not_interleave",
    }
)
"""Hundreds of messages, 20 a call, to prove what the index does: it is SQLite, which runs all of this."""

ALL = Scope()
WHOLE = Scope(without=STRUCK)
RACES = Scope(only=frozenset())
NOTHING = Scope(only=frozenset(), races=False)

SCOPES: dict[str, dict[Mode, Scope]] = {
    "memory": {"async": ALL, "blocking": RACES},
    # Blocking calls run in the calling thread: other code.
    "sqlite": {"async": ALL, "blocking": WHOLE},
    # The same functions, called directly, or on a pool of threads: that concerns what waits or races, and connections.
    "files-delta": {"async": Scope(OF_AN_INDEX), "blocking": WHOLE},
    # The same code, but a write stores a snapshot.
    "files-snapshot": {"async": RACES, "blocking": Scope(without=STRUCK | READS | BESIDE_JOURNALS)},
    "postgres": {"async": WHOLE, "blocking": RACES},
    "redis": {"async": WHOLE, "blocking": RACES},
    # The same code, but a search asks the query engine.
    "redis-engine": {"async": Scope(OF_AN_INDEX, races=False), "blocking": NOTHING},
    # The same code, but a write takes several steps where it touches several nodes.
    "redis-cluster": {"async": RACES, "blocking": Scope(without=STRUCK | READS | LARGEST)},
    "cassandra": {"async": Scope(without=STRUCK | INDEXED_SLOWLY), "blocking": RACES},
    "http": {"async": WHOLE, "blocking": RACES},
    # The same code over three kinds of functions.
    "keyvalue-async": {"async": Scope(without=STRUCK - OF_EMBEDDINGS), "blocking": RACES},
    "keyvalue": {"async": RACES, "blocking": RACES},
    "keyvalue-file": {"async": RACES, "blocking": Scope(only=SURVIVES)},
    # Mirrors of two APIs, in two modes, through the real SDK: every call is one or several over HTTP.
    "conversations-delta": {"async": Scope(without=SLOW_THROUGH_THE_SDK | OF_ITS_INDEX), "blocking": RACES},
    "threads-snapshot": {"async": NOTHING, "blocking": Scope(OF_A_MIRROR, SLOW_THROUGH_THE_SDK, races=False)},
    "conversations-snapshot": {"async": Scope(CHANGED_AT_THE_API, races=False), "blocking": NOTHING},
    "threads-delta": {"async": Scope(CHANGED_AT_THE_API, races=False), "blocking": NOTHING},
}
NEW: dict[Mode, Scope] = {"async": ALL, "blocking": RACES}
"""The scopes of a backend that is not in the table."""


def scopes(backend: str) -> dict[Mode, Scope]:
    return SCOPES.get(backend, NEW)


def _is_everything() -> bool:
    return os.environ.get("HANSARD_CONTRACT") == "all"


def _races(item: pytest.Function) -> bool:
    return getattr(item.function, "races", getattr(item.cls, "races", False))


def runs(item: pytest.Item) -> bool:
    """Returns whether a test runs: always if it is not of the contract, or not on a backend."""
    if _is_everything() or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    params = item.callspec.params
    if not (isinstance(item.cls, type) and issubclass(item.cls, Contract) and {"target", "mode"} <= params.keys()):
        return True
    return scopes(str(params["target"]))[cast(Mode, params["mode"])].has(item)


def compared(backend: str) -> list[Mode]:
    """Returns the APIs in which random operations compare a backend with `memory`."""
    return [mode for mode in MODES if _is_everything() or scopes(backend)[mode].only is None]
