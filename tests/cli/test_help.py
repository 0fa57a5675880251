"""Every command has help, is documented, and the documentation names its options and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hansard.cli.app import app, run

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
COMMANDS = [name for name in app if not name.startswith("-")]
GLOBAL = {"--url", "-u", "--tenant", "--user", "--json", "--help", "-h", "--version"}
WANTED = {
    "append",
    "backup",
    "bench",
    "branches",
    "chat",
    "check",
    "collect",
    "completion",
    "config",
    "conversations",
    "copy",
    "delete",
    "demo",
    "doctor",
    "embedder",
    "erase-user",
    "export",
    "import",
    "keys",
    "label",
    "mcp",
    "member",
    "open",
    "purge",
    "rate",
    "reindex",
    "restore",
    "resume",
    "search",
    "serve",
    "share",
    "shares",
    "show",
    "stats",
    "tail",
    "tenants",
    "unshare",
    "upgrade",
    "usage",
    "vacuum",
    "version",
    "watch",
    "why",
}

OPTIONS_OF = {"config": "serve"}
"""Commands that take the options of another one."""


def test_the_list_of_commands_is_complete() -> None:
    assert set(COMMANDS) == WANTED


def test_every_command_has_a_section() -> None:
    assert sorted(re.findall(r"^### (\S+)$", PAGE, re.MULTILINE)) == sorted(COMMANDS)


def section(command: str) -> str:
    found = re.search(rf"^### {command}$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference/cli.md has no section {command}"
    return found[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_page_agree(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    text = capsys.readouterr().out
    summary = text.splitlines()[2].strip()
    assert summary.endswith("."), "a command's help begins with one sentence"
    own = text.partition("Options of every command")[0]
    options = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", own.partition("Parameters ─")[2]))
    table = re.findall(r"^\| (`-.*?) \|", section(OPTIONS_OF.get(command, command)), re.MULTILINE)
    documented = {name for row in table for name in re.findall(r"`(--?[a-z][\w-]*)", row)}
    assert documented - GLOBAL == options - GLOBAL
    assert f"`hansard {command}" in section(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_parameter_has_help(command: str) -> None:
    for argument in app[command].assemble_argument_collection():
        # "*" stands for a class whose fields are the options.
        if argument.parameter.parse is not False and argument.name != "*":
            assert argument.parameter.help, f"{command}: {argument.name} has no help"


def test_global_options_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    shown = set(re.findall(r"(?<![\w-])--?[a-z]\w*", capsys.readouterr().out))
    table = PAGE.partition("## Options of every command")[2].partition("## How it ends")[0]
    assert {name for name in GLOBAL if name in shown} == GLOBAL
    assert all(f"`{name}" in table for name in GLOBAL)


def test_the_page_names_the_extra() -> None:
    assert "pip install 'hansard[cli]'" in PAGE
