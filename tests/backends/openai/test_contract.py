"""The contract on a mirror of the Conversations API, through the real SDK and our own server.

Left out are the parts that it hands on to its index as they are (records, search, summaries, usage, windows, …): the
index here is `sqlite`, on which they are proven. The blocking API is enough: what differs is not how it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.backends import quick_folder
from tests.contract.many import ServedTarget

from hansard.testing import Target
from hansard.testing.contract import (
    TestBatches,
    TestBranches,
    TestClosing,
    TestConversations,
    TestCopying,
    TestCounts,
    TestDeleteConversation,
    TestDuplicates,
    TestEraseUser,
    TestExpiry,
    TestForks,
    TestListing,
    TestOrder,
    TestPaging,
    TestReadYourWrites,
    TestRemoving,
    TestReplaceMessages,
    TestStats,
    TestTenants,
    TestTombstones,
    TestUpdateMessage,
    TestVerbatim,
    TestVersions,
    TestWalls,
    clock,
    store,
)
from hansard.testing.targets import Colour

__all__ = [
    "TestBatches",
    "TestBranches",
    "TestClosing",
    "TestConversations",
    "TestCopying",
    "TestCounts",
    "TestDeleteConversation",
    "TestDuplicates",
    "TestEraseUser",
    "TestExpiry",
    "TestForks",
    "TestListing",
    "TestOrder",
    "TestPaging",
    "TestReadYourWrites",
    "TestRemoving",
    "TestReplaceMessages",
    "TestStats",
    "TestTenants",
    "TestTombstones",
    "TestUpdateMessage",
    "TestVerbatim",
    "TestVersions",
    "TestWalls",
    "clock",
    "store",
]


@pytest.fixture
def colour() -> Colour:
    return "blocking"


@pytest.fixture
def target() -> Iterator[Target]:
    with quick_folder() as folder:
        remote: Path = folder / "remote"
        remote.mkdir()
        yield ServedTarget(remote, f"openai+conversations://{{0}}/v1?index=sqlite:///{folder}/index.db")
