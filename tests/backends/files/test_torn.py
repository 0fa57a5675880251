"""A crash at any byte leaves the old state or the new one; any other damage is reported."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.backends.files import kit

from hansard import Corrupt, Message, sync
from hansard.testing import Clock, state

WRITES: dict[str, Callable[[sync.Store], object]] = {
    "append": lambda store: store.append("c", [Message("user", f"new ü {number}") for number in range(3)]),
    "update": lambda store: store.update_message("c", "m1", content="changed"),
    "pop": lambda store: store.pop_message("c"),
    "branch": lambda store: store.branch("c", at="m0", branch_id="b"),
    "replace": lambda store: store.replace_messages("c", [Message("user", "only")]),
    "title": lambda store: store.update_conversation("c", title="title", metadata={"k": 1}),
    "summary": lambda store: store.add_summary("c", "text", from_seq=1, to_seq=2),
}


LONG = "HANSARD_DAMAGES" in os.environ


def seen(root: Path) -> object:
    with kit.connect(root, Clock()) as store:
        return state(store)


def begin(root: Path) -> None:
    with kit.connect(root, Clock()) as store:
        store.append("c", [Message("user", f"old {number}", id=f"m{number}") for number in range(3)])


def cuts(start: int, end: int, *, every: bool) -> list[int]:
    """Returns the sizes to cut a file to: all, or the first and last ones and some between."""
    return [size for size in range(start, end) if every or size % 9 == 0 or size < start + 9 or size >= end - 9]


@pytest.mark.parametrize("write", WRITES)
def test_cut_off_at_every_byte_of_the_last_line(tmp_path: Path, write: str) -> None:
    root = tmp_path / "store"
    begin(root)
    old, path = seen(root), kit.journal(root, "c")
    start = path.stat().st_size
    with kit.connect(root, Clock()) as store:
        WRITES[write](store)
    new, whole = seen(root), path.read_bytes()
    assert old != new
    for size in cuts(start, len(whole), every=write == "append" or LONG):
        path.write_bytes(whole[:size])
        assert seen(root) == old, size
    path.write_bytes(whole)
    assert seen(root) == new


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_the_next_writer_cuts_off_a_torn_tail(tmp_path: Path, share: float) -> None:
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    sound = path.read_bytes()
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "lost " * 20)
    torn = path.read_bytes()
    cut = len(sound) + max(1, int(share * (len(torn) - len(sound))))
    path.write_bytes(torn[:cut])
    with kit.connect(tmp_path) as store:
        problems = store.check()
        assert [problem.where for problem in problems] == [f"{path}:2"]
        assert "torn" in problems[0].what
        assert kit.contents(store, "c") == ["old 0", "old 1", "old 2"]
        assert path.read_bytes() == torn[:cut], "readers change nothing"
        store.append_message("c", "user", "next")
        assert store.check() == []
        assert kit.contents(store, "c") == ["old 0", "old 1", "old 2", "next"]
    assert path.read_bytes().startswith(sound)
    kit.lines(path)


def test_a_conversation_cut_off_in_its_first_line_does_not_exist(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin(root)
    path = kit.journal(root, "c")
    whole = path.read_bytes()
    for size in cuts(0, len(whole), every=LONG):
        path.write_bytes(whole[:size])
        with kit.connect(root) as store:
            assert store.get_conversation("c") is None
            assert store.list_conversations().items == []
            assert bool(store.check()) == bool(size)
            if size % 50 == 0:
                store.append("c", [Message("user", "again")])
                assert kit.contents(store, "c") == ["again"]
                assert store.check() == []


def test_blocks_that_were_never_written_are_a_torn_tail(tmp_path: Path) -> None:
    # After a crash of the machine a file may have its full length, but empty blocks.
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    sound = path.read_bytes()
    for tail in (b"\0" * 400, b'{"what":"append"' + b"\0" * 300 + b'"check":"00000000"}\n'):
        path.write_bytes(sound + tail)
        with kit.connect(tmp_path) as store:
            assert kit.contents(store, "c") == ["old 0", "old 1", "old 2"]
            assert len(store.check()) == 1


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    with kit.connect(tmp_path) as store:
        for number in range(5):
            store.append_message("c", "user", f"number {number}")
        store.append_message("sound", "user", "x")
    for number in (2, 6):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number - 1] = lines[number - 1].replace(b"number", b"NUMBER")
        copy = tmp_path.parent / f"copy {number}"
        shutil.copytree(tmp_path, copy)
        kit.journal(copy, "c").write_bytes(b"".join(lines))
        with kit.connect(copy) as store:
            for call in (
                lambda store=store: kit.contents(store, "c"),
                lambda store=store: store.append_message("c", "user", "x"),
                lambda store=store: store.get_conversation("c"),
                lambda store=store: store.list_conversations(),
            ):
                with pytest.raises(Corrupt, match=rf"c\.jsonl is damaged in line {number}\b") as caught:
                    call()
                assert caught.value.where == f"{kit.journal(copy, 'c')}:{number}"
            assert kit.contents(store, "sound") == ["x"], "the rest can be read"
            assert [problem.where for problem in store.check()] == [f"{kit.journal(copy, 'c')}:{number}"]


def test_a_missing_or_moved_line_is_damage(tmp_path: Path) -> None:
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    with kit.connect(tmp_path) as store:
        for number in range(5):
            store.append_message("c", "user", f"number {number}")
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong in (lines[:2] + lines[3:], [*lines[:2], lines[3], lines[2], *lines[4:]], [*lines, lines[-1]]):
        path.write_bytes(b"".join(wrong))
        with kit.connect(tmp_path) as store, pytest.raises(Corrupt):
            kit.contents(store, "c")


def test_a_flipped_bit_is_never_read_as_data(tmp_path: Path) -> None:
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "one more")
    whole = path.read_bytes()
    chance = random.Random(7)
    kit.let_time_pass()
    for at in (*chance.sample(range(len(whole)), 150), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(7)
        path.write_bytes(bytes(damaged))
        with kit.connect(tmp_path) as store, pytest.raises(Corrupt):
            kit.contents(store, "c")


def test_damage_under_an_open_store_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        for number in range(20):
            store.append_message("c", "user", f"number {number:02}")
        assert len(kit.contents(store, "c")) == 20
        path = kit.journal(tmp_path, "c")
        content = path.read_bytes()
        kit.let_time_pass()
        with path.open("r+b") as file:
            file.write(content.replace(b"number 07", b"number 70"))
        for _ in range(2):
            with pytest.raises(Corrupt, match=r"c\.jsonl is damaged in line 8\b"):
                store.get_messages("c", last=2)
        path.write_bytes(content)
        assert [message.content for message in store.get_messages("c", last=2)] == ["number 18", "number 19"]


def test_a_damaged_snapshot_is_never_served(tmp_path: Path) -> None:
    with kit.connect(tmp_path, mode="snapshot") as store:
        for number in range(5):
            store.append_message("c", "user", f"{number}")
    path = kit.journal(tmp_path, "c")
    lines = path.read_bytes().splitlines(keepends=True)
    # A snapshot is complete or not there, so part of one is damage.
    for part in (b"".join(lines[:-1]), b"".join(lines[:3]), b"".join(lines)[:-30]):
        path.write_bytes(part)
        with kit.connect(tmp_path) as store:
            with pytest.raises(Corrupt):
                store.get_conversation("c")
            assert store.check() != []


def test_a_journal_with_the_name_of_another_is_reported(tmp_path: Path) -> None:
    begin(tmp_path)
    kit.journal(tmp_path, "d").write_bytes(kit.journal(tmp_path, "c").read_bytes())
    with kit.connect(tmp_path) as store:
        with pytest.raises(Corrupt, match="another conversation"):
            store.get_conversation("d")
        assert any("another file" in problem.what for problem in store.check())


@pytest.mark.parametrize("name", ["_tenant.jsonl", "_records/_common.jsonl"])
def test_small_journals_are_cut_off_and_damaged_alike(tmp_path: Path, name: str) -> None:
    with kit.connect(tmp_path) as store:
        store.records.put(["n"], "a", 1)
        store.append_message("c", "user", "x", id="m")
        store.delete_message("c", "m")
        store.records.put(["n"], "b", "two")
        store.append_message("c", "user", "x", id="n")
        store.delete_message("c", "n")
    path = tmp_path / "default" / name
    whole = path.read_bytes()
    assert whole.count(b"\n") > 1
    start = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[: start + 10])
    with kit.connect(tmp_path) as store:
        assert [problem.where for problem in store.check()] == [f"{path}:{whole.count(10)}"]
        store.records.put(["n"], "c", 3)
        store.append_message("c", "user", "x", id="o")
        store.delete_message("c", "o")
        assert store.check() == []
        assert (store.records.get(["n"], "b") is None) == ("records" in name)
    damaged = bytearray(path.read_bytes())
    damaged[start // 2] ^= 1
    path.write_bytes(bytes(damaged))
    with kit.connect(tmp_path) as store:
        assert len(store.check()) == 1
        call = partial(store.records.get, ["n"], "a") if "records" in name else store.usage
        with pytest.raises(Corrupt):
            call()


def test_a_line_that_is_being_written_is_ignored(tmp_path: Path) -> None:
    """Readers read a journal while another process writes lines in pieces, tears and repairs them: that is never
    damage.
    """
    begin(tmp_path)
    path = kit.journal(tmp_path, "c")
    with kit.connect(tmp_path) as store:
        for number in range(40):
            store.append_message("c", "user", f"{number} " + "x" * 300)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(whole[0])
    done = threading.Event()

    def write() -> None:
        with path.open("r+b", buffering=0) as file:
            for line in whole[1:]:
                end = file.seek(0, os.SEEK_END)
                file.write(line[:200])
                file.truncate(end)
                file.seek(end)
                for start in range(0, len(line), 37):
                    file.write(line[start : start + 37])
        done.set()

    thread = threading.Thread(target=write)
    with kit.connect(tmp_path) as store:
        thread.start()
        while not done.is_set():
            assert kit.contents(store, "c")[:3] == ["old 0", "old 1", "old 2"]
            with kit.connect(tmp_path) as fresh:
                fresh.get_conversation("c")
        thread.join()
        assert len(kit.contents(store, "c")) == 43
