"""LangGraph's own tests of graphs, savers and stores, from its source archives, with Hansard's saver and store.

They run in a pytest of their own, in which `langgraph_suite` puts Hansard in place of LangGraph's savers and stores:
blocking ones on SQLite with a serializer that encrypts, and some or, with HANSARD_ADAPTERS=all, all of them on memory
too; async ones on SQLite. The tests that cannot hold are named in `langgraph_suite/expected.py`; every other one must
pass.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests import sdist

SUITE = Path(__file__).parent / "langgraph_suite"
ALL = os.environ.get("HANSARD_ADAPTERS") == "all"


class Part(NamedTuple):
    """Files of an archive, and how many of their tests must pass. Each part starts a Python that imports LangGraph."""

    package: str
    files: tuple[str, ...]
    passed: int
    more: int = 0
    """How many more where HANSARD_ADAPTERS=all runs blocking tests on memory as well."""


PARTS = {
    "graphs": Part(
        "langgraph",
        (
            *("test_pregel.py", "test_pregel_async.py"),
            *("test_large_cases.py", "test_large_cases_async.py", "test_pydantic.py", "test_graph_callbacks.py"),
            *("test_retry.py", "test_runtime.py", "test_stream_events_v3.py", "test_tool_stream_handler.py"),
        ),
        322,
        99,
    ),
    "time travel and delta channels": Part(
        "langgraph",
        (
            *("test_time_travel.py", "test_time_travel_async.py", "test_checkpoint_migration.py"),
            *("test_interrupt_state.py", "test_interruption.py", "test_strict_resume.py"),
            *("test_subgraph_persistence.py", "test_subgraph_persistence_async.py"),
            *("test_delta_channel_exit_mode.py", "test_delta_channel_fork.py", "test_delta_channel_id_stability.py"),
            *("test_delta_channel_migration.py", "test_delta_channel_node_cache.py"),
            *("test_delta_channel_parallel_order.py", "test_delta_channel_run_input.py"),
            *("test_delta_channel_seal_subscribers.py", "test_delta_channel_subgraph.py"),
            *("test_delta_channel_supersteps_bound.py", "test_delta_channel_to_plain.py"),
            *("test_delta_channel_update_overwrite.py", "test_delta_channel_update_state.py"),
            "test_delta_channel_write_failures.py",
        ),
        532,
        138,
    ),
    "in memory": Part("langgraph-checkpoint", ("test_store.py", "test_memory.py"), 110),
    "stores": Part("langgraph-checkpoint-sqlite", ("test_store.py", "test_async_store.py"), 115),
}


@pytest.mark.timeout(1200)  # a suite, not a test
@pytest.mark.parametrize("name", PARTS)
def test_the_tests_of_langgraph(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    try:
        folder = sdist.folder(part.package)
    except sdist.Absent as error:
        pytest.skip(str(error))
    first = _run(folder, tmp_path, [f"tests/{file}" for file in part.files])
    passed, failed = _passed(first), re.findall(r"^FAILED (\S+)", first, re.MULTILINE)
    if failed:
        # Some of LangGraph's tests compare seconds on the clock, which a loaded machine misses: those get a second try.
        again = _run(folder, tmp_path, failed)
        assert _passed(again) == len(failed), again[-6000:]
        passed += len(failed)
    assert passed == part.passed + (part.more if ALL else 0), first[-6000:]


def _run(folder: Path, tmp_path: Path, tests: Sequence[str]) -> str:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *tests, "-q", "-rfE", "--tb=short"),
            *("--noconftest", "-p", "hansard_fixtures", "-o", "addopts=", f"--basetemp={tmp_path}/t"),
            *("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:valkey"),
            *("-p", "no:langsmith_plugin", "-p", "no:schemathesis"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SUITE)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr[-2000:]


def _passed(output: str) -> int:
    found = re.search(r"(\d+) passed", output)
    return int(found[1]) if found else 0
