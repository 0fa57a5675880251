"""Runs the command in a separate process, with its own folder, environment and streams.

Most calls are forked from a server that has the modules loaded already, which makes each one quick and changes nothing
else. `start` and `afresh` begin a new interpreter.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hansard.testing.processes import CONTEXT, PRELOADED

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
"""Colours and movements of the cursor."""

COMMAND = [sys.executable, "-W", "error", "-m", "hansard.cli"]

CONTEXT.set_forkserver_preload([*PRELOADED, "hansard.cli.app", "hansard.sync", "hansard.backends.openai", "rich.table"])


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


class Shell:
    """A folder to run commands in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        left_out = ("HANSARD_URL", "PYTHONUNBUFFERED")  # the second would hide what only a buffer gets wrong
        self.environment = {name: value for name, value in os.environ.items() if name not in left_out}
        self.environment |= {"TZ": "UTC", "COLUMNS": "120"}

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Done:
        """Runs a command that must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, done
        return done

    def run(self, *arguments: str, stdin: str | bytes = "") -> Done:
        with TemporaryDirectory() as name:
            streams = [Path(name, stream) for stream in ("in", "out", "err")]
            streams[0].write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
            process = CONTEXT.Process(target=_child, args=(arguments, self.folder, self.environment, streams))
            process.start()
            process.join(120)
            assert process.exitcode is not None, "it did not end"
            return Done(process.exitcode, *(stream.read_text("utf-8") for stream in streams[1:]))

    def fails(self, code: int, *arguments: str, stdin: str | bytes = "") -> str:
        """Runs a command that must fail with this exit code and a message of one line."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == code, done
        assert done.err.startswith("hansard: "), done
        assert done.err.count("\n") == 1, done
        assert done.out == "", done
        return done.err

    def start(self, *arguments: str, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Ends processes that a failed test has left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def afresh(self, *arguments: str) -> Done:
        """Runs a command in a new interpreter."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return Done(process.returncode, out.decode(), err.decode())

    def at_terminal(self, columns: int, *arguments: str, typed: str = "") -> str:
        """Runs a command in a terminal of this width, types into it, and returns what the terminal shows."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {name: value for name, value in self.environment.items() if name != "COLUMNS"}
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=environment | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # Linux ends the terminal of a finished process with an error
        os.close(ours)
        assert process.wait(120) == 0, shown
        return _ESCAPES.sub("", shown.decode())

    def answer(self, answer: str, *arguments: str) -> Done:
        """Runs a command at a terminal, and types an answer."""
        ours, theirs = pty.openpty()
        try:
            process = self.start(*arguments, stdin=theirs)
            os.write(ours, answer.encode() + b"\n")
            out, err = process.communicate(timeout=120)
        finally:
            os.close(ours)
            os.close(theirs)
        return Done(process.returncode, out.decode(), err.decode())


def _child(arguments: tuple[str, ...], folder: Path, environment: dict[str, str], streams: list[Path]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    warnings.simplefilter("error")
    for number, stream in enumerate(streams):
        opened = os.open(stream, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    sys.argv = ["hansard", *arguments]
    from hansard.cli import main

    main()
