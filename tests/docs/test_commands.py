"""The commands that the pages name exist."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from tests.docs import pages
from tests.wait import PATIENCE, until

from hansard.cli.app import app
from hansard.cli.configuration import Options

COMMANDS = {name for name in app if not name.startswith("-")}
TARGETS = set(re.findall(r"^(\w+):", (pages.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", pages.pages(), ids=pages.name)
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(block.text for block in pages.blocks(page) if block.language in ("", "sh", "console"))
    spans = re.findall(r"`([^`\n]+)`", pages.prose(text))
    for line in [*spans, *shell.splitlines()]:
        words = line.split()
        if words[:1] == ["hansard"] and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
            assert words[1] in COMMANDS, line
        if words[:1] == ["make"] and len(words) > 1:
            assert words[1] in TARGETS, line


def test_every_target_and_variable_is_documented() -> None:
    text = pages.read("docs/contributing.md")
    named = set(re.findall(r"`make (\w+)`", text))
    assert named == TARGETS - {"help"}
    sources = [*(pages.ROOT / "src").rglob("*.py"), *(pages.ROOT / "tests").rglob("*.py")]
    variables = {name for path in sources for name in re.findall(r"\bHANSARD_[A-Z]+\b", path.read_text("utf-8"))}
    assert variables >= {"HANSARD_CRASHES", "HANSARD_EXAMPLES"}
    settings = {f"HANSARD_{field.name.upper()}" for field in fields(Options)}
    assert variables - settings <= set(re.findall(r"\w+", text))


def test_a_fresh_clone_can_make_its_environment(tmp_path: Path) -> None:
    """Nothing may lie where it is made: uv refuses to clear what is no environment."""
    shutil.copy(pages.ROOT / "Makefile", tmp_path)
    uv = shutil.which("uv") or str(pages.ROOT / ".tools/bin/uv")
    made = subprocess.run(
        ["make", f"UV={uv}", ".venv/bin/python"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / ".venv/bin/python").exists()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_stopping_make_stops_the_server(tmp_path: Path) -> None:
    """A service manager and `kill` signal only make. A server that stays would keep the port."""
    shutil.copy(pages.ROOT / "Makefile", tmp_path)
    program = tmp_path / ".venv" / "bin" / "hansard"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$HANSARD_URL" > url; echo $$ > pid; exec sleep 600\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    made = subprocess.Popen(["make", "-o", ".venv/.ready", "serve", "URL=sqlite:///a b.db", "PORT=1"], cwd=tmp_path)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text("ascii").endswith("\n"))
    server = int((tmp_path / "pid").read_text("ascii"))
    try:
        made.terminate()
        made.wait(PATIENCE)
        until(lambda: not _runs(server))
        assert (tmp_path / "url").read_text("utf-8") == "sqlite:///a b.db\n"
    finally:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def test_every_path_that_contributors_are_told_of_exists() -> None:
    text = pages.read("docs/contributing.md")
    paths = re.findall(r"`((?:src|tests|tools|docs)/[\w./-]*)`", text)
    paths += re.findall(
        r"(?:tests|tools)/[\w./-]+", "\n".join(b.text for b in pages.blocks(pages.DOCS / "contributing.md"))
    )
    assert len(paths) > 20
    for path in paths:
        assert (pages.ROOT / path).exists(), path


def test_every_command_is_documented() -> None:
    assert set(pages.sections(pages.read("docs/reference/cli.md"), 3)) >= COMMANDS
