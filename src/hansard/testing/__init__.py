"""Tests that a backend keeps Hansard's promises: one of ours or your own. Needs the extra `hansard[testing]`.

This is a complete test module of a backend; it runs all tests, and none can be overridden:

    import pytest
    from hansard.testing import Target
    from hansard.testing.contract import *

    async def opened(blocking):
        return StoredBackend(MyStorage(...))  # hansard.backends.stored

    @pytest.fixture
    def target(tmp_path):
        return Target(opened, folder=tmp_path)

Without `folder` the tests that read and damage files are skipped, without a URL those of other processes. A package
gives a storage a URL by an entry point of the group `hansard.backends`: `mine = "package:open_backend"`, called as
`await open_backend(url, blocking=…, upgrade=…)`. Then the target is `Target(f"mine:///{tmp_path}/store")`.

Each promise is tested as far as the backend's `Capabilities` claim it; a gap prints as a skip that names it. Next to
the `contract` there are `strategies` (Hypothesis), a `machine` that compares any backend with `memory`, `faults` (a
wrapper that fails at call N) and `processes` (writers that are killed).
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    import pytest

    # Must come before their import, so that a failing assertion shows its values in a third party's run too.
    pytest.register_assert_rewrite("hansard.testing.contract", "hansard.testing.processes", "hansard.testing.faults")

from hansard.testing.clock import Clock
from hansard.testing.comparison import facts, state
from hansard.testing.targets import MODES, Driver, Mode, Target

__all__ = ["MODES", "Clock", "Driver", "Mode", "Target", "facts", "state"]
