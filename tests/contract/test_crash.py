"""Writers killed with SIGKILL at random moments, on real files.

The contract kills a few on each backend (`TestDurability`); `HANSARD_CRASHES=300 pytest tests/contract/test_crash.py`
kills 300 times a backend.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, DURABLE

from hansard.testing import processes

CRASHES = int(os.environ.get("HANSARD_CRASHES", "0"))


@pytest.mark.skipif(not CRASHES, reason="the contract kills a few writers; HANSARD_CRASHES kills more")
@pytest.mark.timeout(60 + CRASHES * 10)
@pytest.mark.parametrize("name", DURABLE)
def test_nothing_acknowledged_is_lost(name: str, tmp_path: Path) -> None:
    target = BACKENDS[name](tmp_path)
    assert processes.crash(target, CRASHES, seed=CRASHES) > 0


@pytest.mark.parametrize("name", DURABLE)
def test_processes_that_create_one_storage_at_once_all_succeed(name: str, tmp_path: Path) -> None:
    """None of the processes may fail, or create the storage twice."""
    target = BACKENDS[name](tmp_path)
    assert target.url is not None
    writers = [processes.Writer(target.url, f"w{number}", batches=3) for number in range(4)]
    for writer in writers:
        writer.wait()
    processes.verify(target.open(), writers)
    target.close()
