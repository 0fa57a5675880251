"""Whatever the machine and the shell are like, the command line and the stores work the same.

Each test runs the same small program in an interpreter of its own, in an odd environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import sync
from hansard.server.key_file import KeyFile

PROGRAM = r"""
from datetime import UTC, datetime
from pathlib import Path

from hansard import Message, sync
from hansard.cli.app import run
from hansard.server.key_file import KeyFile

text = "Grüße aus İstanbul, 東京 \N{SHIP}"
def must(fact):  # python -O leaves out what asserts
    if not fact:
        raise SystemExit("it does not hold")


KeyFile(Path("keys.json")).create("k", ["read"], tenant=None)
for url in ("sqlite:///made.db", "file:made"):
    with sync.connect(url) as store:
        store.append("c", [Message("user", text, created_at=datetime(2026, 1, 31, 20, 5, tzinfo=UTC))], title="Títle")
        must([hit.message.text for hit in store.search("istanbul")] == [text])
        must(store.check() == [])
    export = ["export", "-o", f"{url[:4]}.jsonl"]
    for command in (["show", "c"], ["search", "grüße"], ["conversations", "--json"], export):
        must(run([*command, "--url", url]) == 0)
    must(run(["show", "missing", "--url", url]) == 4)
must(run(["--help"]) == 0)
"""

LOCALES = {
    "no locale": {},
    "C": {"LC_ALL": "C"},
    "POSIX": {"LC_ALL": "POSIX", "LANG": "POSIX"},
    "one that does not exist": {"LC_ALL": "xx_XX.UTF-8"},
    "C without Python's UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
TERMINALS = {
    "dumb": {"TERM": "dumb", "NO_COLOR": "1"},
    "unknown": {"TERM": "no-such-terminal", "FORCE_COLOR": "1", "COLUMNS": "0"},
    "CI": {"CI": "true", "COLUMNS": "1"},
}
ZONES = {
    "UTC": "20:05",
    "Asia/Kolkata": "01:35",
    "America/St_Johns": "16:35",
    "No/Such_Zone": "20:05",
}


def ran(folder: Path, environment: dict[str, str], *options: str, umask: int = -1) -> str:
    """Runs the program with nothing in its environment but this; returns what it printed."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX", "SYSTEMROOT") if name in os.environ}
    done = subprocess.run(
        [sys.executable, *options, "-W", "error", "program.py"],
        cwd=folder,
        env=kept | {"PATH": os.defpath} | environment,
        umask=umask,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize("name", LOCALES)
def test_text_is_printed_under_any_locale(tmp_path: Path, name: str) -> None:
    printed = ran(tmp_path / "grün und blau", LOCALES[name])
    if LOCALES[name].get("PYTHONUTF8") == "0":
        assert r"Gr\xfc\xdfe aus \u0130stanbul" in printed, "what the terminal cannot show is escaped"
    else:
        assert "Grüße aus İstanbul, 東京 🚢" in printed
    assert '"title":"Títle"' in printed, "JSON is UTF-8 everywhere"


@pytest.mark.parametrize("name", TERMINALS)
def test_text_is_printed_on_any_terminal(tmp_path: Path, name: str) -> None:
    assert "Grüße" in ran(tmp_path, TERMINALS[name])


@pytest.mark.parametrize("zone", ZONES)
def test_times_are_shown_in_the_local_zone_and_stored_in_utc(tmp_path: Path, zone: str) -> None:
    """Times are shown as they are here, and stored in UTC."""
    if not Path("/usr/share/zoneinfo", zone).exists() and ZONES[zone] != "20:05":
        pytest.skip(f"this machine does not know the time zone {zone}")
    assert f" {ZONES[zone]}:00" in ran(tmp_path, {"TZ": zone})
    with sync.connect(f"sqlite:///{tmp_path}/made.db") as store:
        assert next(iter(store.iter_messages("c"))).created_at.isoformat() == "2026-01-31T20:05:00+00:00"


def test_no_time_zones_at_all(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    assert " 20:05:00" in ran(tmp_path, {"TZDIR": nothing, "PYTHONTZPATH": nothing})


@pytest.mark.parametrize("home", [{}, {"HOME": "/nonexistent"}, {"HOME": ""}], ids=["unset", "missing", "empty"])
def test_no_home_folder_is_needed(tmp_path: Path, home: dict[str, str]) -> None:
    assert "Grüße" in ran(tmp_path, home)


def test_without_docstrings_and_assertions(tmp_path: Path) -> None:
    assert "Grüße" in ran(tmp_path, {}, "-OO")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_files_follow_the_umask_and_keys_are_private(tmp_path: Path, umask: int) -> None:
    ran(tmp_path, {}, umask=umask)
    assert (tmp_path / "keys.json").stat().st_mode & 0o077 == 0, "keys are their owner's, whatever the umask"
    assert len(KeyFile(tmp_path / "keys.json").list()) == 1
    for path in (tmp_path / "made.db", *(tmp_path / "made").rglob("*")):
        assert path.stat().st_mode & umask == 0, path


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell to close streams with")
@pytest.mark.parametrize("streams", CLOSED)
def test_commands_work_with_closed_streams(tmp_path: Path, streams: str) -> None:
    """No file of the store takes the number of a closed stream, and no command fails for it."""
    url = f"file:{tmp_path}/made"
    for command in ("append c user hello", "show c", "check", "conversations --json"):
        line = f'"{sys.executable}" -W error -m hansard.cli {command} --url "{url}" {streams}'
        done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        assert b"Traceback" not in done.stderr
    with sync.connect(url) as store:
        assert [each.text for each in store.iter_messages("c")] == ["hello"]
