"""Backups on a schedule: verified by restoring, kept in number, and harmless when their target is away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.contract.backends import BACKENDS, BY_URL
from tests.server.test_server import serving as serving_process
from tests.servers import s3
from tests.wait import PATIENCE, until

import hansard
from hansard import Corrupt, Store, Unavailable, Unsupported, ValidationError, sync
from hansard.backends.none import NoneBackend
from hansard.server.backups import BACKUPS, Backups, FolderTarget
from hansard.server.schedule import repeating

needs_s3 = pytest.mark.skipif(s3.why_absent() is not None, reason=f"no S3: {s3.why_absent()}")


def with_store(folder: Path, use: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{folder}/chats.db") as store:
            await store.append_message("order-17", "user", "Where is my order?")
            await use(store)

    asyncio.run(run())


def test_a_server_backs_up_and_the_backup_is_restored(shell: Shell) -> None:
    folder = shell.folder / "backups"
    folder.mkdir()
    shell("append", "c", "user", "hello", "--url", "sqlite:///chats.db")
    options = ("--backup-to", "backups", "--backup-every", "1s", "--backup-keep", "2", "--workers", "2")
    with serving_process(shell.folder, "sqlite:///chats.db", *options) as (_, process):
        until(lambda: len(list(folder.glob("hansard-*.db"))) >= 2)
        first = min(folder.glob("hansard-*.db"))
        until(lambda: not first.exists())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
    made = sorted(folder.glob("hansard-*.db"))
    with sync.connect(f"sqlite:///{shell.folder}/chats.db") as store:
        last = store.records.get(BACKUPS, "last")
        assert last is not None
        assert last.value["name"] >= made[0].name
    shell("restore", str(made[0]), "--url", "sqlite:///restored.db")
    with sync.connect(f"sqlite:///{shell.folder}/restored.db") as store:
        assert [message.text for message in store.get_messages("c")] == ["hello"]


@needs_s3
def test_backups_in_a_bucket_are_verified_and_kept_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.SECRET)
    with s3.running(tmp_path / "s3", "bucket") as endpoint:
        where = f"s3://bucket/hansard?endpoint={endpoint}&region=us-east-1"

        async def use(store: Store) -> None:
            backups = Backups(store, where, every=3600, keep=2)
            names = [await backups.make() for _ in range(3)]
            kept = sorted(path.name for path in (tmp_path / "s3/bucket/hansard").iterdir())
            assert kept == names[1:]

        with_store(tmp_path, use)
    newest = max((tmp_path / "s3/bucket/hansard").iterdir())
    with sync.connect(f"sqlite:///{newest}") as store:
        assert store.get_messages("order-17")[0].text == "Where is my order?"


@needs_s3
def test_a_bucket_that_is_away_is_an_error_and_the_server_continues(tmp_path: Path) -> None:
    where = "s3://bucket/x?endpoint=http://127.0.0.1:9&region=us-east-1"
    secrets = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with serving_process(tmp_path, "sqlite:///made.db", "--backup-to", where, **secrets) as (_, process):
        assert process.stderr is not None
        line = json.loads(process.stderr.readline())
        assert line["level"] == "error"
        assert line["message"].startswith(f"the backup to {where} failed: the bucket {where} failed: ")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


class FullTarget(FolderTarget):
    def put(self, name: str, data: bytes | Path) -> None:
        super().put(name, data)
        if isinstance(data, Path):
            raise OSError(28, "No space left on device")


class DamagingTarget(FolderTarget):
    def put(self, name: str, data: bytes | Path) -> None:
        written = bytearray(data if isinstance(data, bytes) else data.read_bytes())
        written[: len(written) // 2] = bytes(len(written) // 2)
        super().put(name, bytes(written))


@pytest.mark.parametrize(("kind", "error"), [(FullTarget, Unavailable), (DamagingTarget, Corrupt)])
def test_a_backup_that_fails_leaves_nothing_and_removes_nothing(
    kind: type[FolderTarget], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    async def use(store: Store) -> None:
        backups = Backups(store, str(folder), every=3600, keep=1)
        good = await backups.make()
        monkeypatch.setattr("hansard.server.backups.FolderTarget", kind)
        with pytest.raises(error):
            await backups.make()
        assert [path.name for path in folder.iterdir()] == [good]

    with_store(tmp_path, use)


def test_restarts_make_no_backups_before_the_next_is_due(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "hansard-notes.db").write_text("not a backup")
    hour = timedelta(hours=1)
    kept = [f"{datetime.now(UTC) - hour * age:hansard-%Y%m%dT%H%M%S%fZ.db}" for age in (30, 20, 10)]
    for name in kept:
        (folder / name).touch()

    def names() -> set[str]:
        return {path.name for path in folder.iterdir()}

    async def use(store: Store) -> None:
        backups = Backups(store, str(folder), every=11 * 3600, keep=3)
        for _ in range(3):
            async with backups.running():
                await asyncio.sleep(0.05)
            assert names() == {"hansard-notes.db", *kept}, "none was due"
        wait = await backups._seconds_until_due()
        assert 3500 < wait < 3600
        overdue = Backups(store, str(folder), every=9 * 3600, keep=3)
        async with overdue.running():
            await asyncio.to_thread(until, lambda: kept[0] not in names())
        assert names() > {"hansard-notes.db", *kept[1:]}
        assert len(names()) == 4
        (folder / f"{datetime.now(UTC) + hour * 99:hansard-%Y%m%dT%H%M%S%fZ.db}").touch()
        assert 0 < await overdue._seconds_until_due() < 9 * 3600, "the clock was set back"

    with_store(tmp_path, use)


def test_backups_with_a_time_in_the_future_neither_delay_nor_remove_new_ones(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    future = f"{datetime.now(UTC) + timedelta(hours=99):hansard-%Y%m%dT%H%M%S%fZ.db}"
    (folder / future).touch()

    async def use(store: Store) -> None:
        backups = Backups(store, str(folder), every=3600, keep=1)
        assert await backups._seconds_until_due() == 0
        await backups.make()
        last = await backups.make()
        assert sorted(path.name for path in folder.iterdir()) == [last, future]
        assert 3500 < await backups._seconds_until_due() < 3600

    with_store(tmp_path, use)


DIE_BEFORE_VERIFYING = """
import asyncio, os, signal, sys, hansard
from hansard.server.backups import Backups, FolderTarget

