"""Proof that a backend keeps Hansard's promises: ours, and one of your own. Needs the extra `hansard[testing]`.

A test module of a backend is this, and nothing may be left out or softened:

    import pytest
    from hansard.testing import Target
    from hansard.testing.contract import *

    @pytest.fixture
    def target(tmp_path):
        return Target(f"mine:///{tmp_path}/store")

Each promise is tested as far as the backend's `Capabilities` claim it; a gap prints as a skip that names it. Beside the
`contract` there are `strategies` (Hypothesis), a `machine` that compares any backend with `memory`, `faults` (a wrapper
that fails at call N) and `processes` (writers that are killed).
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    import pytest

    # Before they are imported: a failing assertion shall show its values in a third party's run as well.
    pytest.register_assert_rewrite("hansard.testing.contract", "hansard.testing.processes", "hansard.testing.faults")

from hansard.testing.clock import Clock
from hansard.testing.comparison import facts, state
from hansard.testing.targets import MODES, Driver, Mode, Target

__all__ = ["MODES", "Clock", "Driver", "Mode", "Target", "facts", "state"]
