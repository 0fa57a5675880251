"""Many threads on one store, backups while others write, and folders that disappear."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from tests.backends.files import kit
from tests.wait import PATIENCE

from hansard import ConversationNotFound, Limits, Message, Unavailable, sync
from hansard.backends.files import FilesBackend, maintenance
from hansard.backends.files.catalog import Catalog
from hansard.backends.files.locks import Locks
from hansard.store.core import utc_now
from hansard.testing import processes


def run(threads: list[Callable[[], object]], seconds: float) -> None:
    """Runs every function in a loop, all at once. The first error ends them."""
    end = time.monotonic() + seconds
    errors: list[BaseException] = []

    def loop(step: Callable[[], object]) -> None:
        while time.monotonic() < end and not errors:
            try:
                step()
            except ConversationNotFound:
                pass
            except BaseException as error:
                errors.append(error)

    started = [threading.Thread(target=loop, args=(step,)) for step in threads]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("mode", ["delta", "snapshot"])
def test_threads_of_one_store(tmp_path: Path, mode: str) -> None:
    chance = random.Random(5)
    with kit.connect(tmp_path, mode=mode) as store:

        def id() -> str:
            return f"c{chance.randrange(3)}"

        def append() -> None:
            store.append(id(), [Message("user", "x" * chance.randrange(200)) for _ in range(3)])

        def change() -> None:
            store.update_conversation(id(), agent_id=chance.choice(["a", "b", None]), title=str(chance.random()))

        def remove() -> None:
            which, wanted = chance.random(), id()
            if which < 0.2:
                store.delete_conversation(wanted)
            elif which < 0.5:
                store.delete_messages(wanted, [each.id for each in store.get_messages(wanted, last=3)])
            else:
                store.replace_messages(wanted, [Message("user", "only") for _ in range(3)])

        def record() -> None:
            wanted = id()
            store.records.put(["n"], wanted, chance.random(), conversation_id=wanted)
            store.records.scan(["n"])

        def read() -> None:
            wanted = id()
            messages = list(store.iter_messages(wanted))
            assert [each.seq for each in messages] == sorted({each.seq for each in messages})
            for each in store.list_conversations().items:
                store.get_messages(each.id, last=2)

        run([append, append, change, remove, record, read, read], 4)
        for number in range(3):
            store.append_message(f"c{number}", "user", "last")
        assert len(store.list_conversations().items) == 3
        store.purge()
        assert store.check() == []
    for path in kit.journals(tmp_path):
        kit.lines(path)


READERS: dict[str, Callable[[sync.Store], object]] = {
    "get": lambda store: store.records.get(["n"], "k"),
    "scan": lambda store: store.records.scan(["n"]),
    "put": lambda store: store.records.put(["n"], "k", 2, conversation_id="other"),
    "list": lambda store: store.list_conversations(),
    "read": lambda store: store.get_messages("c"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_a_moving_conversation_holds_no_lock_that_its_writer_needs(tmp_path: Path, reader: str) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("other", "user", "x")
        store.append_message("c", "user", "x")
        store.records.put(["n"], "k", 1, conversation_id="c")
    with kit.connect(tmp_path) as store, ThreadPoolExecutor(1) as pool:
        backend = cast("FilesBackend", store.backend)
        tenant = backend.storage.common.tenant("default")
        with tenant.writing("c"):
            # Between two folders, at the worst moment.
            journal, away = kit.journal(tmp_path, "c"), tmp_path / "away"
            journal.rename(away)
            waiting = pool.submit(READERS[reader], store)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            assert tenant.records("").delete_conversation_records("c", utc_now()) == 1
            with tenant.log._file.writing(), tenant.index.writing():
                away.rename(journal)
        waiting.result()
        assert len(store.list_conversations().items) == 2
        assert store.check() == []


def test_a_lock_file_of_a_dead_process_blocks_no_reader(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
        store.records.put(["n"], "k", 1, conversation_id="c")
        kit.journal(tmp_path, "c").unlink()
        assert (tmp_path / "default" / "_locks" / "c.lock").exists()
        assert store.records.get(["n"], "k") is None
        assert store.records.scan(["n"]).items == []
        assert store.list_conversations().items == []


def test_a_tenant_is_deleted_when_no_writer_holds_it(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store, ThreadPoolExecutor(3) as pool:
        store.append_message("c", "user", "x")
        tenant = cast("FilesBackend", store.backend).storage.common.tenant("default")
        with tenant.writing("d", create=True):
            going = [pool.submit(store.admin.delete_tenant, "default") for _ in range(2)]
            with pytest.raises(TimeoutError):
                going[0].result(timeout=0.5)
            # The tenant still exists while a writer holds it.
            assert kit.contents(store, "c") == ["x"]
        assert sum(each.result().conversations for each in going) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["hansard.json"]


@pytest.mark.parametrize(("mode", "durability"), [("delta", "machine"), ("snapshot", "process")])
def test_tenants_deleted_and_created_again_while_others_write(tmp_path: Path, mode: str, durability: str) -> None:
    chance = random.Random(7)
    copies = iter(range(1_000_000))
    limits = Limits(blob_bytes=64)
    with kit.connect(tmp_path / "store", limits=limits, mode=mode, durability=durability) as store:

        def append() -> None:
            store.append(f"c{chance.randrange(3)}", [Message("user", {"image": "QUJD" * chance.randrange(40, 44)})])

        def record() -> None:
            store.records.put(["n"], "k", 1, conversation_id=f"c{chance.randrange(3)}")
            store.user("u").records.put(["n"], "k", 1)

        def read() -> None:
            for each in store.list_conversations().items:
                store.get_messages(each.id, last=5)

        def remove() -> None:
            store.delete_conversation(f"c{chance.randrange(3)}")
            store.erase_user("u")
            store.purge()

        def copy() -> None:
            store.backup(tmp_path / f"copy{next(copies)}")

        def leave() -> None:
            store.admin.delete_tenant("default")

        run([append, append, record, read, remove, copy, leave, leave], 4)
        store.append_message("c0", "user", "last")
        store.purge()
        assert store.check() == []
    for path in tmp_path.glob("copy*"):
        with kit.connect(path) as store:
            store.purge()  # an unfinished deletion is copied as it is
            assert store.check() == []


def test_a_purge_keeps_files_that_are_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kit.connect(tmp_path) as store:
        store.blobs.put(b"x")
        folder = next((tmp_path / "default" / "_blobs").iterdir())
        temporary = folder / "another.tmp"
        temporary.write_bytes(b"y")
        os.utime(temporary, (0, 0))  # like a blob without a retention
        store.purge()
        assert temporary.exists()
        monkeypatch.setattr(maintenance, "_OLD", -60.0)
        store.purge()
        assert not temporary.exists()


def test_adding_a_blob_does_not_wait_for_a_comparison_of_all_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_go_on = threading.Event(), threading.Event()
    compare = Catalog._compare

    def slowly(catalog: Catalog) -> None:
        # As if very many conversations were compared.
        started.set()
        assert may_go_on.wait(PATIENCE)
        compare(catalog)

    def picture(letter: str) -> list[Message]:
        return [Message("user", {"image": letter * 400})]

    with kit.connect(tmp_path, limits=Limits(blob_bytes=64)) as store, ThreadPoolExecutor(2) as pool:
        store.append("c", picture("A"))
        monkeypatch.setattr(Catalog, "_compare", slowly)
        going = pool.submit(store.delete_conversation, "c")
        assert started.wait(PATIENCE)
        pool.submit(store.append, "d", picture("B")).result(PATIENCE)
        may_go_on.set()
        assert going.result().blobs == 1


def test_readers_that_overlap_do_not_keep_a_writer_out(tmp_path: Path) -> None:
    locks = Locks(timeout=PATIENCE)
    path, done = tmp_path / "lock", threading.Event()

    def read() -> None:
        while not done.is_set():
            with locks.hold(path, "it", shared=True):
                time.sleep(0.05)

    readers = [threading.Thread(target=read) for _ in range(8)]
    for number, reader in enumerate(readers):
        reader.start()
        time.sleep(0.003 * number)
    writes = 0
    try:
        for _ in range(3):
            with locks.hold(path, "it"):
                writes += 1
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert writes == 3


def test_readers_see_a_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append("c", [Message("user", "0") for _ in range(5)])
        rounds = iter(range(1, 1_000_000))

        def replace() -> None:
            text = str(next(rounds))
            store.replace_messages("c", [Message("user", text) for _ in range(5)])

        def read() -> None:
            for messages in (store.get_messages("c", limit=100), store.get_messages("c", limit=100, roles=["user"])):
                assert len(messages) == 5
                assert len({each.content for each in messages}) == 1

        run([replace, read, read], 2)


def test_a_copy_while_others_write(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store?durability=process"
    writer = processes.Writer(url, "w", conversations=("c", "d"), tasks=3)
    writer.wait_until_open()
    with sync.connect(url) as store:
        for number in range(4):
            time.sleep(0.1)
            store.append_message("moving", "user", "x", agent_id=f"a{number}")
            store.update_conversation("moving", agent_id=f"b{number}")
            store.backup(tmp_path / f"copy{number}")
        with pytest.raises(ValueError, match="never overwrites"):
            store.backup(tmp_path / "copy0")
    writer.kill()
    for number in range(4):
        with kit.connect(tmp_path / f"copy{number}") as copy:
            assert copy.check() == []
            assert len(kit.contents(copy, "moving")) == number + 1
            for id in ("c", "d"):
                messages = list(copy.iter_messages(id))
                assert len(messages) % 3 == 0
                found = copy.get_conversation(id)
                assert found is None or found.message_count == len(messages)
            copy.append_message("c", "user", "a copy is a store")
    assert not list(tmp_path.glob("copy*.tmp"))


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        other = store.tenant("other")
        assert other.get_conversation("c") is None
        assert other.list_conversations().items == []
        assert other.records.get(["n"], "k") is None
        assert other.usage() == []
        assert other.check() == []
        assert not other.delete_conversation("c")
        assert not store.admin.delete_tenant("other")
        with pytest.raises(ConversationNotFound):
            other.update_conversation("c", title="t")
        store.purge()
        assert store.admin.stats().conversations == 0
        assert [path.name for path in tmp_path.iterdir()] == ["hansard.json"]
        store.append_message("c", "user", "x")
        assert store.get_conversation("d") is None
        assert not list(tmp_path.rglob("d.*")), "no lock without a conversation"


def test_a_removed_folder_is_not_created_again(tmp_path: Path) -> None:
    with kit.connect(tmp_path / "store") as store:
        store.append_message("c", "user", "x")
        shutil.rmtree(tmp_path / "store")
        assert store.get_conversation("c") is None
        with pytest.raises(Unavailable, match="store"):
            store.append_message("c", "user", "y")
        assert not (tmp_path / "store").exists()


FORK = """
import os, sys
from hansard import sync
store = sync.connect(sys.argv[1])
store.append_message("c", "user", "x")
with store.backend.storage.common.tenant("default").writing("c"):
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)
store.append_message("c", "user", "y")
os.kill(child, 9)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("name", ["t", "t/_locks", "t/a"])
def test_a_broken_link_is_reported(tmp_path: Path, name: str) -> None:
    """As when a folder was moved to a disk that is not mounted."""
    with kit.connect(tmp_path / "store") as store:
        store.tenant("t").append_message("c", "user", "x", agent_id="a")
        folder = tmp_path / "store" / name
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        store.tenant("t").append_message("c", "user", "y")
        (tmp_path / "elsewhere").rename(tmp_path / "gone")
        with pytest.raises(Unavailable, match="broken link"):
            store.tenant("t").append_message("d", "user", "z", agent_id="a")
        (tmp_path / "gone").rename(tmp_path / "elsewhere")
        assert kit.contents(store.tenant("t"), "c") == ["x", "y"]


