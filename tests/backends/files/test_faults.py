"""Every system call of a write fails once, one after another: the state is the old or the new one."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.backends.files import kit

from hansard import HansardError, Limits, Message, Unavailable, Usage, sync
from hansard.testing import Clock, state

LIMITS = Limits(blob_bytes=64)
PICTURE = base64.b64encode(bytes(range(80))).decode()

WRITES: dict[str, Callable[[sync.Store], object]] = {
    "append": lambda store: store.append("c", [Message("user", "x", id="n1"), Message("user", "y", id="n2")]),
    "append to a new one": lambda store: store.append_message("new", "user", "x", id="n", agent_id="new"),
    "append to a new tenant": lambda store: store.tenant("t").append_message("new", "user", "x", id="n"),
    "append a blob": lambda store: store.append_message("c", "user", PICTURE, id="n"),
    "update": lambda store: store.update_message("c", "m1", content="changed"),
    "delete a message": lambda store: store.delete_message("c", "m1"),
    "delete a blob": lambda store: store.delete_message("c", "b"),
    "pop": lambda store: store.pop_message("c"),
    "replace": lambda store: store.replace_messages("c", [Message("user", "only", id="o")]),
    "clear": lambda store: store.clear_messages("c"),
    "move": lambda store: store.update_conversation("c", agent_id="other"),
    "branch": lambda store: store.branch("c", at="m1", branch_id="b"),
    "delete": lambda store: store.delete_conversation("c"),
    "put a record": lambda store: store.records.put(["n"], "new", 1),
    "put a record of a conversation": lambda store: store.records.put(["n"], "new", 1, conversation_id="d"),
    "erase": lambda store: store.erase_user("u"),
}


def fill(root: Path, mode: str) -> None:
    with connect(root, mode) as store:
        store.append(
            "c",
            [Message("user", str(number), id=f"m{number}", usage=Usage(output_tokens=1)) for number in range(3)],
            user_id="u",
            agent_id="a",
        )
        store.append_message("c", "user", base64.b64encode(bytes(90)).decode(), id="b")
        store.append_message("c", "user", "last", id="l")
        store.append_message("d", "user", "x", agent_id="a")
        store.records.put(["n"], "k", 1, conversation_id="c")
        store.user("u").records.put(["n"], "own", 1)


def connect(root: Path, mode: str) -> sync.Store:
    clock = Clock()
    clock.stop()
    return sync.connect(f"file://{root}?mode={mode}&durability=machine&timeout=2", clock=clock, limits=LIMITS)


def seen(root: Path, mode: str) -> Any:
    with connect(root, mode) as store:
        return state(store), state(store.user("u")), state(store.tenant("t"))


class Faults:
    """Makes the call of one number fail, and counts calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails_at: int, number: int) -> None:
        self.calls = 0
        self._fails_at = fails_at
        self._errno = number
        for module, name in (
            (os, "write"),
            (os, "fsync"),
            (os, "fdatasync"),
            (os, "ftruncate"),
            (os, "open"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "mkdir"),
            (Path, "rmdir"),
        ):
            monkeypatch.setattr(module, name, self._wrapped(getattr(module, name), name))

    def _wrapped(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name != "open" or args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.calls += 1
                if self.calls == self._fails_at:
                    raise OSError(self._errno, os.strerror(self._errno), str(args[0]))
            return real(*args, **options)

        return call


@contextlib.contextmanager
def failing(fails_at: int, number: int) -> Iterator[Faults]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Faults(monkeypatch, fails_at, number)


@pytest.mark.parametrize("mode", ["delta", "snapshot"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_happens_or_not_whatever_fails(tmp_path: Path, mode: str, write: str) -> None:
    fill(tmp_path / "old", mode)
    old = seen(tmp_path / "old", mode)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    with connect(tmp_path / "new", mode) as store:
        WRITES[write](store)
    new = seen(tmp_path / "new", mode)
    fails_at = 0
    while fails_at < 200:
        fails_at += 1
        root = tmp_path / str(fails_at)
        shutil.copytree(tmp_path / "old", root)
        if not _fails_well(root, mode, write, fails_at, (old, new)):
            break
        shutil.rmtree(root)
    assert 3 < fails_at < 200


def _fails_well(root: Path, mode: str, write: str, fails_at: int, expected: tuple[Any, Any]) -> bool:
    """Whether the call of that number was made."""
    error: HansardError | None = None
    with connect(root, mode) as store:
        with failing(fails_at, (errno.ENOSPC, errno.EIO)[fails_at % 2]) as faults:
            try:
                WRITES[write](store)
            except HansardError as raised:
                error = raised
        # Other handles see the same state as the handle that failed.
        found = seen(root, mode)
        assert (state(store), state(store.user("u")), state(store.tenant("t"))) == found
    if write != "erase":
        # Erasing is many writes; each of them is atomic on its own.
        assert found in expected, f"{write} is half done after call {fails_at}: {error}"
        if error is None:
            assert found == expected[1]
        elif isinstance(error, Unavailable) and error.outcome == "not_applied":
            assert found == expected[0], (
                f"{write} happened after call {fails_at}, but was reported as not applied: {error}"
            )
    with connect(root, mode) as store:
        with contextlib.suppress(HansardError):
            WRITES[write](store)
        store.purge()
        assert store.check() == []
        assert kit.contents(store, "d") == ["x"]
        store.append_message("c", "user", "still writable")
    return faults.calls >= fails_at
