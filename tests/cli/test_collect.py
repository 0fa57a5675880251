"""`hansard collect` and `hansard resume`, as processes that are killed, doubled and watched."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.collector.agent_files import (
    SESSION,
    append,
    claude_entry,
    claude_file,
    claude_lines,
    gemini_begin,
    gemini_file,
    gemini_message,
    side_line,
    text_of,
)

from hansard import sync
from hansard.errors import NotFound, ValidationError

KILLS = int(os.environ.get("HANSARD_KILLS", "4"))


@pytest.fixture
def home(shell: Shell) -> Path:
    shell.environment["HOME"] = str(shell.folder)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        shell.environment.pop(name, None)
    return shell.folder


def texts(shell: Shell) -> list[str]:
    with sync.connect(f"sqlite:///{shell.folder}/hansard.db") as store:
        return [message.text for message in store.iter_messages(SESSION)]


def eventually(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def follow(shell: Shell) -> subprocess.Popen[bytes]:
    process = shell.start("collect")
    assert process.stderr is not None
    assert b"collecting from" in process.stderr.readline()
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def fake(shell: Shell, name: str) -> Path:
    """A program that writes down where and how it was called."""
    folder = shell.folder / "bin"
    folder.mkdir(exist_ok=True)
    log = shell.folder / f"{name}.log"
    (folder / name).write_text(f'#!/bin/sh\necho "$PWD $@" >> {log}\n')
    (folder / name).chmod(0o755)
    shell.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    return log


def test_once_stores_what_is_new(shell: Shell, home: Path) -> None:
    claude_file(home).write_bytes(claude_lines(1, 4))
    assert shell("collect", "--once", "--json").json["messages"] == 4
    assert shell("collect", "--once", "--json").json["messages"] == 0
    append(claude_file(home), claude_lines(5, 6))
    assert "messages" in shell("collect", "--once", "--agent", "claude-code").out
    assert len(texts(shell)) == 6
    assert SESSION in shell("search", "message 5").out
    assert "there are claude-code" in shell.fails(ValidationError.exit_code, "collect", "--once", "--agent", "nobody")


def test_what_is_not_kept_is_said(shell: Shell, home: Path) -> None:
    spoken = gemini_message("g1", "user", "Hello")
    gemini_file(home).write_bytes(gemini_begin() + spoken + gemini_message("i1", "info", "Update available"))
    said = shell("collect", "--once").err
    assert "not kept: note of the kind 'info', 1 time" in said
    assert "Update available" in said


def test_lines_are_stored_as_they_are_written(shell: Shell, home: Path) -> None:
    path = claude_file(home)
    path.write_bytes(claude_lines(1, 2))
    process = follow(shell)
    eventually(lambda: len(texts(shell)) == 2)
    for number in range(3, 8):
        append(path, claude_lines(number, number))
        eventually(lambda number=number: len(texts(shell)) == number)  # type: ignore[misc]
    path.unlink()
    stop(process)
    assert len(texts(shell)) == 7


def test_a_folder_that_is_made_later_is_found(shell: Shell, home: Path) -> None:
    process = follow(shell)
    claude_file(home).write_bytes(claude_lines(1, 2))
    eventually(lambda: (home / "hansard.db").exists() and len(texts(shell)) == 2)
    stop(process)


def test_collectors_that_are_killed_lose_nothing_and_store_nothing_twice(shell: Shell, home: Path) -> None:
    path = claude_file(home)
    path.write_bytes(claude_lines(1, 2))
    number = 2
    chance = random.Random(7)
    for _ in range(KILLS):
        both = [shell.start("collect"), shell.start("collect")]  # two at once
        end = time.monotonic() + 2 + 2 * chance.random()
        while time.monotonic() < end:
            number += 1
            parent = number - 3 if number % 10 == 0 else None
            line = text_of(claude_entry(number, parent=parent)) + side_line(f"x{number}", f"m{number}")
            half = chance.randrange(len(line))
            append(path, line[:half])
            append(path, line[half:])
            time.sleep(0.01)
        for process in both:
            process.kill()
            process.communicate()
    assert shell("collect", "--once", "--json").json["problems"] == []
    with (
        sync.connect(f"sqlite:///{home}/hansard.db") as store,
        sync.connect(f"sqlite:///{home}/fresh.db") as fresh,
    ):
        shell("collect", "--once", "--url", "sqlite:///fresh.db")
        assert store.stats().messages == fresh.stats().messages == number
        assert [each.id for each in store.iter_messages(SESSION)] == [each.id for each in fresh.iter_messages(SESSION)]
        assert len(store.list_branches(SESSION)) == len(fresh.list_branches(SESSION))
        assert store.check() == []
    before = path.read_bytes()
    path.unlink()
    assert f"restored {path}" in shell("resume", SESSION).err
    assert path.read_bytes() == before


def test_resume_prints_or_runs_the_command_of_the_agent(shell: Shell, home: Path) -> None:
    project = home / "birds and bees"
    project.mkdir()
    claude_file(home).write_bytes(claude_lines(1, 2).replace(b"/projects/birds", bytes(project)))
    shell("collect", "--once")
    assert shell("resume", SESSION).out == f"cd '{project}' && claude --resume {SESSION}\n"
    assert shell("resume", SESSION, "--json").json["command"] == ["claude", "--resume", SESSION]
    log = fake(shell, "claude")
    claude_file(home).unlink()
    assert "restored" in shell("resume", SESSION, "--run").err
    assert log.read_text() == f"{project} --resume {SESSION}\n"
    assert claude_file(home).exists()
    project.rmdir()
    assert "is gone" in shell.fails(NotFound.exit_code, "resume", SESSION, "--run")
    shell.fails(NotFound.exit_code, "resume", "nothing")


def test_install_writes_a_unit_and_starts_it(shell: Shell, home: Path) -> None:
    log = fake(shell, "systemctl")
    shell.environment["CLAUDE_CONFIG_DIR"] = "/data/100% claude"
    done = shell("collect", "--install", "--tenant", "acme", "--agent", "codex")
    unit = home / ".config" / "systemd" / "user" / "hansard-collect.service"
    assert f"installed {unit}, and started it" in done.err
    text = unit.read_text()
    assert f'"collect" "--url" "sqlite:///{home}/hansard.db" "--tenant" "acme" "--agent" "codex"' in text
    assert 'Environment="CLAUDE_CONFIG_DIR=/data/100%% claude"' in text
    assert unit.stat().st_mode & 0o777 == 0o600
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == [
        "--user daemon-reload",
        "--user enable --now hansard-collect.service",
    ]
    (shell.folder / "bin" / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    assert "start it with: systemctl --user enable" in shell("collect", "--install").err
