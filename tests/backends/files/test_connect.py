"""Which folders are opened and which are refused; disks that are full, read-only or slow."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.backends.files import kit
from tests.wait import PATIENCE

import hansard
from hansard import (
    Corrupt,
    Denied,
    FormatMismatch,
    HansardError,
    Message,
    TimedOut,
    Unavailable,
    ValidationError,
    sync,
)
from hansard.backends.files import disk
from hansard.backends.files.connect import folder_of
from hansard.urls import Url


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///var/lib/chats", "/var/lib/chats"),
        ("file://localhost/var/lib/chats", "/var/lib/chats"),
        ("file:/var/lib/chats", "/var/lib/chats"),
        ("file:chats/deep", "{here}/chats/deep"),
        ("file://./chats", "{here}/chats"),
        ("file://../chats", "{here}/../chats"),
        ("file:///with%20space%23and%3F?mode=delta", "/with space#and?"),
        ("FILE:///a", "/a"),
    ],
)
def test_a_url_names_a_folder(url: str, folder: str) -> None:
    assert str(folder_of(Url(url))) == folder.format(here=Path.cwd())


@pytest.mark.parametrize("url", ["file://", "file:///", "file:", "file://host/dir", "file:///a%00b"])
def test_a_url_without_a_folder_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match=r"file:"):
        sync.connect(url)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ("mode=dleta", "delta, snapshot"),
        ("durability=full", "machine, process"),
        ("moed=delta", "did you mean 'mode'"),
        ("timeout=0", "at least 1"),
        ("timeout=x", "at least 1"),
    ],
)
def test_a_mistyped_option_is_refused_with_a_hint(tmp_path: Path, options: str, hint: str) -> None:
    with pytest.raises(ValidationError, match=hint):
        sync.connect(f"file://{tmp_path}/store?{options}")
    assert not (tmp_path / "store").exists()


def test_capabilities_follow_the_options(tmp_path: Path) -> None:
    with sync.connect(f"file://{tmp_path}") as store:
        found = store.capabilities
    assert (found.name, found.durability, found.shared, found.watch) == ("files", "machine", True, "poll")
    assert (found.blocking, found.backup, found.secure_delete) == (True, True, False)
    with kit.connect(tmp_path, durability="process") as store:
        assert store.capabilities.durability == "process"

    async def opened() -> bool:
        async with hansard.connect(f"file://{tmp_path}") as store:
            return store.capabilities.blocking

    assert asyncio.run(opened()) is False


def test_a_missing_folder_is_created_and_an_empty_one_is_used(tmp_path: Path) -> None:
    for root in (tmp_path / "a" / "b", tmp_path / "c"):
        (tmp_path / "c").mkdir(exist_ok=True)
        with kit.connect(root) as store:
            store.append_message("c", "user", "x")
        assert (root / "hansard.json").exists()


def test_a_foreign_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FormatMismatch, match="not a Hansard store") as caught:
        kit.connect(tmp_path)
    assert caught.value.found == "a foreign folder"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValidationError, match="not a folder"):
        kit.connect(tmp_path / "file")
    with pytest.raises(HansardError):
        kit.connect(tmp_path / "file" / "deeper")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
    format_file = tmp_path / "hansard.json"
    format_file.write_text(json.dumps({"store": "hansard", "format": 2, "new": True}))
    with pytest.raises(FormatMismatch, match="install a newer one") as caught:
        kit.connect(tmp_path)
    assert (caught.value.found, caught.value.wanted) == ("2", "1")


@pytest.mark.parametrize("content", ["", "{", '{"store": 1}', "\udcff"])
def test_a_damaged_format_file_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "hansard.json").write_text(content, errors="surrogateescape")
    with pytest.raises(Corrupt, match=r"hansard\.json"):
        kit.connect(tmp_path)


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
    path = kit.journal(tmp_path, "c")
    line = path.read_bytes().replace(b'"hansard":1', b'"hansard":9')
    from hansard.backends.files import line_format

    path.write_bytes(line_format.make_line(line[: line.rindex(b',"check"')] + b"}", 1))
    with kit.connect(tmp_path) as store:
        with pytest.raises(FormatMismatch, match="format 9"):
            store.get_conversation("c")
        assert len(store.check()) == 1


def test_processes_that_create_a_store_at_once(tmp_path: Path) -> None:
    root = tmp_path / "store"
    code = f"from hansard import sync; s = sync.connect('file://{root}'); s.append_message('c', 'user', 'x'); s.close()"
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(6)]
    assert [process.wait(60) for process in started] == [0] * 6
    with kit.connect(root) as store:
        assert kit.contents(store, "c") == ["x"] * 6
        assert store.check() == []


# --- disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, Denied),
        (errno.EROFS, Denied),
        (errno.EPERM, Denied),
        (errno.ENOSPC, Unavailable),
        (errno.EDQUOT, Unavailable),
        (errno.EMFILE, Unavailable),
        (errno.EIO, Unavailable),
    ],
)
def test_an_os_error_becomes_one_of_our_errors(number: int, kind: type[HansardError]) -> None:
    with pytest.raises(kind) as caught, disk.map_errors():
        raise OSError(number, os.strerror(number), "/some/file")
    assert isinstance(caught.value.__cause__, OSError)
    if isinstance(caught.value, Unavailable):
        assert caught.value.outcome == "not_applied"
        assert caught.value.retryable == (number != errno.EIO)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with kit.connect(tmp_path) as store:
            assert kit.contents(store, "c") == ["x"]
            assert len(store.list_conversations().items) == 1
            with pytest.raises(Denied):
                store.append_message("c", "user", "y")
            with pytest.raises(Denied):
                store.append_message("new", "user", "y")
    finally:
        for path in (tmp_path, *tmp_path.rglob("*")):
            path.chmod(0o755)


READ_ONLY = """
import errno, os, sys
from hansard import Denied, sync
real = os.open
def refuse(path, flags, *rest, **options):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    return real(path, flags, *rest, **options)
os.open = refuse
with sync.connect(sys.argv[1]) as store:
    assert [message.content for message in store.get_messages("c")] == ["x"]
    assert len(store.list_conversations().items) == 1
    assert store.usage() == [] and store.check() == []
    for id in ("c", "new"):
        try:
            store.append_message(id, "user", "y")
        except Denied as error:
            assert "Read-only" in str(error)
        else:
            raise AssertionError("it was written")
