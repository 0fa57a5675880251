"""Every backend against `memory`, by random operations.

`HANSARD_EXAMPLES=500 pytest tests/contract/test_machine.py` looks longer, and elsewhere each time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.contract import tiers
from tests.contract.backends import BACKENDS, KEEPING, quick_folder

from hansard.testing import Mode, Target
from hansard.testing.machine import compare_with_memory

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 5,
    stateful_step_count=30,
    # The default run is the same each time, so that only a change of the code can make it fail.
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

# Each runs hundreds of operations a dozen times, twice over: on a busy machine that takes longer than a test may.
pytestmark = pytest.mark.timeout(1200)

UNLIKE = {"redis-cluster": ["Receipt.blobs"]}
"""A blob of a lost write in a cluster counts until that write is settled."""

_root: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def root() -> Iterator[None]:
    with quick_folder() as folder:
        _root[:] = [folder]
        yield


def fresh(name: str) -> Target:
    """Returns an unused storage: a machine runs many times."""
    return BACKENDS[name](Path(tempfile.mkdtemp(dir=_root[0])))


def define(name: str, mode: Mode) -> None:
    case = compare_with_memory(lambda: fresh(name), mode, UNLIKE.get(name, ()))
    case.settings = SETTINGS
    globals()[f"Test_{name}_{mode}".replace("-", "_")] = case


for _name in KEEPING:
    for _mode in tiers.compared(_name):
        define(_name, _mode)
