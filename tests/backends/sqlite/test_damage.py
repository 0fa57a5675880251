"""Damage of one kind each: what is said about it, and where."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hansard import Corrupt, FormatMismatch, Message, connect, sync
from hansard.backends.sqlite import SqliteBackend
from hansard.backends.sqlite.rows import pack
from hansard.contract.storage import Transaction
from hansard.contract.types import Context

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with sync.connect(f"sqlite:///{path}") as store:
        store.append("c", [Message("user", f"message {number}", id=f"m{number}") for number in range(8)])
    return path


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def root_page(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return int(number)


def use(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as store:
        store.get_messages("c")
        store.search("message")


@pytest.mark.parametrize("table", ["search_state", "migrations", "conversations", "search_rows"])
def test_a_lost_page_is_corrupt(path: Path, table: str) -> None:
    overwrite(path, (root_page(path, table) - 1) * PAGE, bytes(PAGE))
    with pytest.raises(Corrupt) as caught:
        use(path)
    assert caught.value.where == str(path)
    assert "restore a backup" in str(caught.value)


def test_a_lost_row_is_corrupt(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM search_state")
        connection.commit()
    with pytest.raises(Corrupt, match="other values"):
        use(path)


def test_a_schema_that_is_no_text_is_corrupt(path: Path) -> None:
    overwrite(path, path.read_bytes().index(b"CREATE TABLE conversations"), bytes([0xF3] * 4))
    with pytest.raises(Corrupt):
        use(path)


@pytest.mark.parametrize(("at", "what"), [(0, "SQLite's mark"), (16, "the size of a page"), (68, "our mark")])
def test_a_damaged_header_is_corrupt(path: Path, at: int, what: str) -> None:
    overwrite(path, at, bytes([1, 1]))
    with pytest.raises(Corrupt):
        use(path)


def test_a_lost_first_page_is_no_store_any_longer(path: Path) -> None:
    overwrite(path, 0, bytes(PAGE))
    with pytest.raises(FormatMismatch, match="first page"):
        use(path)


def test_tables_that_are_gone_are_not_made_anew(path: Path) -> None:
    # Page 1 says that it has no cells: an empty list of tables.
    overwrite(path, 103, bytes(2))
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="damaged"):
        use(path)
    assert path.read_bytes() == before


def varint(number: int) -> bytes:
    made = [number & 0x7F]
    while number := number >> 7:
        made.append(number & 0x7F | 0x80)
    return bytes(reversed(made))


def test_an_export_of_messages_out_of_order_ends(path: Path) -> None:
    # The last message gets the place of the second: whoever asks for what comes after it is told the same for ever.
    last, second = varint(pack(1, 8)), varint(pack(1, 2))
    content = path.read_bytes()
    assert (content.count(last), len(last)) == (1, len(second))
    path.write_bytes(content.replace(last, second))
    with sync.connect(f"sqlite:///{path}") as store:
        with pytest.raises(Corrupt, match="order of seq"):
            list(store.export())
        assert store.check() != []


def test_a_check_of_conversations_out_of_order_ends(path: Path) -> None:
    with sync.connect(f"sqlite:///{path}") as store:
        for id in ("d", "e"):
            store.append_message(id, "user", "hello")
    page = (root_page(path, "conversations") - 1) * PAGE
    content = path.read_bytes()
    # The place of the last of three cells: it begins with its size in one byte, and its row's number in another.
    last = page + int.from_bytes(content[page + 12 : page + 14])
    assert content[last + 1] == 3
    overwrite(path, last + 1, bytes([1]))
    with sync.connect(f"sqlite:///{path}") as store:
        assert any("order" in problem.what for problem in store.check())


def test_errors_of_our_own_are_not_the_files(path: Path) -> None:
    """A fault of ours, or a value of a caller's, is raised as it is: nobody restores a backup for it."""

    async def broken(tx: Transaction) -> None:
        raise TypeError("a fault of ours")

    async def play() -> None:
        async with connect(f"sqlite:///{path}") as store:
            backend = store.backend
            assert isinstance(backend, SqliteBackend)
            context = Context("default", datetime.now(UTC))
            with pytest.raises(TypeError, match="of ours"):
                await backend.storage.write(context, "c", broken)
            with pytest.raises(OverflowError):
                await backend.storage.rows(context, "c", 1 << 70, 10, 10)
            assert await store.check() == []

    asyncio.run(play())


def test_text_that_is_no_utf_8_is_corrupt(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"message 3", b"message " + bytes([0xFF])))
    with sync.connect(f"sqlite:///{path}") as store:
        with pytest.raises(Corrupt, match="UTF-8"):
            store.get_messages("c")
        assert store.check() != []
