"""What a call costs depends on what it is about, not on what else is stored: counted in steps of SQLite's machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import hansard.sync
from hansard import Message, Participant, Usage
from hansard.backends.sqlite import index, schema

C = TypeVar("C", bound=sqlite3.Connection)

OWN = 3
"""Conversations of a user."""
_EVERY = 10
"""Steps that are counted as one."""

CALLS: dict[str, Callable[[hansard.sync.Store], object]] = {
    "append": lambda store: store.append_message("c1", "user", "one more"),
    "last 50": lambda store: store.get_messages("c1", last=50),
    "list": lambda store: store.list_conversations(limit=5),
    "list of a user": lambda store: store.list_conversations(user_id="u1", limit=5),
    "list of archived": lambda store: store.list_conversations(archived=True, limit=5),
    "list of archived by update": lambda store: store.list_conversations(archived=True, sort="updated_at", limit=5),
    "search newest": lambda store: store.search("zanzibar", order="newest"),
    "search by relevance after a write": lambda store: store.search("zanzibar", order="relevance"),
    "tenants": lambda store: store.admin.tenants(),
    "statistics of another tenant": lambda store: store.tenant("acme").stats(),
    "usage of a user": lambda store: store.user("u1").usage(),
    "deletion of another tenant": lambda store: store.admin.delete_tenant("acme"),
    "erase of a user": lambda store: store.erase_user("u1"),
}


class Steps:
    """Counts the steps of all connections that are opened to any file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        original = schema.connect

        def connect(path: Path, durability: str, kind: type[C], *, readonly: bool = False) -> C:
            connection = original(path, durability, kind, readonly=readonly)
            connection.set_progress_handler(self._step, _EVERY)
            return connection

        monkeypatch.setattr(schema, "connect", connect)

    def _step(self) -> int:
        self._count += 1
        return 0

    def of(self, call: Callable[[], object]) -> int:
        before = self._count
        call()
        return self._count - before


def fill(store: hansard.sync.Store, users: int) -> None:
    """Stores as much of every user: conversations, messages in those of another, usage, another tenant's branch."""
    for number in range(users * OWN):
        user, guest = f"u{number % users}", f"u{(number + 1) % users}"
        said = [Message("assistant", f"the river of {number}", usage=Usage(5, 5, model="m"))]
        said += [Message("user", f"and {guest} says {n}", participant=Participant("user", guest)) for n in range(5)]
        store.append(f"c{number}", said, user_id=user)
        store.tenant("forks").append_message(f"c{number}", "user", "of another tenant")
        store.tenant("forks").branch(f"c{number}")
    store.append_message("rare", "user", "zanzibar")
    store.update_conversation("rare", archived=True)
    store.search("zanzibar")


def costs(steps: Steps, path: Path, users: int) -> dict[str, int]:
    with hansard.sync.connect(f"sqlite:///{path}") as store:
        fill(store, users)
        return {name: steps.of(lambda call=call: call(store)) for name, call in CALLS.items()}  # type: ignore[misc]


def test_no_call_grows_with_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SMALL", 0)  # a small index is rewritten by a deletion, a large one is not
    steps = Steps(monkeypatch)
    small, large = (costs(steps, tmp_path / f"{users}.db", users) for users in (10, 200))
    # Twenty times as much is stored. Trees get a little deeper.
    grown = {name: (small[name], large[name]) for name in CALLS if large[name] > 1.3 * small[name] + 10}
    assert grown == {}
