"""A backup is whole or not there, whatever happens while it is made. `HANSARD_KILLS=100` kills more often."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hansard import Message, Unavailable, ValidationError, sync

KILLS = int(os.environ.get("HANSARD_KILLS", "4"))
MESSAGES = 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with sync.connect(f"sqlite:///{path}") as store:
        store.append("c", [Message("user", f"{number} {'word ' * 100}") for number in range(MESSAGES)])
    return path


def assert_whole(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as copy:
        found = copy.get_conversation("c")
        assert found is not None
        assert found.message_count == MESSAGES
        assert copy.check() == []


LIMITED = """
import resource, sys
from hansard import Unavailable, sync
with sync.connect(f"sqlite:///{sys.argv[1]}") as store:
    store.get_conversation("c")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        store.backup(sys.argv[2])
    except Unavailable as error:
        print("refused:", error)
"""


def test_a_file_that_may_not_grow_leaves_nothing(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    command = [sys.executable, "-c", LIMITED, str(store), str(target)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.startswith("refused:"), run.stderr
    assert list(tmp_path.iterdir()) == []
    with sync.connect(f"sqlite:///{store}") as opened:
        opened.backup(target)
    assert_whole(target)


def test_a_full_disk_leaves_nothing(store: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
    mount = subprocess.run(command, capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        with sync.connect(f"sqlite:///{store}") as opened, pytest.raises(Unavailable, match="full"):
            opened.backup(disk / "copy.db")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


SLOWLY = """
import sys
from hansard import sync
with sync.connect(f"sqlite:///{sys.argv[1]}") as store:
    print("begins", flush=True)
    store.backup(sys.argv[2])
"""


def test_killed_at_any_moment_it_is_whole_or_not_there(store: Path, tmp_path: Path) -> None:
    dice = random.Random(7)
    target = tmp_path / "copy.db"
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", SLOWLY, str(store), str(target)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.random() * 0.06)
        process.kill()
        process.wait()
        process.stdout.close()
        if target.exists():
            assert_whole(target)
            target.unlink()
    with sync.connect(f"sqlite:///{store}") as opened:
        opened.backup(target)
    assert_whole(target)


def test_what_a_killed_backup_left_goes_in_time(store: Path, tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in ("copy.db.0123abcd.tmp", "copy.db.4567abcd.tmp", "notes.tmp"))
    for path in (old, young, other):
        path.write_text("left")
    for path in (old, other):
        os.utime(path, (0, 0))
    with sync.connect(f"sqlite:///{store}") as opened:
        opened.backup(tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", young.name, other.name]


def test_never_over_a_file_that_exists(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with sync.connect(f"sqlite:///{store}") as opened, pytest.raises(ValidationError, match="never overwrites"):
        opened.backup(target)
    assert target.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]
