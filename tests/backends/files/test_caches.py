"""What lies beside the journals may be lost, stale or damaged: answers stay right."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.backends.files import kit

from hansard import Message, sync
from hansard.backends.files import FilesBackend, checkpoint
from hansard.backends.files.tenant import Common
from hansard.testing import Clock, state


def fill(root: Path) -> object:
    with kit.connect(root, Clock()) as store:
        for number in range(150):
            store.append_message(
                f"c{number}", "user", f"in {number}", user_id=f"u{number % 3}", agent_id=f"a{number % 4}"
            )
        store.list_conversations()
        old = kit.journals(root)[0].stat().st_mtime_ns - 10**10
        for path in kit.journals(root):
            # As if they had been written long ago: only such are taken from a catalogue.
            os.utime(path, ns=(old, old))
        (root / "default" / "_cache" / "changes.log").unlink()
        store.list_conversations()
        return state(store)


def test_a_catalogue_is_written_down(tmp_path: Path) -> None:
    expected = fill(tmp_path)
    catalog = tmp_path / "default" / "_cache" / "catalog.json"
    assert catalog.read_bytes().count(b'"name"') == 150
    with kit.connect(tmp_path, Clock()) as store:
        assert state(store) == expected


def test_what_the_catalogue_says_of_an_old_file_is_not_read_again(tmp_path: Path) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store:
        backend = store.backend
        assert isinstance(backend, FilesBackend)
        store.list_conversations(user_id="u1", limit=50)
        assert len(backend.storage.common.journals.values()) == 0, "no journal was opened"


LOSSES: dict[str, Callable[[Path], object]] = {
    "no cache": lambda tenant: shutil.rmtree(tenant / "_cache"),
    "no catalogue": lambda tenant: (tenant / "_cache" / "catalog.json").unlink(),
    "no log": lambda tenant: (tenant / "_cache" / "changes.log").unlink(),
    "a damaged catalogue": lambda tenant: damage(tenant / "_cache" / "catalog.json"),
    "an empty catalogue": lambda tenant: (tenant / "_cache" / "catalog.json").write_bytes(b""),
    "a damaged log": lambda tenant: (tenant / "_cache" / "changes.log").write_bytes(b"\xff\0nonsense"),
    "no locks": lambda tenant: shutil.rmtree(tenant / "_locks"),
    "wrong hints": lambda tenant: [path.write_text("../../x") for path in (tenant / "_locks").glob("c*")],
    "stale hints": lambda tenant: [path.write_text("a3") for path in (tenant / "_locks").glob("c*")],
}


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("loss", LOSSES)
def test_losing_it_changes_no_answer(tmp_path: Path, loss: str) -> None:
    expected = fill(tmp_path)
    LOSSES[loss](tmp_path / "default")
    with kit.connect(tmp_path, Clock()) as store:
        assert state(store) == expected
        store.append_message("c7", "user", "more")
        store.update_conversation("c6", agent_id="a0")
        store.delete_conversation("c9")
        assert kit.contents(store, "c7") == ["in 7", "more"]
        assert len(store.list_conversations(agent_id="a0", limit=100).items) == 39
        assert store.check() == []


@pytest.mark.parametrize("loss", ["no cache", "no log", "a damaged log"])
def test_losing_it_under_an_open_store_changes_no_answer(tmp_path: Path, loss: str) -> None:
    fill(tmp_path)
    with kit.connect(tmp_path) as store, kit.connect(tmp_path) as other:
        assert other.list_conversations(limit=1).items
        LOSSES[loss](tmp_path / "default")
        store.append_message("c3", "user", "newest")
        assert other.list_conversations(limit=1).items[0].id == "c3"


def test_a_journal_put_there_or_taken_away_by_hand(tmp_path: Path) -> None:
    fill(tmp_path)
    aside = tmp_path / "aside.jsonl"
    kit.journal(tmp_path, "c0", "a0").rename(aside)
    with kit.connect(tmp_path) as store:
        assert store.get_conversation("c0") is None
        assert len(store.list_conversations(user_id="u0", limit=100).items) == 49
    aside.rename(kit.journal(tmp_path, "c0", "a2"))
    with kit.connect(tmp_path) as store:
        assert kit.contents(store, "c0") == ["in 0"]
        assert len(store.list_conversations(user_id="u0", limit=100).items) == 50
        store.append_message("c0", "user", "back")
    assert kit.journal(tmp_path, "c0", "a0").exists(), "a writer puts it where it belongs"


def test_a_listing_sees_what_another_handle_writes(tmp_path: Path) -> None:
    clock = Clock()
    with kit.connect(tmp_path, clock) as store, kit.connect(tmp_path, clock, mode="snapshot") as other:

        def check() -> None:
            assert [each.id for each in other.list_conversations().items] == [
                each.id for each in store.list_conversations().items
            ]

        for number in range(6):
            (store, other)[number % 2].append_message(f"c{number}", "user", "x")
            check()
        other.append_message("c1", "user", "again")
        check()
        assert store.list_conversations(limit=1).items[0].id == "c1"
        store.update_conversation("c3", archived=True)
        check()
        store.delete_conversation("c2")
        check()
        store.admin.delete_tenant("default")
        check()
        other.append_message("new", "user", "x")
        check()


def test_a_write_that_its_writer_did_not_live_to_announce_as_done(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x")
        store.append_message("d", "user", "x")
        assert store.list_conversations(limit=1).items[0].id == "d"
        with kit.connect(tmp_path) as other:
            log = tmp_path / "default" / "_cache" / "changes.log"
            before = log.read_bytes()
            other.append_message("c", "user", "y")
            # Only the minus arrived. It is read before the journal grows, and again whenever somebody lists.
            log.write_bytes(before + b"\n-c\n")
            assert store.list_conversations(limit=1).items[0].id == "c"
            other.append_message("d", "user", "y")
            other.append_message("c", "user", "z")
            log.write_bytes(before + b"\n-c\n-d\n+d\n")
            assert store.list_conversations(limit=1).items[0].id == "c"


def test_the_log_of_changes_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.backends.files.changes._LONGEST", 200)
    with kit.connect(tmp_path) as store, kit.connect(tmp_path) as other:
        for number in range(100):
            store.append_message(f"c{number % 7}", "user", "x")
            assert other.list_conversations(limit=1).items[0].id == f"c{number % 7}"
            if number % 3 == 0:
                assert store.list_conversations(limit=1).items[0].id == f"c{number % 7}"
    assert (tmp_path / "default" / "_cache" / "changes.log").stat().st_size < 500


@contextlib.contextmanager
def small(root: Path) -> Iterator[sync.Store]:
    """A store that remembers next to nothing."""
    common = Common(root, durable=False, snapshots=False, timeout=10)
    common.journals._most = common.spaces._most = common.tenants._most = 1
    with sync.Store.over(FilesBackend(common, blocking=True)) as store:
        yield store


def test_little_memory_changes_no_answer(tmp_path: Path) -> None:
    expected = fill(tmp_path)
    with small(tmp_path) as store:
        assert state(store) == expected
        for number in range(20):
            store.append_message(f"c{number}", "user", "more")
            store.user(f"u{number}").records.put(["n"], "k", number)
            store.tenant(f"t{number}").append_message("c", "user", "x")
        backend = store.backend
        assert isinstance(backend, FilesBackend)
        assert [len(cache.values()) for cache in (backend.storage.common.journals, backend.storage.common.spaces)] == [
            1,
            1,
        ]
        assert kit.contents(store, "c3") == ["in 3", "more"]
        assert len(store.admin.tenants()) == 21


@pytest.fixture
def long_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checkpoint, "WORTH", 1000)
    with kit.connect(tmp_path, Clock()) as store:
        for number in range(30):
            store.append("c", [Message("user", f"{number}.{part}", id=f"{number}.{part}") for part in range(3)])
        store.branch("c", at="10.0", branch_id="b")
        store.append_message("c", "user", "aside", participant={"kind": "user", "id": "p"}, metadata={"big": 2**70})
        store.add_summary("c", "s", from_seq=1, to_seq=3)
        store.update_message("c", "7.1", pinned=True)
        store.update_conversation("c", metadata={"big": 2**80})
    return tmp_path


def test_the_index_of_a_long_journal_is_written_down(long_journal: Path) -> None:
    saved = long_journal / "default" / "_cache" / "index" / "c.index"
    assert saved.exists()
    with kit.connect(long_journal, Clock()) as store:
        expected = state(store)
        store.append_message("c", "user", "more")
        changed = state(store)
    with kit.connect(long_journal, Clock()) as store:
        assert state(store) == changed != expected
        store.append_message("c", "user", "and more", id="0.0")
        assert state(store) == changed, "it knows the ids"
        assert [message.id for message in store.get_messages("c", pinned=True)] == ["7.1"]
    index = checkpoint.load(saved)
    assert index is not None
    assert len(index.places) == 91


@pytest.mark.parametrize("how", ["damaged", "empty", "of another file", "gone"])
def test_an_index_that_does_not_fit_is_not_used(long_journal: Path, how: str) -> None:
    saved = long_journal / "default" / "_cache" / "index" / "c.index"
    with kit.connect(long_journal, Clock()) as store:
        expected = state(store)
    if how == "damaged":
        damage(saved)
    elif how == "empty":
        saved.write_bytes(b"")
    elif how == "gone":
        saved.unlink()
    else:
        path = kit.journal(long_journal, "c")
        content = path.read_bytes()
        path.unlink()
        (long_journal / "hold").touch()
        path.write_bytes(content)
    with kit.connect(long_journal, Clock()) as store:
        assert state(store) == expected


def test_a_damaged_journal_is_noticed_behind_its_index(long_journal: Path) -> None:
    path = kit.journal(long_journal, "c")
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content.replace(b'"20.1"', b'"20.7"'))
    with kit.connect(long_journal) as store:
        assert store.get_messages("c", last=2, branch="main")
        with pytest.raises(Exception, match="line 21") as caught:
            kit.contents(store, "c", branch="main")
        assert type(caught.value).__name__ == "Corrupt"
        assert store.check() != []


def test_a_writer_begins_with_the_index_too(long_journal: Path) -> None:
    path = kit.journal(long_journal, "c")
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(content.replace(b'"20.1"', b'"20.7"'))
    with kit.connect(long_journal) as store:
        store.append_message("c", "user", "more")
        assert kit.contents(store, "c")[-1] == "more", "what lies before was not read"


def test_a_deleted_summary_is_in_no_index(long_journal: Path) -> None:
    with kit.connect(long_journal, Clock()) as store:
        store.add_summary("c", "She told her PIN. " * 100, from_seq=1, to_seq=3, branch="main")
    assert b"PIN" in (long_journal / "default" / "_cache" / "index" / "c.index").read_bytes()
    with kit.connect(long_journal, Clock()) as store:
        store.delete_message("c", "0.0")
        assert b"PIN" not in kit.everything(long_journal)
    assert b"PIN" not in kit.everything(long_journal)


DELETIONS: dict[str, Callable[[sync.Store], object]] = {
    "a summary": lambda store: store.delete_message("c", "0.0"),
    "the conversation": lambda store: store.delete_conversation("c"),
    "the tenant": lambda store: store.admin.delete_tenant("default"),
}


@pytest.mark.parametrize("how", DELETIONS)
def test_what_others_delete_comes_back_into_no_index(long_journal: Path, how: str) -> None:
    """Neither when who remembers it closes, nor when somebody was about to write it down."""
    with kit.connect(long_journal, Clock()) as store:
        store.add_summary("c", "She told her PIN. " * 100, from_seq=1, to_seq=3, branch="main")
        with kit.connect(long_journal, Clock()) as other:
            DELETIONS[how](other)
        assert b"PIN" not in kit.everything(long_journal)
    assert b"PIN" not in kit.everything(long_journal)


@pytest.mark.parametrize("how", DELETIONS)
def test_who_reads_while_it_is_deleted_writes_nothing_down(
    long_journal: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with kit.connect(long_journal, Clock()) as store:
        store.add_summary("c", "She told her PIN. " * 100, from_seq=1, to_seq=3, branch="main")
    shutil.rmtree(long_journal / "default" / "_cache")
    save = checkpoint.save

    def late(*args: Any) -> None:
        monkeypatch.setattr(checkpoint, "save", save)
        with kit.connect(long_journal, Clock()) as other:
            DELETIONS[how](other)
        save(*args)

    monkeypatch.setattr(checkpoint, "save", late)
    with kit.connect(long_journal, Clock()) as store:
        assert store.get_messages("c", last=1), "it had the journal open"
        assert b"PIN" not in kit.everything(long_journal)
    assert (long_journal / "default").exists() == (how != "the tenant")


def test_an_index_that_outlived_its_journal_goes(long_journal: Path) -> None:
    saved = long_journal / "default" / "_cache" / "index" / "c.index"
    index = saved.read_bytes()
    with kit.connect(long_journal, Clock()) as store:
        store.append_message("d", "user", "x")
        store.delete_conversation("c")
        saved.write_bytes(index)
        store.purge()
        assert not saved.exists()
        saved.write_bytes(index)
        store.append_message("c", "user", "another of this name")
        assert not saved.exists()


def test_a_purge_takes_what_the_catalogue_says_of_the_gone(tmp_path: Path) -> None:
    fill(tmp_path)
    catalog = tmp_path / "default" / "_cache" / "catalog.json"
    assert b'"c7"' in catalog.read_bytes()
    with kit.connect(tmp_path, Clock()) as store:
        store.delete_conversation("c7")
        store.purge()
        assert b'"c7"' not in kit.everything(tmp_path)
    assert b'"c7"' not in kit.everything(tmp_path)
    assert b'"c8"' in catalog.read_bytes(), "it was written again"


def test_a_process_that_ends_later_brings_back_nothing_of_the_gone(tmp_path: Path) -> None:
    fill(tmp_path)
    catalog = tmp_path / "default" / "_cache" / "catalog.json"
    catalog.unlink()
    with kit.connect(tmp_path, Clock()) as store:
        store.list_conversations()
        with kit.connect(tmp_path, Clock()) as other:
            other.delete_conversation("c7")
            other.purge()
        catalog.unlink(missing_ok=True)
    assert b'"c8"' in catalog.read_bytes()
    assert b'"c7"' not in kit.everything(tmp_path)


def test_an_erased_user_is_in_no_catalogue(tmp_path: Path) -> None:
    fill(tmp_path)
    assert b'"u1"' in kit.everything(tmp_path)
    with kit.connect(tmp_path, Clock()) as store:
        store.erase_user("u1")
        assert b'"u1"' not in kit.everything(tmp_path)
    assert b'"u1"' not in kit.everything(tmp_path)
