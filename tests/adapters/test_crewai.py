"""CrewAI's memory and flows: `crewai_suite`, in the environment that CrewAI has for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters import crewai_environment

ABSENT = crewai_environment.why_absent()


@pytest.mark.timeout(1200)  # a whole suite, of which every test has the usual limit
@pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT))
def test_the_suite_of_crewai(tmp_path: Path) -> None:
    ini = ("--noconftest", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-o", "addopts=")
    suite = "tests/adapters/crewai_suite.py"
    said = crewai_environment.run(
        *("-m", "pytest", *ini, "--import-mode=importlib", "-q", suite, f"--basetemp={tmp_path}/t"),
        home=tmp_path,
    )
    assert " passed" in said
    assert " skipped" not in said
