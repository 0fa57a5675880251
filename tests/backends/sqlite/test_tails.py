"""The rows that are kept for those who read the newest messages again: nothing of it may change what is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard.sync
from hansard.backends.sqlite import tail_cache
from hansard.backends.sqlite.tail_cache import AddedRows, CachedTail, TailCache
from hansard.errors import Conflict
from hansard.model import Message

Stores = tuple[hansard.sync.Store, hansard.sync.Store]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    # Another durability is another engine: as another process would be.
    with hansard.sync.connect(url) as one, hansard.sync.connect(f"{url}?durability=normal") as two:
        yield one, two


def newest(store: hansard.sync.Store, count: int = 5, id: str = "c") -> list[str]:
    return [message.text for message in store.get_messages(id, last=count)]


def stored(store: hansard.sync.Store, count: int = 5, id: str = "c") -> list[str]:
    """The same, by a way that never takes kept rows."""
    return [message.text for message in store.iter_messages(id)][-count:]


def test_what_one_appends_the_other_reads(stores: Stores) -> None:
    for number in range(30):
        stores[number % 3 % 2].append_message("c", "user", f"{number}", metadata={"n": number})
        for store in stores:
            assert newest(store) == [f"{each}" for each in range(max(0, number - 4), number + 1)]
            assert [message.metadata for message in store.get_messages("c", last=2)][-1] == {"n": number}


CHANGES: dict[str, Callable[[hansard.sync.Store], object]] = {
    "update": lambda store: store.update_message("c", "m7", content="other"),
    "delete": lambda store: store.delete_message("c", "m7"),
    "pop": lambda store: store.pop_message("c"),
    "clear": lambda store: store.clear_messages("c"),
    "replace": lambda store: store.replace_messages("c", [Message("user", "alone")]),
    "branch": lambda store: store.branch("c", at="m3"),
    "empty branch": lambda store: store.branch("c", empty=True),
    "delete conversation": lambda store: store.delete_conversation("c"),
    "begin anew": lambda store: (store.delete_conversation("c"), store.append_message("c", "user", "anew")),
    "title": lambda store: store.update_conversation("c", title="a title"),
    "in progress": lambda store: store.append_message("c", "assistant", "He", status="in_progress", id="p"),
    "retry": lambda store: store.append("c", [Message("user", "text 9", id="m9")]),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("who", [0, 1])
def test_every_change_is_seen_by_all(stores: Stores, what: str, who: int) -> None:
    stores[0].append("c", [Message("user", f"text {number}", id=f"m{number}") for number in range(10)])
    for store in stores:
        newest(store)
    CHANGES[what](stores[who])
    for store in stores:
        for count in (1, 5, 20):
            assert newest(store, count) == stored(store, count)
    stores[1].append_message("c", "user", "after it")
    for store in stores:
        assert newest(store) == stored(store)
        assert newest(store, 1) == ["after it"]


@pytest.mark.parametrize("who", [0, 1])
def test_a_message_in_progress_is_always_read_from_the_file(stores: Stores, who: int) -> None:
    stores[0].append("c", [Message("user", "Hello"), Message("assistant", "", id="p", status="in_progress")])
    for text in ("He", "Hell", "Hello"):
        for store in stores:
            newest(store)
        # A flush, which gives the conversation no new version.
        stores[who].update_message("c", "p", content=text)
        for store in stores:
            assert newest(store) == ["Hello", text]
    stores[who].update_message("c", "p", status="complete")
    for store in stores:
        assert [message.status for message in store.get_messages("c", last=2)] == ["complete", "complete"]


def test_what_was_refused_is_not_kept(stores: Stores) -> None:
    store = stores[0]
    store.append("c", [Message("user", "first", id="a"), Message("user", "second", id="b")])
    newest(store)
    with pytest.raises(Conflict):
        store.append("c", [Message("user", "new"), Message("user", "another", id="a")], on_duplicate="error")
    with pytest.raises(Conflict):
        store.append_message("c", "user", "too late", expected_version=0)
    assert newest(store) == ["first", "second"]


def test_what_is_given_away_can_be_changed(stores: Stores) -> None:
    content = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    stores[0].append_message("c", "user", content, format="openai.responses", metadata={"deep": {"kind": "chat"}})
    for _ in range(3):
        (message,) = stores[0].get_messages("c", last=5)
        assert message.content == content
        assert message.metadata == {"deep": {"kind": "chat"}}
        message.content["content"][0]["text"] = "changed"
        message.metadata["deep"]["kind"] = "changed"


def test_a_copy_that_is_not_done_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    with (
        hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as source,
        hansard.sync.connect(f"sqlite:///{tmp_path / 'b.db'}") as target,
    ):
        for number in range(300):
            source.append_message("c", "user", f"{number}")
        source.copy_to(target)
        assert newest(target) == stored(source)
        source.append_message("c", "user", "more")
        assert newest(target) == stored(target)


def test_blobs_of_kept_rows_are_put_back(stores: Stores) -> None:
    url = "data:image/png;base64," + "QUJD" * 5000
    stores[0].append_message("c", "user", [{"type": "image", "url": url}], format="parts")
    for _ in range(3):
        assert stores[0].get_messages("c", last=5)[0].content == [{"type": "image", "url": url}]


def row(key: int, body: str = "", extra: str | None = None) -> tuple[object, ...]:
    return key, f"m{key}", "user", None, body, 0, extra


def test_rows_are_found_only_at_the_same_version_and_seq() -> None:
    kept = TailCache()
    kept.keep(1, CachedTail((3, 5), [row(5), row(4)], whole=False), 10)
    assert kept.find(1, (3, 5), 2) == [row(5), row(4)]
    assert kept.find(1, (3, 5), 1) == [row(5)]
    for segment, at, wanted in ((1, (3, 5), 3), (1, (4, 5), 1), (1, (3, 6), 1), (2, (3, 5), 1)):
        assert kept.find(segment, at, wanted) is None
    kept.keep(1, CachedTail((3, 5), [row(5)], whole=True), 10)
    assert kept.find(1, (3, 5), 100) == [row(5)]


def test_what_is_added_must_follow_what_is_kept() -> None:
    kept = TailCache()
    kept.add(AddedRows(1, (3, 5), (4, 6), [row(6)], 10))
    assert 1 not in kept
    kept.keep(1, CachedTail((3, 5), [row(5)], whole=True), 10)
    kept.add(AddedRows(1, (3, 5), (4, 7), [row(7), row(6)], 10))
    assert kept.find(1, (4, 7), 10) == [row(7), row(6), row(5)]
    kept.add(AddedRows(1, (4, 6), (5, 8), [row(8)], 10))
    assert 1 not in kept
    kept.keep(1, CachedTail((3, 5), [row(5), row(4)], whole=False), 10)
    kept.add(AddedRows(1, (3, 5), (4, 6), [row(6)], 10))
    assert kept.find(1, (4, 6), 2) == [row(6), row(5)]
    kept.add(AddedRows(1, (4, 6), (5, 9), [row(9), row(8), row(7)], 10))
    assert kept.find(1, (5, 9), 2) == [row(9), row(8)]
    assert kept.find(1, (5, 9), 3) is None
    kept.keep(1, CachedTail((3, 5), [row(5)], whole=True), 10)
    kept.add(AddedRows(1, (3, 5), (4, 6), [row(6, extra='{"status":"in_progress"}')], 10))
    assert 1 not in kept


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_cache, "_MOST_TAILS", 3)
    monkeypatch.setattr(tail_cache, "_MOST_ROWS", 4)
    monkeypatch.setattr(tail_cache, "_MOST_BYTES", 1000)
    kept = TailCache()
    for segment in range(5):
        kept.keep(segment, CachedTail((1, 1), [row(1)], whole=True), 10)
    assert [segment for segment in range(5) if segment in kept] == [2, 3, 4]
    for seq in range(2, 8):
        kept.add(AddedRows(2, (seq - 1, seq - 1), (seq, seq), [row(seq)], 10))
    assert kept.find(2, (7, 7), 4) == [row(7), row(6), row(5), row(4)]
    assert kept.find(2, (7, 7), 5) is None
    kept.keep(9, CachedTail((1, 1), [row(1)], whole=True), 10)
    assert [segment for segment in range(10) if segment in kept] == [2, 4, 9]
    kept.keep(4, CachedTail((1, 5), [row(each) for each in range(5)], whole=True), 10)
    kept.add(AddedRows(9, (1, 1), (2, 2), [row(2)], 600))
    assert [segment for segment in range(10) if segment in kept] == [2]
    kept.keep(2, CachedTail((8, 8), [row(8), row(7, extra="x" * 500)], whole=False), 10)
    assert 2 not in kept
    kept.keep(2, CachedTail((8, 8), [row(8, extra="x" * 400)], whole=True), 10)
    kept.add(AddedRows(2, (8, 8), (9, 9), [row(9, extra="x" * 490)], 10))
    assert kept.find(2, (9, 9), 2) is not None
    kept.add(AddedRows(2, (9, 9), (10, 10), [row(10)], 10))
    assert 2 not in kept
    kept.keep(2, CachedTail((8, 8), [row(8)], whole=True), 10)
    kept.clear()
    assert 2 not in kept


def test_readers_beside_writers_miss_nothing_and_see_no_gap(stores: Stores) -> None:
    """Two engines append, in threads, while others read: whatever was acknowledged before a read is in it."""
    acknowledged = [0]
    wrong: list[object] = []
    done = threading.Event()

    def read(store: hansard.sync.Store) -> None:
        while not done.is_set() and not wrong:
            least = acknowledged[0]
            seqs = [message.seq for message in store.get_messages("c", last=20)]
            if seqs != list(range(max(1, seqs[-1] - 19), seqs[-1] + 1)) or seqs[-1] < least:
                wrong.append((least, seqs))

    stores[0].append_message("c", "user", "first")
    readers = [threading.Thread(target=read, args=(store,)) for store in (*stores, *stores)]
    for reader in readers:
        reader.start()
    try:
        for number in range(200):
            appended = stores[number % 5 == 0].append("c", [Message("user", f"{number}")])
            acknowledged[0] = appended.messages[0].seq
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert acknowledged == [201]
