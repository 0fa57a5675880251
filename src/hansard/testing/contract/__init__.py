"""The contract: the promises of every backend, as tests. `hansard.testing` shows how to run it on a backend."""

from __future__ import annotations

from hansard.testing.contract.base import clock, mode, store
from hansard.testing.contract.batches import TestBatches
from hansard.testing.contract.blobs import TestBlobs
from hansard.testing.contract.branches import TestBranches, TestForks
from hansard.testing.contract.conversations import TestConversations, TestListing
from hansard.testing.contract.counts import TestCounts, TestReadYourWrites
from hansard.testing.contract.crossings import TestCrossings
from hansard.testing.contract.deletion import TestDeleteConversation, TestPurge, TestTombstones
from hansard.testing.contract.duplicates import TestDuplicates
from hansard.testing.contract.durability import TestCorruption, TestDurability
from hansard.testing.contract.edits import TestRemoving, TestReplaceMessages, TestUpdateMessage
from hansard.testing.contract.erasure import TestEraseUser
from hansard.testing.contract.expiry import TestExpiry
from hansard.testing.contract.faults import TestFaults
from hansard.testing.contract.filters import TestFilters, TestPinned, TestTurns
from hansard.testing.contract.leases import TestLeases
from hansard.testing.contract.lifecycle import TestBackup, TestClosing, TestStats, TestTenants
from hansard.testing.contract.members import TestMembers
from hansard.testing.contract.order import TestOrder
from hansard.testing.contract.pages import TestPaging
from hansard.testing.contract.prompts import TestPrompts, TestRollingSummaries
from hansard.testing.contract.ratings import TestMarkFilters, TestRatings
from hansard.testing.contract.records import TestAppendRecords, TestRecords, TestScans
from hansard.testing.contract.restore import TestCopying
from hansard.testing.contract.search import TestJudged, TestSearching
from hansard.testing.contract.shares import TestShares
from hansard.testing.contract.summaries import TestSummaries
from hansard.testing.contract.usage import TestUsage
from hansard.testing.contract.verbatim import TestVerbatim
from hansard.testing.contract.versions import TestVersions
from hansard.testing.contract.walls import TestWalls
from hansard.testing.contract.watch import TestWatch
from hansard.testing.contract.windows import TestWindows

__all__ = [
    "TestAppendRecords",
    "TestBackup",
    "TestBatches",
    "TestBlobs",
    "TestBranches",
    "TestClosing",
    "TestConversations",
    "TestCopying",
    "TestCorruption",
    "TestCounts",
    "TestCrossings",
    "TestDeleteConversation",
    "TestDuplicates",
    "TestDurability",
    "TestEraseUser",
    "TestExpiry",
    "TestFaults",
    "TestFilters",
    "TestForks",
    "TestJudged",
    "TestLeases",
    "TestListing",
    "TestMarkFilters",
    "TestMembers",
    "TestOrder",
    "TestPaging",
    "TestPinned",
    "TestPrompts",
    "TestPurge",
    "TestRatings",
    "TestReadYourWrites",
    "TestRecords",
    "TestRemoving",
    "TestReplaceMessages",
    "TestRollingSummaries",
    "TestScans",
    "TestSearching",
    "TestShares",
    "TestStats",
    "TestSummaries",
    "TestTenants",
    "TestTombstones",
    "TestTurns",
    "TestUpdateMessage",
    "TestUsage",
    "TestVerbatim",
    "TestVersions",
    "TestWalls",
    "TestWatch",
    "TestWindows",
    "clock",
    "mode",
    "store",
]
