"""The storage under operations: what it locks, when it creates files, and when it runs an operation again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.backends.files import kit

from hansard import NotFound, sync
from hansard.backends.files import FilesStorage
from hansard.blocking import run_to_end
from hansard.contract.storage import Transaction
from hansard.contract.types import Append, Context, Draft, NewConversation, RecordWrite
from hansard.errors import Unsupported
from hansard.model import NOT_YET, Appended, Message
from hansard.rules import operations

CONTEXT = Context("default", NOT_YET)


def storage_of(store: sync.Store) -> FilesStorage:
    storage = store.backend.storage  # type: ignore[attr-defined]
    assert isinstance(storage, FilesStorage)
    return storage


def hello(id: str) -> Append:
    return Append((Draft(Message("user", "hello", id, format="text"), "hello", 5, True),), NewConversation())


def test_a_refused_operation_creates_no_files(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(NotFound):
            store.update_conversation("c", title="x")
        assert sorted(tmp_path.rglob("*")) == before, "not even a tenant"
        store.append_message("c", "user", "x")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(NotFound):
            store.update_conversation("d", title="x")
        assert sorted(tmp_path.rglob("*")) == before


def test_an_operation_overtaken_by_a_creation_runs_again(tmp_path: Path) -> None:
    states: list[Any] = []

    with kit.connect(tmp_path) as store, kit.connect(tmp_path) as other:

        async def append(tx: Transaction) -> Appended:
            states.append(tx.state)
            if tx.state is None:
                other.append_message("c", "user", "first", id="first")
            return await operations.append(tx, hello("second"))

        appended = run_to_end(storage_of(store).write(CONTEXT, "c", append))
        assert [state is None for state in states] == [True, False]
        assert (appended.created, [message.seq for message in appended.messages]) == (False, [2])
        assert kit.contents(store, "c") == ["first", "hello"]


def test_records_cannot_commit_with_an_append(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        append = partial(operations.append, append=structs.replace(hello("1"), records=(RecordWrite(("n",), "k", 1),)))
        with pytest.raises(Unsupported, match="write_records"):
            run_to_end(storage_of(store).write(CONTEXT, "c", append))
        assert store.get_conversation("c") is None
