"""The backends of docs/howto/writing-a-backend.md are complete and pass the contract suite as the page runs it.

`HANSARD_CONTRACT=all` runs all of it, as `make soak` does; otherwise the parts that the page's own code can break.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs import pages

from hansard.contract.storage import Storage

PAGE = pages.DOCS / "howto" / "writing-a-backend.md"
_WHOLE = PAGE.read_text(encoding="utf-8").partition("\n## A storage\n")[0].count("\n")
_PYTHON = [block for block in pages.blocks(PAGE) if block.language == "python"]
BLOCKS = [block.text for block in _PYTHON if block.line > _WHOLE]
CLOUD = [block.text for block in _PYTHON if block.line < _WHOLE]
MODULE = [text for text in BLOCKS if "hansard.testing" not in text and "hansard.Store(" not in text]
LONGEST = 410
TESTS = [text for text in BLOCKS if "hansard.testing" in text]

OF_A_STORAGE = "not TestFaults and not TestJudged"
"""Tests for the storage of the page. The others test the Store and the analysis of texts above any storage."""
OF_A_STORE = (
    "TestAppendRecords or TestBatches or TestBlobs or TestConversations or TestOrder or TestRecords"
    " or TestScans or TestTenants or TestVersions"
)
"""Tests for four functions of a key-value store. The whole contract runs on others in tests/contract."""
UNUSED = ("anyio", "asyncio", "langsmith_plugin", "randomly", "schemathesis", "valkey", "xdist")
"""Plugins of other tests, which cost time at each test."""

# A difference from memory is reported as it was found: to make it small may take longer than a test may.
PROFILE = """
from hypothesis import Phase, settings
settings.register_profile("page", phases=[Phase.generate])
settings.load_profile("page")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The page's module, with the entry point of its pyproject.toml, as an installer leaves them."""
    (toml,) = (block.text for block in pages.blocks(PAGE) if block.language == "toml")
    entry = re.search(r'^(\w+) = "([\w:]+)"$', toml, re.MULTILINE)
    assert entry is not None
    info = tmp_path / "json_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: json-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[hansard.backends]\n{entry[1]} = {entry[2]}\n")
    (tmp_path / "json_backend.py").write_text("\n\n".join(MODULE), encoding="utf-8")
    (tmp_path / "test_json_backend.py").write_text("\n\n".join(TESTS), encoding="utf-8")
    (tmp_path / "conftest.py").write_text(PROFILE, encoding="utf-8")
    return tmp_path


def test_it_has_the_methods_of_the_contract(package: Path) -> None:
    spec = importlib.util.spec_from_file_location("json_backend", package / "json_backend.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["json_backend"] = module  # where its annotations are looked up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["json_backend"]
    for name, method in vars(Storage).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            ours = inspect.signature(getattr(module.JsonStorage, name))
            assert list(ours.parameters) == list(inspect.signature(method).parameters), name


def test_the_storage_is_short() -> None:
    assert sum(len(text.splitlines()) for text in MODULE) < LONGEST


def test_a_store_of_ones_own_is_short() -> None:
    store, use, suite = CLOUD
    assert len(store.splitlines()) < 60
    assert "KeyValueBackend(" in use
    assert "hansard.testing" in suite


@pytest.mark.timeout(1200)
def test_a_store_of_ones_own_passes_the_contract_suite(tmp_path: Path) -> None:
    store, _, suite = CLOUD
    (tmp_path / "cloud_store.py").write_text(store, encoding="utf-8")
    (tmp_path / "test_cloud_store.py").write_text(f"from cloud_store import CloudStore\n\n{suite}", encoding="utf-8")
    _run_suite(tmp_path, OF_A_STORE)


@pytest.mark.timeout(1200)
def test_it_passes_the_contract_suite(package: Path) -> None:
    _run_suite(package, OF_A_STORAGE)


def _run_suite(folder: Path, tests: str) -> None:
    # One mode of the API is enough: a backend that never suspends does the same in both.
    chosen = "not async" if os.environ.get("HANSARD_CONTRACT") == "all" else f"not async and ({tests})"
    options = ["-q", "-k", chosen, "-p", "no:cacheprovider", "--rootdir", "."]
    unused = [each for name in UNUSED for each in ("-p", f"no:{name}")]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *unused, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) > 80, run.stdout[-1000:]
