"""Promises 1 and 12: acknowledged writes are stored, and corrupt data is reported, never skipped."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import Corrupt, HansardError
from hansard.model import Message, Usage
from hansard.testing import processes
from hansard.testing.clock import Clock
from hansard.testing.comparison import state
from hansard.testing.contract.base import (
    Contract,
    assert_exact,
    history,
    races,
    require,
    require_folder,
    require_url,
    say,
)
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver, Mode, Target


def fill(store: Driver) -> None:
    """Stores some data of every kind."""
    messages = say(store, "c", "a", {"b": [1, None]}, picture(1), user_id="u", title="T", metadata={"k": 1})
    store.append("c", Message("assistant", "x", usage=Usage(1, 2, model="m")))
    store.update_message("c", messages[0].id, content="changed")
    store.delete_message("c", messages[1].id)
    store.add_summary("c", "short", from_seq=messages[0].seq, to_seq=messages[0].seq)
    if store.capabilities.branches:
        store.branch("c", at=messages[2].id, branch_id="side")
        say(store, "c", "s")
    if store.capabilities.records:
        store.records.put(["n"], "k", {"v": 1}, conversation_id="c")
        store.records.put(["n"], "l", b"bytes")
    say(store, "archived", "x", "y")
    store.update_conversation("archived", archived=True)
    store.pop_message("archived")


@races
class TestDurability(Contract):
    needs = ("durability",)

    def test_a_reopened_store_has_everything(self, target: Target, store: Driver, mode: Mode, clock: Clock) -> None:
        fill(store)
        fill(store.tenant("acme"))
        before = state(store)
        store.close()
        again = target.open(mode, clock=clock)
        assert state(again) == before
        assert_exact(again, "c")

    def test_writes_are_durable_without_closing(self, target: Target, store: Driver, clock: Clock) -> None:
        # The first handle stays open: acknowledged writes must not depend on closing it.
        require(store, "shared")
        fill(store)
        assert state(target.open("blocking", clock=clock)) == state(store)

    def test_seq_and_tombstones_survive_reopening(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        require(store, "our ids")
        store.append("c", [Message("user", "x", id="m"), Message("user", "y", id="n")])
        last = store.get_message("c", "n").seq
        store.delete_messages("c", ["m", "n"])
        store.close()
        again = target.open(mode, clock=clock)
        with pytest.raises(HansardError, match="deleted"):
            again.append("c", Message("user", "x", id="m"))
        assert say(again, "c", "z")[0].seq > last

    def test_a_killed_writer_loses_nothing(self, target: Target, store: Driver, mode: Mode) -> None:
        require(store, "shared")
        require_url(target)
        store.close()
        assert processes.crash(target, kills=4, seed=1) > 0
        history(target.open(mode), "c")

    def test_messages_are_in_the_files_when_append_returns(self, target: Target, store: Driver) -> None:
        # Reads the files directly, because the store may answer from a cache.
        require_folder(target)
        say(store, "c", "words-xyzzy")
        assert b"words-xyzzy" in target.raw()


class TestCorruption(Contract):
    needs = ("durability",)

    def test_reading_a_corrupt_message_raises_corrupt(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        require_folder(target)
        say(store, "c", "before", {"k": "damaged-xyzzy"}, "after")
        say(store, "sound", "x")
        store.close()
        if not target.damage(b'"damaged-xyzzy"', b'"damaged-xyzzy:'):
            pytest.skip("its content is not readable without the backend")
        # Either opening or reading must raise; neither may skip or invent messages.
        with pytest.raises(Corrupt):
            history(target.open(mode, clock=clock), "c")

    @pytest.mark.parametrize("how", ["get", "message", "export", "check"])
    def test_a_corrupt_blob_is_reported(
        self, target: Target, store: Driver, mode: Mode, clock: Clock, how: str
    ) -> None:
        require(store, "blobs")
        require_folder(target)
        data = b"damaged-xyzzy" * 300
        say(store, "c", {"image": base64.b64encode(data).decode()})
        (message,) = store.get_messages("c", blobs="refs")
        store.close()
        if not target.damage(b"damaged-xyzzy", b"damaged-xyzzz"):
            pytest.skip("its content is not readable without the backend")
        again = target.open(mode, clock=clock)
        if how == "check":
            assert message.blobs[0].sha256 in str(again.check())
            return
        read: dict[str, Callable[[], Any]] = {
            "get": lambda: again.blobs.get(message.blobs[0].sha256),
            "message": lambda: again.get_messages("c"),
            "export": lambda: list(again.export()),
        }
        with pytest.raises(Corrupt, match=message.blobs[0].sha256):
            read[how]()

    def test_check_finds_a_corrupt_message(self, target: Target, store: Driver, mode: Mode, clock: Clock) -> None:
        require_folder(target)
        say(store, "c", "before", {"k": "damaged-xyzzy"}, "after")
        say(store, "sound", "x")
        store.close()
        if not target.damage(b'"damaged-xyzzy"', b'"damaged-xyzzy:'):
            pytest.skip("its content is not readable without the backend")
        again = target.open(mode, clock=clock)
        assert again.check() != []
        assert history(again, "sound") == ["x"], "the rest can still be read"