def test_a_forked_process_keeps_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORK, f"file://{tmp_path}?timeout=2"]
    subprocess.run(command, check=True, timeout=PATIENCE, stdin=subprocess.PIPE)


ORPHAN = """
import os, signal, sys
from hansard import sync
store = sync.connect(sys.argv[1])
with store.backend.storage.common.tenant("default").writing("c"):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.read(0, 1)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_does_not_keep_the_locks_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    with kit.connect(tmp_path, timeout="2") as store:
        store.append_message("c", "user", "x")
        command = [sys.executable, "-c", ORPHAN, f"file://{tmp_path}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            parent.wait(PATIENCE)
            try:
                store.append_message("c", "user", "y")
            finally:
                os.kill(child, 9)
        assert kit.contents(store, "c") == ["x", "y"]


def test_what_a_killed_backup_left_goes_in_time(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in ("copy.0123abcd.tmp", "copy.4567abcd.tmp", "notes.tmp"))
    for folder in (old, young, other):
        (folder / "tenants").mkdir(parents=True)
        (folder / "tenants" / "left").write_text("left")
        os.utime(folder, (0, 0))
    for folder in (old, other):
        os.utime(folder / "tenants", (0, 0))
    with kit.connect(tmp_path / "store") as store:
        store.append_message("c", "user", "x")
        store.backup(tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", young.name, other.name, "store"]