"""


def test_a_read_only_disk(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
    subprocess.run([sys.executable, "-c", READ_ONLY, f"file://{tmp_path}"], check=True, timeout=60)


FULL = """
import os, resource, signal, sys
from hansard import Message, Unavailable, sync
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with sync.connect(sys.argv[1]) as store:
    store.append_message("c", "user", "before", id="m")
    path = sys.argv[2]
    size = os.stat(path).st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3000, resource.RLIM_INFINITY))
    for call in (
        lambda: store.append("c", [Message("user", "x" * 500) for _ in range(20)]),
        lambda: store.append_message("new", "user", "y" * 9000),
        lambda: store.update_message("c", "m", content="z" * 9000),
    ):
        try:
            call()
        except Unavailable as error:
            assert (error.retryable, error.outcome) == (True, "not_applied"), error
        else:
            raise AssertionError("it was written")
    assert [message.content for message in store.get_messages("c")] == ["before"]
    if sys.argv[3] == "delta":
        assert os.stat(path).st_size == size
    assert store.get_conversation("new") is None
    store.append_message("c", "user", "small")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.append_message("new", "user", "y" * 9000)
"""


@pytest.mark.parametrize("mode", ["delta", "snapshot"])
def test_a_full_disk_stores_nothing_and_damages_nothing(tmp_path: Path, mode: str) -> None:
    # A limit on the size of files cuts writes off in the middle, as a full disk does.
    path = kit.journal(tmp_path, "c")
    command = [sys.executable, "-B", "-c", FULL, f"file://{tmp_path}?mode={mode}", str(path), mode]
    subprocess.run(command, check=True, timeout=60)
    with kit.connect(tmp_path) as store:
        assert kit.contents(store, "c") == ["before", "small"]
        assert len(kit.contents(store, "new")) == 1
        assert store.check() == []
    assert not list(tmp_path.rglob("*.tmp"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_write_that_the_disk_does_not_confirm_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.connect(tmp_path, durability="machine") as store:
        store.append_message("c", "user", "before")
        real, calls = os.fdatasync, []

        def fail(fd: int) -> None:
            calls.append(fd)
            if len(calls) == 1:
                raise OSError(errno.EIO, "Input/output error")
            real(fd)

        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(Unavailable, match="Input/output"):
            store.append_message("c", "user", "lost")
        assert kit.contents(store, "c") == ["before"]
        store.append_message("c", "user", "after")
        assert kit.contents(store, "c") == ["before", "after"]
        monkeypatch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        with pytest.raises(Unavailable) as caught:
            store.append_message("c", "user", "who knows")
        assert (caught.value.outcome, caught.value.retryable) == ("unknown", False)


def test_durable_writes_are_confirmed_before_they_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def note(fd: int, real: object = real) -> None:
            synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix(str(tmp_path)))
            real(fd)  # type: ignore[operator]

        monkeypatch.setattr(os, name, note)
    with kit.connect(tmp_path, durability="machine") as store:
        store.append_message("c", "user", "x", agent_id="a")
        assert {"/default/a/c.jsonl", "/default/a", "/default", ""} <= set(synced)
        synced.clear()
        store.append_message("c", "user", "x")
        assert synced == ["/default/a/c.jsonl"], "one wait for each append"
    synced.clear()
    with kit.connect(tmp_path, durability="process") as store:
        store.append_message("c", "user", "x")
        store.append_message("d", "user", "x")
    assert synced == []


# --- waiting ----------------------------------------------------------------------------------------------------------

HOLD = """
import fcntl, sys
with open(sys.argv[1]) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(lock: Path) -> Iterator[Callable[[], object]]:
    """Another process holds the lock until the yielded function is called."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield process.kill
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A store whose conversation `c` is locked by another process."""
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
        store.append_message("d", "user", "x")
    lock = tmp_path / "default" / "_locks" / "c.lock"
    with holding(lock):
        yield tmp_path


