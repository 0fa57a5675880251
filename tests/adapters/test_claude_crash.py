"""Processes that write into one session of Claude's and are killed, and whose acknowledgements get lost."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.claude_writer import KEY, SESSION, SUB, batch, write
from tests.contract.backends import BACKENDS, PRESENT

import hansard

pytestmark = pytest.mark.anyio

ROUNDS = max(1, int(os.environ.get("HANSARD_CRASHES", "25")) // 25)
"""Few, because a process that can speak to Claude's SDK takes long to start."""
_LONG = "HANSARD_CRASHES" in os.environ
_TRIED = ("sqlite", "files-delta", "postgres", "redis") if _LONG else ("sqlite",)
SHARED = [name for name in _TRIED if name in PRESENT]
"""By default only one: the contract kills writers on every backend."""
ROOT = Path(__file__).parents[2]
NO_END = "1000000"
PATIENCE = 120.0


class Writer:
    """A process of `claude_writer`, from a batch on."""

    def __init__(self, url: str, name: str, start: int) -> None:
        self.name = name
        self.start = start
        command = [sys.executable, "-m", "tests.adapters.claude_writer", url, name, str(start), NO_END]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, cwd=ROOT)

    def hear(self, lines: int) -> None:
        """Waits until it has said so much."""
        assert self._process.stdout is not None
        self._heard = [self._process.stdout.readline().decode() for _ in range(lines)]
        assert all(self._heard), f"writer {self.name} ended with {self._process.wait(PATIENCE)}"

    def kill(self) -> int:
        """The batch after the last one that was acknowledged."""
        self._process.kill()
        output, _ = self._process.communicate(timeout=PATIENCE)
        told = [int(line) for line in [*self._heard, *output.decode().splitlines()] if line.strip() != "open"]
        assert told == list(range(self.start, self.start + len(told)))
        return self.start + len(told)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.timeout(300 + ROUNDS * 60)
@pytest.mark.parametrize("name", SHARED)
async def test_killed_writers_leave_every_entry_once_and_in_order(name: str, tmp_path: Path) -> None:
    url = BACKENDS[name](tmp_path).url
    assert url is not None
    chance = random.Random(ROUNDS)
    starts = {"one": 0, "two": 0}
    for _ in range(ROUNDS):
        writers = [Writer(url, each, start) for each, start in starts.items()]
        for writer in writers:
            writer.hear(1 + chance.randrange(4))
        for writer in writers:
            time.sleep(chance.choice((0, 0.001, 0.02)) * chance.random())
            after = writer.kill()
            # Half of the acknowledgements are lost: what was acknowledged last is sent again.
            starts[writer.name] = after - (after > writer.start and chance.random() < 0.5)
    ends = {each: start + 2 for each, start in starts.items()}
    await asyncio.gather(*(write(url, each, starts[each], end) for each, end in ends.items()))
    async with hansard.connect(url) as store:
        await check_session(store, ends)


async def check_session(store: hansard.Store, ends: dict[str, int]) -> None:
    sessions = store.claude_session_store()
    assert list(await sessions.list_subkeys(KEY)) == [SUB["subpath"]]
    for key in (KEY, SUB):
        entries: Any = await sessions.load(key)
        for writer, end in ends.items():
            wanted = [entry for number in range(end) for entry in batch(writer, number)]
            assert [entry for entry in entries if entry["name"].startswith(f"{writer}.")] == wanted
        assert len(entries) == sum(len(batch(each, number)) for each, end in ends.items() for number in range(end))
    rows = [row.content["name"].rpartition(".")[0] async for row in store.iter_messages(SESSION)]
    assert rows[::2] == rows[1::2], "messages of a batch stand together"
    assert await store.check() == []
