"""What of the contract is not run here, by name."""

from __future__ import annotations

import pytest

LEFT_OUT = ("test_writers_of_several_processes_do_not_interleave",)
WHY = "processes meet in the index, where this is tested: here each would write hundreds of messages through the SDK"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "backends/openai" in item.nodeid and item.name.partition("[")[0] in LEFT_OUT:
            item.add_marker(pytest.mark.skip(reason=WHY))
