"""Which mirror a contract test runs on, in which mode of the API, and on which of them all of it is run.

The whole contract takes minutes on each mirror, because every call of a store is one or several of the SDK. So all of
it runs on one, in the mode that the SDK has itself, and what waits or races in the other mode; on the others runs
what a mirror does by itself, and not only its index. `HANSARD_MIRRORS=all` runs all of it everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.contract.backends import quick_folder
from tests.contract.many import ServedTarget

from hansard.testing import Target

WHOLE = "conversations-delta-async"
RACES = "conversations-delta-blocking"
PARTS = (
    "conversations-snapshot-async",
    "threads-delta-async",
    "threads-snapshot-blocking",
)
OF_A_MIRROR = (
    *("TestOrder", "TestBatches", "TestReadYourWrites", "TestCounts", "TestConversations", "TestUpdateMessage"),
    *("TestReplaceMessages", "TestRemoving", "TestBranches", "TestForks", "TestDeleteConversation", "TestTombstones"),
    *("TestExpiry", "TestEraseUser", "TestTenants", "TestBackup", "TestLeases", "TestStats"),
)
"""The parts of the contract that are about what a mirror adds, removes and takes over."""
SLOW = {
    "test_writers_of_several_processes_do_not_interleave": "hundreds of messages, each through the SDK, in processes",
    "test_a_killed_writer_loses_nothing": "hundreds of messages, each through the SDK, in processes",
    "test_a_large_batch_is_atomic_or_refused": "thousands of messages through the SDK, 20 a call",
    "test_a_long_conversation_is_forked_in_full": "thousands of messages through the SDK, 20 a call",
    "test_five_megabytes_are_returned_unchanged": "large bodies, several times through the SDK",
    "test_a_retried_removal_leaves_no_embedding": "vectors are records of the index, and dozens of prepared stores",
    "test_each_query_finds_exactly_the_judged_messages": "hundreds of messages through the SDK, for the index's search",
}
"""What takes longer than all the rest: only where all is run."""
ALL = os.environ.get("HANSARD_MIRRORS") == "all"


@pytest.fixture(params=["conversations-delta", "conversations-snapshot", "threads-delta", "threads-snapshot"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    kind, _, mode = request.param.partition("-")
    with quick_folder() as folder:
        index = f"sqlite:///{folder}/index.db"
        url = f"openai+{kind}://{{0}}/v1?mode={mode}&index={index}"
        target = ServedTarget(folder, url, in_memory=True)
        yield target
        target.forget()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ALL:
        return
    left_out = [item for item in items if _is_contract(item) and not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [item for item in items if item not in chosen]
    for item in items:
        name = item.name.partition("[")[0]
        if _is_contract(item) and name in SLOW:
            item.add_marker(pytest.mark.skip(reason=f"only with HANSARD_MIRRORS=all: {SLOW[name]}"))


def _is_contract(item: pytest.Item) -> bool:
    return "backends/openai/test_contract" in item.nodeid


def _is_chosen(item: pytest.Item) -> bool:
    where = item.name.partition("[")[2]
    if where.startswith(WHOLE):
        return True
    if where.startswith(RACES):
        function, cls = (getattr(item, each, None) for each in ("function", "cls"))
        return getattr(function, "races", False) or getattr(cls, "races", False)
    return where.startswith(PARTS) and item.nodeid.split("::")[1] in OF_A_MIRROR
