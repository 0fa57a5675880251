"""Every Python block of every page runs: each page from top to bottom in one namespace, in an empty folder.

Blocks may use `await` at their top level. Where a page names a server, or reads `$DATABASE_URL`, the test has
started one. What a block prints must be what the `text` block right after it shows. Shell blocks run too.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from tests.contract.backends import BACKENDS, NO_SERVER
from tests.docs import pages
from tests.docs.pages import Block
from tests.server.kit import serving
from tests.servers import cassandra
from tests.servers import redis as redis_servers

APART = ("crewai",)
"""Pages of frameworks that have an environment of their own: their blocks run there, in `tests/adapters`."""
RUNNABLE = [
    page
    for page in pages.pages()
    if any(block.language in ("python", "sh") for block in pages.blocks(page)) and page.stem not in (*NO_SERVER, *APART)
]
_PATIENCE = 300
"""Seconds that a block of commands or an example may take on a busy machine."""
EXAMPLES = sorted((pages.ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", RUNNABLE, ids=pages.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HANSARD_URL", raising=False)
    if any("DATABASE_URL" in block.text for block in pages.blocks(page)):
        if "postgres" in NO_SERVER:
            pytest.skip(NO_SERVER["postgres"])
        monkeypatch.setenv("DATABASE_URL", str(BACKENDS["postgres"](tmp_path).url))
    with contextlib.ExitStack() as stack:
        _run_blocks(page, _servers(page, stack), monkeypatch)


def _run_blocks(page: Path, servers: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A module of its own: classes look the names in their annotations up there.
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    end = Block("", "", 0)
    with asyncio.Runner() as runner:
        for block, following in pairwise([*pages.blocks(page), end]):
            has_output = following.language == "text"
            if block.language == "python":
                printed = _run(runner, _compiled(page, block, servers), vars(module))
            elif block.language == "sh":
                printed = _run_shell(block.text)
            else:
                continue
            if has_output:
                assert printed.rstrip() == following.text.rstrip(), f"{pages.name(page)}:{block.line} prints this"


REDIS = "redis://localhost:6379"
CASSANDRA = "cassandra://localhost:9042/chats"
HANSARD = "http://127.0.0.1:8787"


def _servers(page: Path, stack: contextlib.ExitStack) -> dict[str, str]:
    """For each server that a page names, one that is really there, and empty."""
    code = [block.text for block in pages.blocks(page) if block.language == "python"]
    if any(HANSARD in text for text in code):
        return {HANSARD: stack.enter_context(serving()).address}
    if any(CASSANDRA in text for text in code):
        if reason := cassandra.why_absent():
            pytest.skip(reason)
        return {CASSANDRA: cassandra.fresh()}
    if not any(REDIS in text for text in code):
        return {}
    if reason := redis_servers.why_absent():
        pytest.skip(reason)
    return {REDIS: redis_servers.fresh_port_url()}


def _compiled(page: Path, block: Block, servers: Mapping[str, str] | None = None) -> CodeType:
    # Empty lines in front keep the page's own line numbers in tracebacks.
    text = "\n" * (block.line - 1) + block.text
    for named, real in (servers or {}).items():
        text = text.replace(named, real)
    code: CodeType = compile(text, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


def _run(runner: asyncio.Runner, code: CodeType, namespace: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # Blocks without `await` run outside the loop, as a script does: they may call asyncio.run themselves.
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, namespace))
        else:
            exec(code, namespace)
    return printed.getvalue()


def _run_shell(commands: str) -> str:
    scripts = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-e"], input=commands, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    """Each example ends by itself and prints what its docstring says."""
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == _promised_output(script.read_text(encoding="utf-8"))


def _promised_output(source: str) -> str:
    _, _, output = (ast.get_docstring(ast.parse(source)) or "").partition("It prints:\n\n")
    return textwrap.dedent(output) + "\n"
