"""What every test run says at its head, what it starts, and what it may not leave behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import httpx
import httpx2
import pytest
from hypothesis import HealthCheck, settings
from tests.absences import absences
from tests.contract import tiers
from tests.contract.backends import PRESENT
from tests.servers import cassandra, postgres, runs
from tests.wait import PATIENCE

# How long something takes is for the benchmarks to say: a busy machine fails no test. And what one run tries, every run
# tries: a fault that nobody has met yet is looked for with $HANSARD_EXAMPLES, not found by whoever comes next.
settings.register_profile(
    "untimed",
    max_examples=int(os.environ.get("HANSARD_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="HANSARD_EXAMPLES" not in os.environ,
)
settings.load_profile("untimed")

# jsonschema would load it to check IRIs, which no schema here has: its parsers take seconds of every process.
sys.modules.setdefault("rfc3987_syntax", cast(ModuleType, None))


_OWNER = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OWNER] = runs.begin()
    if memory := runs.memory():
        # Where pytest creates the folders of the tests. Thousands of stores need not wait for a disk: tests kill
        # processes, not machines, so what a test wrote is kept by the system either way.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shells start what runs behind them so. Commands that tests stop by it would inherit that, and never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector away from the tests and the frameworks that they import: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests of the contract that prove nothing new on their backend, and puts the longest tests first.

    Those have a timeout of their own. If one came last, the other processes of a run would wait for it.
    """
    chosen = {item: tiers.runs(item) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
    items[:] = sorted((item for item in items if chosen[item]), key=lambda item: not item.get_closest_marker("timeout"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """After the last fixture, and before a process of pytest-xdist says that it has done."""
    runs.stop_all()


def pytest_unconfigure(config: pytest.Config) -> None:
    postgres.let_go()
    if config.stash.get(_OWNER, False):
        postgres.stop_shared()
        cassandra.stop_shared()
        runs.end()
    else:
        cassandra.let_go()


def pytest_report_header() -> list[str]:
    """What is absent is named, so that a green run cannot be taken for more than it is."""
    return [f"backends: {', '.join(PRESENT)}", f"absent: {', '.join(absences()) or 'none'}"]


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for temporary files, of this run and the processes that it starts. In the end nothing is in it."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        # Else it makes one of its own there, which it misses when the process ends: pytest has removed it by then.
        patch.setitem(multiprocessing.current_process()._config, "tempdir", str(folder))  # type: ignore[attr-defined]
        yield folder
    left = [path.name for path in folder.iterdir() if path.name.startswith(("tmp", "hansard-"))]
    assert not left, f"tests left this behind: {left}"


@pytest.fixture(scope="session", autouse=True)
def authorities() -> Iterator[None]:
    """Reads the certificates of the authorities once for a process.

    httpx, and httpx2 below OpenAI's SDK, read them for each client, even if it never speaks TLS. That takes five times
    as long as a server takes to start, and there are thousands of clients.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, read in (("httpx", httpx.create_ssl_context), ("httpx2", httpx2.create_ssl_context)):
            patch.setattr(f"{name}._transports.default.create_ssl_context", cache(read))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Lets clients wait as long as a busy machine may need: the default of httpx is five seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for phase in ("connect", "read", "write", "pool"):
            patch.setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, phase, PATIENCE)
        yield
