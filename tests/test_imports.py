"""`hansard.connect` is light: no server, no CLI, no framework, no driver; and layers import only from below."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hansard

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
    return imported_by("import hansard; hansard.connect")


def test_nothing_heavy_is_imported(modules: set[str]) -> None:
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()


def test_only_what_is_needed_of_our_own(modules: set[str]) -> None:
    ours = {name.split(".")[1] for name in modules if name.startswith("hansard.")}
    unneeded = {"testing", "cli", "server", "web", "adapters", "agents", "transfer", "sync"}
    assert ours & (unneeded | {"capture", "chat", "realtime"}) == set()
    assert {name for name in modules if name.startswith("hansard.backends.")} == {"hansard.backends.schemes"}


def test_the_package_alone_imports_almost_nothing() -> None:
    """So that `hansard --version` takes no longer than starting Python."""
    modules = imported_by("import hansard, hansard.cli") - imported_by("pass")
    assert {name for name in modules if name.startswith("hansard.")} == {
        *("hansard.cli", "hansard.cli.start", "hansard.version")
    }
    assert modules & {"asyncio", "dataclasses", "msgspec", "re", "typing"} == set()


def test_the_imports_for_type_checkers_are_those_of_the_table() -> None:
    tree = ast.parse(Path(hansard.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    named = {alias.name: node.module for node in imports for alias in node.names}
    assert named == vars(hansard)["_MODULES"]
    assert sorted(named) == hansard.__all__


@pytest.mark.parametrize("names", vars(hansard)["_NAMES"].values())
def test_public_names_are_found_in_a_fresh_interpreter(names: str) -> None:
    """Whatever was imported before them, which the other tests of this process would hide."""
    code = f"import hansard\nfor name in {names.split()}:\n    getattr(hansard, name)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_names_in_every_way_that_programs_use_them() -> None:
    code = """
import pickle

from hansard import *
import hansard.connection, hansard.chat, hansard.sync
import hansard

assert callable(hansard.connect) and connect is hansard.connect is hansard.connection.connect
assert set(hansard.__all__) <= set(dir(hansard)) and hansard.__version__
value = Participant(kind="user", id="ann")
assert pickle.loads(pickle.dumps(value)) == value
assert pickle.loads(pickle.dumps(ConversationNotFound)) is hansard.errors.ConversationNotFound
with hansard.sync.connect("memory://") as store:
    conversation = store.create_conversation()
    assert isinstance(store.append(conversation.id, {"role": "user", "content": "hello"}), Appended)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", ["Convo", "sqlite", "__path", "asyncio"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'hansard' has no attribute '{name}'"):
        getattr(hansard, name)


def test_modules_that_type_checkers_take_for_attributes_are_attributes() -> None:
    """The import of a name from `hansard.errors` in the package makes `hansard.errors` an attribute of it."""
    code = "import hansard; print(hansard.errors.NotFound.code, hansard.search.Hits, hansard.model.Message)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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
