"""Promise 12 under random damage: whatever is wrong with its files, a store says so by an error of Hansard's, and ends.

The suite tries a few seeds. `HANSARD_DAMAGES=1000` tries that many of each backend.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hansard import sync
from hansard.errors import HansardError
from hansard.model import Message, Participant, Usage
from hansard.testing.contract.blobs import picture

COUNT = int(os.environ.get("HANSARD_DAMAGES", "12"))
SEEDS = sorted({*range(COUNT), 53, 82, 213, 243, 559, 787})
"""The others once found a defect."""
SECONDS = 60
"""An operation that takes longer, on a store as small as this, does not end."""
PAGE = 4096

URLS = {"sqlite": "sqlite:///{}/store.db", "file": "file://{}/store"}


def fill(url: str) -> None:
    with sync.connect(url) as store:
        for number in range(12):
            who = Participant("user", f"u{number % 3}", display_name="Ada")
            batch = [
                Message("user", f"Where is parcel {number}-{each}?", participant=who, usage=Usage(3, 4, model="m"))
                for each in range(8)
            ]
            store.append(f"c{number}", batch, user_id=f"u{number % 3}", title=f"Title {number}", metadata={"k": number})
        store.append("c1", Message("user", picture(1), id="picture"))
        branch = store.branch("c2", at=store.get_messages("c2")[3].id)
        store.append("c2", [Message("assistant", "another way")], branch=branch.id)
        store.add_summary("c3", "short", from_seq=1, to_seq=4)
        store.records.put(["n", "m"], "k", {"a": [1, 2]}, conversation_id="c4")
        store.user("u1").records.put(["n"], "k", b"bytes")
        store.delete_message("c5", store.get_messages("c5")[2].id)
        store.append("gone", Message("user", "x"), expires_at=datetime.now(UTC) - timedelta(days=1))
        store.tenant("acme").append("c0", [Message("user", "of acme")])
        list(store.admin.reindex())


# Kinds of damage: each changes the bytes of one file.


def flip(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 1, 3, 20))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def zero(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(0, len(data), _block(data))
    data[at : at + _block(data)] = bytes(len(data[at : at + _block(data)]))


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def swap(data: bytearray, dice: random.Random) -> None:
    size = _block(data)
    one, other = (dice.randrange(len(data) // size) * size for _ in range(2))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def scribble(data: bytearray, dice: random.Random) -> None:
    at, size = dice.randrange(len(data)), dice.choice((1, 8, 64))
    data[at : at + size] = dice.randbytes(len(data[at : at + size]))


def _block(data: bytearray) -> int:
    return PAGE if len(data) > 8 * PAGE else max(1, len(data) // 8)


KINDS: tuple[Callable[[bytearray, random.Random], None], ...] = (flip, zero, cut, swap, scribble)


def damage(folder: Path, dice: random.Random) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path, kind = dice.choice(files), dice.choice(KINDS)
    data = bytearray(path.read_bytes())
    kind(data, dice)
    path.write_bytes(data)
    return f"{kind.__name__} of {path.relative_to(folder)}"


# What is done with the damaged store


def listed(store: sync.Store) -> None:
    for tenant in store.admin.tenants():
        view = store.tenant(tenant)
        view.list_conversations(limit=100, archived=None)
        view.list_conversations(limit=100, sort="updated_at", order="asc")


def read(store: sync.Store) -> None:
    for number in range(12):
        store.get_messages(f"c{number}", last=50)
        list(store.iter_messages(f"c{number}"))
        store.list_summaries(f"c{number}")
        store.list_branches(f"c{number}")
    store.window("c2", messages=5)


def read_records(store: sync.Store) -> None:
    list(store.records.iter())
    store.user("u1").records.get(["n"], "k")


def searched(store: sync.Store) -> None:
    store.search("parcel", limit=50)
    store.search('"another way" OR short', order="newest")


def exported(store: sync.Store) -> None:
    for _ in store.export():
        pass


def measured(store: sync.Store) -> None:
    store.stats()
    store.usage()
    store.admin.stats()


def checked(store: sync.Store) -> None:
    list(store.admin.check())


def written(store: sync.Store) -> None:
    store.append("c6", [Message("user", "once more", id="new")])
    store.erase_user("u2")
    store.purge(timedelta(days=1))


READS: tuple[Callable[[sync.Store], Any], ...] = (checked, listed, read, read_records, searched, exported, measured)


@contextmanager
def bounded(what: str) -> Iterator[None]:
    def over(*_: Any) -> None:
        raise AssertionError(f"{what} does not end")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def use(url: str, where: str) -> None:
    """Any error but one of Hansard's fails the test, and so does an operation that does not end."""
    try:
        with bounded(f"opening after {where}"):
            store = sync.connect(url)
    except HansardError:
        return
    try:
        for operation in (*READS, written):
            try:
                with bounded(f"{operation.__name__} after {where}"):
                    operation(store)
            except HansardError:
                continue
    finally:
        with bounded(f"closing after {where}"):
            store.close()


@pytest.fixture(scope="module", params=URLS)
def pristine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    fill(URLS[request.param].format(folder))
    return URLS[request.param], folder


def test_random_damage_is_reported_and_ends(pristine: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = pristine
    for seed in SEEDS:
        dice = random.Random(seed)
        copy = tmp_path / str(seed)
        shutil.copytree(folder, copy)
        where = f"seed {seed}: {damage(copy, dice)}"
        try:
            use(url.format(copy), where)
        except Exception as error:
            raise AssertionError(f"{where} of {url}: {error!r}") from error
        shutil.rmtree(copy)
