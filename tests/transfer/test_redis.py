"""Copies into Redis and out of it, from and to every other storage: what comes back is what went in, byte for byte."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS, NO_SERVER
from tests.servers import redis as redis_servers
from tests.transfer.rich import contents, fill

import hansard
from hansard import Message
from hansard.testing import Target

pytestmark = pytest.mark.skipif(redis_servers.why_absent() is not None, reason=str(redis_servers.why_absent()))

OTHERS = ["memory", "sqlite", "files-delta", "postgres", "redis", "redis-cluster"]


def made(name: str, folder: Path) -> Target:
    if name in NO_SERVER:
        pytest.skip(NO_SERVER[name])
    return BACKENDS[name](folder)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("ours", ["redis", "redis-cluster"])
def test_there_and_back(ours: str, other: str, tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    # All before any is opened: a new place may be emptied first. And kept, or the third is given the first one's place.
    places = [made(other, tmp_path), made(ours, tmp_path), made(other, tmp_path / "back")]

    async def play() -> None:
        first, second, third = (str(each.url) for each in places)
        async with (
            hansard.connect(first) as source,
            hansard.connect(second) as middle,
            hansard.connect(third) as back,
        ):
            await fill(source)
            wanted = await contents(source)
            for one, two in ((source, middle), (middle, back)):
                report = await one.copy_to(two)
                assert (report.conflicts, report.losses, report.verified) == ([], [], True)
                assert await contents(two) == wanted
                assert await two.check() == []
            again = await source.copy_to(middle)
            assert (again.messages, again.skipped) == (0, len(await _ids(source)))

    asyncio.run(play())


async def _ids(store: hansard.Store) -> list[str]:
    return [each.id for each in (await store.list_conversations(archived=None, limit=100)).items]


def test_a_long_conversation(tmp_path: Path) -> None:
    """Longer than a round trip of a walk brings, with a large message in it."""

    async def play() -> None:
        async with (
            hansard.connect(redis_servers.fresh_database()) as store,
            hansard.connect(f"sqlite:///{tmp_path}/copy.db") as copy,
        ):
            for start in range(0, 3000, 1000):
                batch = [Message("user", f"message {number}", id=f"m{number}") for number in range(start, start + 1000)]
                await store.append("long", batch)
            await store.append_message("long", "user", "x" * 3_000_000, id="large")
            await store.append_message("long", "user", "last", id="last")
            report = await store.copy_to(copy)
            assert report.messages == 3002
            assert await contents(copy) == await contents(store)
            assert [each.id for each in await store.get_messages("long", last=3)] == ["m2999", "large", "last"]

    asyncio.run(play())


def test_the_command(tmp_path: Path) -> None:
    """`hansard copy` both ways: the exports are the same to the byte."""
    redis_url, first, second = (
        redis_servers.fresh_port_url(),
        f"sqlite:///{tmp_path}/a.db",
        f"sqlite:///{tmp_path}/b.db",
    )

    async def prepare() -> None:
        async with hansard.connect(first) as store:
            await fill(store)

    asyncio.run(prepare())
    for command in (["copy", first, redis_url], ["copy", redis_url, second]):
        _hansard(tmp_path, *command)
    exports = []
    for name, url in (("a", first), ("r", redis_url), ("b", second)):
        _hansard(tmp_path, "export", "--url", url, "--output", f"{name}.jsonl")
        # The first line says when it was written.
        exports.append((tmp_path / f"{name}.jsonl").read_bytes().splitlines()[1:])
    assert exports[0] == exports[1] == exports[2]
    assert len(exports[0]) > 50


def _hansard(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "hansard.cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
