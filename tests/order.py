"""The order of a run: every process begins with long tests, so that none of them comes last.

Long tests are those with a timeout of their own. pytest-xdist, with `--dist worksteal`, gives each process an equal
share of the list of tests, and moves tests from the end of one share to another process. So a share begins with long
tests, or one process would run all of them, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest


def longest_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Returns the tests, with as much patience for long ones at the beginning of each share. A file stays together."""
    files: dict[Path, list[pytest.Item]] = {}
    others: list[pytest.Item] = []
    for item in items:
        (files.setdefault(item.path, []) if _patience([item]) else others).append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for file in sorted(files.values(), key=_patience, reverse=True):
        min(shares, key=_patience).extend(file)
    ordered: list[pytest.Item] = []
    for number, share in enumerate(shares):
        size = (len(items) - len(ordered)) // (processes - number)
        fill = max(0, size - len(share))
        ordered += share + others[:fill]
        del others[:fill]
    return ordered + others


def _patience(items: Sequence[pytest.Item]) -> float:
    """Seconds that these tests may take, 0 for those without a timeout of their own."""
    markers = [item.get_closest_marker("timeout") for item in items]
    return float(sum(marker.args[0] for marker in markers if marker is not None))
