"""The collector as a systemd user unit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hansard.collector.agents import home

NAME = "hansard-collect.service"
_PASSED_ON = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME")
"""Where agents keep their transcripts; a service does not see the variables of a shell."""


def unit(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "hansard", "collect", *arguments]
    passed_on = [f"{name}={environment[name]}" for name in _PASSED_ON if environment.get(name)]
    return "\n".join(
        [
            "[Unit]",
            "Description=Hansard stores the transcripts of coding agents",
            "",
            "[Service]",
            "ExecStart=" + " ".join(map(_quoted, command)),
            *("Environment=" + _quoted(each) for each in passed_on),
            "Restart=on-failure",
            "RestartSec=10",
            "Nice=10",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def _quoted(text: str) -> str:
    """An argument as systemd reads it: `%` and `$` would stand for something else."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def install(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Writes the unit and starts it. Returns its file, and whether systemd has started it."""
    folder = Path(environment.get("XDG_CONFIG_HOME") or home(environment) / ".config") / "systemd" / "user"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    part = path.with_name(path.name + ".part")
    part.touch(mode=0o600)  # the URL of a store may hold a password
    part.write_text(unit(arguments, environment), "utf-8")
    part.replace(path)
    return path, all(_systemctl(*command) for command in (("daemon-reload",), ("enable", "--now", NAME)))


def _systemctl(*arguments: str) -> bool:
    program = shutil.which("systemctl")
    if program is None:
        return False
    done = subprocess.run([program, "--user", *arguments], check=False, capture_output=True, timeout=30)
    return done.returncode == 0
