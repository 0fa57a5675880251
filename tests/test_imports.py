"""`import hansard` is light: no server, no CLI, no framework, no driver; and layers import only from below."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HEAVY = {
    "aiosqlite",
    "anthropic",
    "anyio",
    "asyncpg",
    "cassandra",
    "click",
    "cyclopts",
    "google",
    "httpx",
    "hypothesis",
    "langchain",
    "langgraph",
    "openai",
    "psycopg",
    "pydantic",
    "pytest",
    "redis",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}


def imported_by(statement: str) -> set[str]:
    """Every module that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def modules() -> set[str]:
    return imported_by("import hansard")


def test_nothing_heavy_is_imported(modules: set[str]) -> None:
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()


def test_only_what_is_needed_of_our_own(modules: set[str]) -> None:
    ours = {name.split(".")[1] for name in modules if name.startswith("hansard.")}
    unneeded = {"testing", "cli", "server", "web", "adapters", "agents", "transfer", "sync"}
    assert ours & (unneeded | {"capture", "chat", "realtime"}) == set()
    assert {name for name in modules if name.startswith("hansard.backends.")} == {"hansard.backends.schemes"}


def test_the_blocking_api_is_light_too() -> None:
    names = imported_by("import hansard.sync")
    assert {name.partition(".")[0] for name in names} & HEAVY == set()


def test_a_backend_is_imported_when_it_is_opened() -> None:
    names = imported_by("from hansard import sync; sync.connect('memory://').close()")
    opened = {name.split(".")[2] for name in names if name.startswith("hansard.backends.")}
    assert opened <= {"memory", "schemes", "shared", "stored"}
    assert "sqlite3" not in names


def test_the_writers_of_the_process_kit_are_light() -> None:
    """A killed writer must have been writing, not importing."""
    names = imported_by("import hansard.testing.writer")
    assert {"pytest", "hypothesis"} & names == set()


def test_the_layers_of_the_design_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
