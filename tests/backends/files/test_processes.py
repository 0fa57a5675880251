"""Several processes on one folder, some of which die.

`HANSARD_CRASHES=500 pytest tests/backends/files/test_processes.py` kills more of them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.backends.files import kit
from tests.wait import PATIENCE

from hansard import sync
from hansard.testing import Target, processes

KILLS = int(os.environ.get("HANSARD_CRASHES", "6"))
MODES = ("delta", "snapshot")


@pytest.mark.timeout(120 + 10 * KILLS)
@pytest.mark.parametrize("mode", MODES)
def test_killed_writers_of_long_lines_lose_nothing(tmp_path: Path, mode: str) -> None:
    target = Target(f"file://{tmp_path}/store?mode={mode}", folder=tmp_path)
    assert processes.crash(target, KILLS // 2, seed=len(mode), batch=400) > 0
    for path in kit.journals(tmp_path / "store"):
        kit.lines(path)


@pytest.mark.parametrize("mode", MODES)
def test_writers_in_several_processes(tmp_path: Path, mode: str) -> None:
    url = f"file://{tmp_path}?mode={mode}&durability=process"
    writers = [
        processes.Writer(url, f"w{number}", conversations=("c", "d"), batches=25, tasks=3 * (number % 2))
        for number in range(4)
    ]
    for writer in writers:
        writer.wait()
    with kit.connect(tmp_path) as store:
        processes.verify(store, writers)


# A writer that does a bit of everything, and prints each step before and after it.
MANY = """
import base64, itertools, random, sys
from hansard import Limits, Message, sync
url, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
store = sync.connect(url, limits=Limits(blob_bytes=64))
print("open", flush=True)
for step in itertools.count():
    id = f"c{chance.randrange(4)}"
    picture = {"image": base64.b64encode(random.Random(chance.randrange(5)).randbytes(80)).decode()}
    kind = chance.choice("append append blob move delete remove branch replace record purge".split())
    print("begin", step, kind, id, flush=True)
    if kind == "append":
        store.append(id, [Message("user", f"{seed}.{step}.{part}", usage={"output_tokens": 1}) for part in range(3)])
    elif kind == "blob":
        store.append(id, [Message("user", picture)])
    elif store.get_conversation(id) is None:
        pass
    elif kind == "move":
        store.update_conversation(id, agent_id=chance.choice(["one", "two", None]))
    elif kind == "delete":
        store.delete_conversation(id)
    elif kind == "remove":
        store.delete_messages(id, [message.id for message in store.get_messages(id, last=2)])
    elif kind == "branch":
        store.branch(id)
    elif kind == "replace":
        store.replace_messages(id, [Message("user", "only"), Message("user", picture)])
    elif kind == "record":
        store.records.put(["n"], id, step, conversation_id=id)
    elif kind == "purge":
        store.purge()
    print("end", step, flush=True)
"""


@pytest.mark.timeout(120 + 10 * KILLS)
@pytest.mark.parametrize("mode", MODES)
def test_a_process_killed_during_any_operation(tmp_path: Path, mode: str) -> None:
    root = tmp_path / "store"
    chance = random.Random(3)
    url = f"file://{root}?mode={mode}&durability=process"
    for seed in range(KILLS):
        command = [sys.executable, "-c", MANY, url, str(seed)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(chance.random() * 0.08)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
        assert "Error" not in errors, errors
        if seed % 4 == 3:
            _must_be_sound(root, chance)
    _must_be_sound(root, chance)


def _must_be_sound(root: Path, chance: random.Random) -> None:
    """The store opens, and no operation is half done."""
    with kit.connect(root) as store:
        listed = {each.id: each for each in store.list_conversations(limit=100).items}
        for id in (f"c{number}" for number in range(4)):
            found = store.get_conversation(id)
            assert listed.get(id) == found, id
            if found is not None:
                # Reads every message, and every blob that it refers to.
                reached = {
                    each.id for branch in store.list_branches(id) for each in store.iter_messages(id, branch=branch.id)
                }
                assert len(reached) == found.message_count
            store.append_message(id, "user", "still writable")
        store.purge()
        assert store.check() == []
        assert [str(path) for path in kit.journals(root)] == sorted({str(path) for path in kit.journals(root)})
        assert len(kit.journals(root)) == 4
        if chance.random() < 0.5:
            for number in range(4):
                store.delete_conversation(f"c{number}")
            store.purge()
            blobs = [path for path in (root / "default" / "_blobs").rglob("*") if path.is_file()]
            # Temporary files of a killed writer are removed an hour later.
            assert [path for path in blobs if path.suffix != ".tmp"] == []
            assert kit.journals(root) == []


READER = """
import sys
from hansard import sync
store = sync.connect(sys.argv[1])
print("open", flush=True)
for _ in range(int(sys.argv[2])):
    found = store.get_conversation("c")
    listed = [each.id for each in store.list_conversations().items]
    assert found is not None and listed == ["c"], (found, listed)
    messages = list(store.iter_messages("c"))
    assert len(messages) % 3 == 0, "half a batch"
    assert [message.seq for message in messages] == sorted({message.seq for message in messages})
"""


@pytest.mark.parametrize("mode", MODES)
def test_readers_see_whole_batches_while_a_journal_moves_between_folders(tmp_path: Path, mode: str) -> None:
    url = f"file://{tmp_path}?mode={mode}&durability=process"
    with sync.connect(url) as store:
        store.append("c", [{"role": "user", "content": "x"} for _ in range(3)])
        command = [sys.executable, "-c", READER, url, "150"]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for reader in readers:
            assert reader.stdout is not None
            reader.stdout.readline()
        number = 0
        while number <= 20 or any(reader.poll() is None for reader in readers):
            number += 1
            store.update_conversation("c", agent_id=f"agent{number % 3}")
            if number % 4 == 0:
                store.append("c", [{"role": "user", "content": "x"} for _ in range(3)])
            if number % 100 == 0:
                store.clear_messages("c")
        for reader in readers:
            reader.communicate()
            assert reader.returncode == 0


def test_a_watcher_sees_what_another_process_writes(tmp_path: Path) -> None:
    url = f"file://{tmp_path}?durability=process"
    code = f"from hansard import sync; sync.connect({url!r}).append_message('c', 'user', 'from elsewhere')"
    with sync.connect(url) as store:
        store.append_message("c", "user", "x", id="m")
        tail = store.watch("c", after="m")
        process = subprocess.Popen([sys.executable, "-c", code])
        assert next(iter(tail)).content == "from elsewhere"
        assert process.wait(PATIENCE) == 0


BLOBS = """
import base64, random, sys
from hansard import Limits, Message, sync
url, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
with sync.connect(url, limits=Limits(blob_bytes=64)) as store:
    for step in range(60):
        id = f"{seed}.{step}"
        picture = base64.b64encode(random.Random(step % 3).randbytes(80)).decode()
        store.append(id, [Message("user", picture)])
        assert store.get_messages(id)[0].content == picture
        if step % 4:
            store.delete_conversation(id)
        if step % 20 == 7:
            store.purge()
"""


def test_no_blob_is_removed_while_another_process_is_about_to_refer_to_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}?durability=process"
    started = [subprocess.Popen([sys.executable, "-c", BLOBS, url, str(seed)]) for seed in range(3)]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    with kit.connect(tmp_path) as store:
        assert store.check() == []
        assert len(store.list_conversations(limit=100).items) == 45
        for each in store.list_conversations(limit=100).items:
            assert store.get_messages(each.id)[0].content
        store.purge()
        assert store.stats().blobs == 3
