"""The commands that the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs import pages

from hansard.cli.app import app

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


def test_every_command_is_documented() -> None:
    assert set(pages.sections(pages.read("docs/cli.md"), 3)) >= COMMANDS