FolderTarget.get = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

async def back_up():
    async with hansard.connect(sys.argv[1]) as store:
        await Backups(store, sys.argv[2], every=3600, keep=1).make()

asyncio.run(back_up())
"""


def test_a_backup_that_was_not_verified_before_its_process_was_killed_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    def names() -> list[str]:
        return sorted(path.name for path in folder.iterdir())

    def die() -> None:
        command = [sys.executable, "-c", DIE_BEFORE_VERIFYING, f"sqlite:///{tmp_path}/chats.db", str(folder)]
        environment = os.environ | {"TMPDIR": str(tmp_path)}  # of what it leaves
        assert subprocess.run(command, check=False, timeout=PATIENCE, env=environment).returncode == -signal.SIGKILL

    async def use(store: Store) -> None:
        backups = Backups(store, str(folder), every=3600, keep=1)
        await asyncio.to_thread(die)
        left = names()
        assert len(left) == 2, "the backup, and the file that says that it is not verified"
        assert await backups._seconds_until_due() == 0
        good = await backups.make()
        assert names() == [*left, good], "another machine might be making the unverified one"
        assert 3500 < await backups._seconds_until_due() < 3600
        await asyncio.to_thread(die)
        assert good in names(), "a dead backup replaces no verified one"
        last = await backups.make()
        assert good not in names()
        assert not set(left) & set(names())
        for name in set(names()) - {last}:
            (folder / name).rename(folder / name.replace(name[8:16], "20200101"))
        last = await backups.make()
        assert names() == [last]

    with_store(tmp_path, use)


STORES = [name for name in ("files-delta", "postgres", "redis", "memory", "cassandra") if name in BY_URL]


@pytest.mark.parametrize("name", STORES)
def test_a_store_of_another_kind_is_backed_up_as_sqlite(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    target = BACKENDS[name](tmp_path)
    assert target.url is not None
    if name != "files-delta":
        with sync.connect(target.url) as empty, pytest.raises(Unsupported, match="copy_to"):
            empty.backup(tmp_path / "copy.db")

    async def use() -> None:
        async with hansard.connect(target.url) as store:
            for tenant in ("acme", "default"):
                view = store.tenant(tenant)
                await view.append_message("order-17", "user", f"Where is my order, {tenant}?", user_id="ann")
                await view.records.put(("memories",), "city", tenant)
            await Backups(store, str(folder), every=3600, keep=1).make()

    asyncio.run(use())
    (made,) = folder.iterdir()
    with sync.connect(f"sqlite:///{made}") as restored:
        for tenant in ("acme", "default"):
            view = restored.tenant(tenant)
            assert [message.text for message in view.get_messages("order-17")] == [f"Where is my order, {tenant}?"]
            assert view.records.get(("memories",), "city").value == tenant  # type: ignore[union-attr]
    target.discard()


def test_targets_and_stores_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="none keeps nothing"):
        Backups(Store(NoneBackend()), str(tmp_path), every=1, keep=1)
    with pytest.raises(ValidationError, match="there is no folder"):
        FolderTarget(tmp_path / "gone")


def test_an_unexpected_failure_is_logged_and_does_not_end_the_schedule(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()
    failures = [ZeroDivisionError("odd"), Unavailable("away")]

    async def work() -> dict[str, str]:
        if failures:
            raise failures.pop(0)
        done.set()
        return {}

    async def run() -> None:
        async with repeating("purge", work, 0.01):
            await asyncio.wait_for(done.wait(), PATIENCE)

    asyncio.run(run())
    assert [each.getMessage() for each in caplog.records] == ["the purge failed", "the purge failed: away"]