def test_a_lock_that_is_held_times_out(held: Path) -> None:
    with kit.connect(held, timeout="1") as store:
        began = time.monotonic()
        with pytest.raises(TimedOut, match="conversation 'c'") as caught:
            store.append_message("c", "user", "y")
        assert time.monotonic() - began > 0.5, "it waited"
        assert (caught.value.outcome, caught.value.retryable) == ("not_applied", True)
        assert kit.contents(store, "c") == ["x"], "readers do not wait"
        assert len(store.list_conversations().items) == 2
        store.append_message("d", "user", "y")


def test_a_lock_held_by_another_thread_times_out(tmp_path: Path) -> None:
    with kit.connect(tmp_path, timeout="1") as store:
        store.append_message("c", "user", "x")
        backend = store.backend
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with backend.storage.common.tenant("default").writing("c"):  # type: ignore[attr-defined]
                held.set()
                done.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(PATIENCE)
        try:
            with pytest.raises(TimedOut):
                store.append_message("c", "user", "y")
            assert kit.contents(store, "c") == ["x"]
        finally:
            done.set()
            thread.join()
        store.append_message("c", "user", "y")


def test_the_event_loop_never_waits_for_a_lock_or_a_disk(tmp_path: Path) -> None:
    async def play() -> None:
        async with hansard.connect(f"file://{tmp_path}?timeout=120") as store:
            await store.append_message("c", "user", "x")
            with holding(tmp_path / "default" / "_locks" / "c.lock") as release:
                writing = asyncio.gather(*(store.append("c", [Message("user", "y")]) for _ in range(3)))
                for _ in range(50):
                    await asyncio.sleep(0.005)
                # A blocked loop would get here only after the writers had timed out.
                assert not writing.done()
                release()
                await writing
            assert len(await store.get_messages("c")) == 4

    asyncio.run(play())
