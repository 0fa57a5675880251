"""Compares files with `memory` by random operations.

One handle writes deltas and the other snapshots. Both cache almost nothing and rewrite their journals at the slightest
waste, and conversations move between agents. `HANSARD_EXAMPLES=500` runs more of them.
"""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from hansard.backends.files import records, writer
from hansard.testing import Target
from hansard.testing.machine import LIMITS, WAITS, Comparison, outcome
from hansard.testing.operations import CONVERSATIONS, Operation
from hansard.testing.targets import Driver

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
AGENTS = st.sampled_from([None, "a0", "A0", "a1"])


class Folder(Target):
    """Opens the folder in one mode, then in the other."""

    def __init__(self, folder: Path) -> None:
        root = Path(tempfile.mkdtemp(dir=folder))
        super().__init__(f"file://{root}?durability=process", folder=root)


class Machine(Comparison):
    mode = "blocking"

    def _open(self) -> None:
        self.handles = []
        for mode in ("delta", "snapshot"):
            self.target.where = f"file://{self.target.folder}?durability=process&mode={mode}"
            handle = self.target.open(self.mode, clock=self.clock, limits=LIMITS)
            common = handle.backend.storage.common  # type: ignore[attr-defined]
            common.spaces._max_weight = 60
            common.tenants._max_weight = 1
            self.handles.append(handle)

    @rule(conversation=CONVERSATIONS, agent=AGENTS, handle=st.integers(0, 1), wait=st.sampled_from(WAITS))
    def move(self, conversation: str, agent: str | None, handle: int, wait: timedelta) -> None:
        change = Operation(
            "update_conversation",
            Driver.update_conversation,
            {"conversation_id": conversation, "agent_id": agent},
            "store",
        )
        expected = outcome(self.truth, change)
        assert outcome(self.handles[handle], change) == expected
        self.clock.advance(wait)


@pytest.mark.timeout(300 + 10 * EXAMPLES)
def test_files_answer_as_memory_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "make", lambda: Folder(tmp_path), raising=False)
    monkeypatch.setattr(writer, "_LEAST_WASTE", 300)
    monkeypatch.setattr(records, "_LEAST_WASTE", 300)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES or 12,
            stateful_step_count=40,
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
