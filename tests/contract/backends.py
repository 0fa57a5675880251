"""The backends that our own suite runs on, each on storage of its own.

A backend that is not written yet, or whose package is not installed, is absent: its tests are not collected, and the
header of the run says so. One that is there but cannot be imported is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract import keyvalue_stores, many
from tests.servers import cassandra, postgres, runs
from tests.servers import redis as redis_servers

from hansard.backends.keyvalue import KeyValue, KeyValueBackend
from hansard.backends.schemes import SCHEMES
from hansard.testing import Target

Maker = Callable[[Path], Target]


def _in_folder(url: str) -> Maker:
    def make(tmp_path: Path) -> Target:
        folder = tmp_path / "store"
        folder.mkdir(exist_ok=True)
        return Target(url.format(folder), folder=folder)

    return make


def _behind_a_server(tmp_path: Path) -> Target:
    folder = tmp_path / "store"
    folder.mkdir(exist_ok=True)
    return many.ServedTarget(folder)


def _over_four_functions(store: KeyValue) -> Target:
    """A store in this process, which every opening of the target shares."""

    async def make(_: bool) -> KeyValueBackend:
        return KeyValueBackend(store, durability="none", shared=False)

    return Target(make)


def _let_processes_find_it() -> None:
    """Registers the entry point of the file store for this process and its child processes."""
    package = str(Path(__file__).parent / "keyvalue_package")
    if package not in sys.path:
        sys.path.append(package)
        paths = [os.environ.get("PYTHONPATH", ""), package]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


_let_processes_find_it()

BACKENDS: dict[str, Maker] = {
    "memory": lambda _: Target("memory://"),
    "none": lambda _: Target("none://"),
    "files-delta": _in_folder("file://{0}?mode=delta"),
    "files-snapshot": _in_folder("file://{0}?mode=snapshot"),
    "sqlite": _in_folder("sqlite:///{0}/hansard.db"),
    "postgres": lambda _: postgres.target(),
    "redis": lambda _: Target(redis_servers.fresh_database()),
    "redis-engine": lambda _: Target(redis_servers.fresh_engine()),
    "redis-cluster": lambda _: Target(redis_servers.fresh_cluster()),
    "cassandra": lambda _: Target(cassandra.fresh()),
    "http": _behind_a_server,
    "keyvalue": lambda _: _over_four_functions(keyvalue_stores.DictStore()),
    "keyvalue-async": lambda _: _over_four_functions(keyvalue_stores.AsyncDictStore()),
    "keyvalue-file": _in_folder("keyvalue-file:///{0}/store.db"),
}
SCHEME_OF = {"files-delta": "file", "files-snapshot": "file", "redis-cluster": "redis", "redis-engine": "redis"}
"""URL schemes that differ from the name here."""


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where possible: thousands of tests, each with its own files, need not wait for a disk.

    Nothing here depends on the disk: what a crash of a process leaves, and that is all that these tests can make, is in
    the hands of the system either way.
    """
    folder = Path(tempfile.mkdtemp(prefix="hansard-", dir=runs.memory()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_there(name: str) -> bool:
    """Returns whether the backend's module exists; an empty folder is not one."""
    if name.startswith("keyvalue"):
        return True
    spec = importlib.util.find_spec(SCHEMES[SCHEME_OF.get(name, name)].module)
    return spec is not None and spec.origin is not None


_SERVERS = {
    "postgres": postgres.why_absent(),
    "redis": redis_servers.why_absent(),
    "redis-engine": redis_servers.why_no_engine(),
    "redis-cluster": redis_servers.why_absent(),
    "cassandra": cassandra.why_absent(),
}
NO_SERVER = {name: why for name, why in _SERVERS.items() if why}
"""Backends whose server is not available here, and why."""
_CHOSEN = os.environ.get("HANSARD_BACKENDS", ",".join(BACKENDS)).split(",")
NOT_CHOSEN = {name: "not among $HANSARD_BACKENDS" for name in BACKENDS if name not in _CHOSEN}
PRESENT = [name for name in BACKENDS if is_there(name) and name not in NO_SERVER | NOT_CHOSEN]
ABSENT = [name for name in BACKENDS if name not in PRESENT]
KEEPING = [name for name in PRESENT if name != "none"]
"""`none` has a test module of its own, because it stores nothing."""
OBJECTS = ("keyvalue", "keyvalue-async")
"""Backends that are built from an object of the caller, so they have no URL."""
BY_URL = [name for name in KEEPING if name not in (*OBJECTS, "redis-engine")]
"""Without the variant of `redis` that differs only in how it searches."""
DURABLE = [name for name in BY_URL if name != "memory"]
_UNALIKE = ("sqlite", "redis-cluster")
FOR_ADAPTERS = [name for name in BY_URL if name in _UNALIKE or os.environ.get("HANSARD_ADAPTERS") == "all"]
"""Where adapters are tried. They see only the Store, and the contract holds the backends to one behaviour, so two stand
for all: one that can do everything, and one that writes records and messages in separate steps."""
