"""What every release has written is opened by the newest code, and says the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.make_golden import Clock, fill

import hansard
from hansard import Store
from hansard.backends.schemes import open_backend

GOLDEN = Path(__file__).parent / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir())


async def told(store: Store) -> dict[str, Any]:
    """Everything that the golden conversation and what stands beside it say."""
    branches = await store.list_branches("order-17")
    messages = [message for branch in branches async for message in store.iter_messages("order-17", branch=branch.id)]
    found: dict[str, Any] = msgspec.to_builtins(
        {
            "conversation": await store.get_conversation("order-17"),
            "branches": branches,
            "messages": messages,
            "summaries": await store.list_summaries("order-17"),
            "record": await store.records.get(("state", "graph"), "step"),
        },
        builtin_types=(bytes,),
    )
    for message in found["messages"]:
        # The first release knew that a message had changed, and not whether somebody had edited it.
        del message["edited_at"]
    return found


async def expected() -> dict[str, Any]:
    async with hansard.connect("memory://", clock=Clock()) as store:
        await fill(store)
        return await told(store)


URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/store.db",
    "files": lambda folder: f"file://{folder}/files",
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", URLS)
def test_a_golden_store_says_what_it_said(tmp_path: Path, release: str, kind: str) -> None:
    folder = tmp_path / "golden"
    shutil.copytree(GOLDEN / release, folder)

    async def run() -> None:
        # What `hansard upgrade` does.
        await (await open_backend(URLS[kind](folder), upgrade=True)).close()
        async with hansard.connect(URLS[kind](folder), clock=Clock()) as store:
            assert await told(store) == await expected()
            assert await store.check() == []
            notes = await store.user("ann").records.get(("notes",), "colour")
            assert notes is not None
            assert notes.value == b"\0blue"
            assert [row.input_tokens for row in await store.usage()] == [7]
            assert await store.admin.tenants() == ["acme", "default"]
            # A tombstone outlives the release that made it.
            with pytest.raises(hansard.Conflict, match="deleted"):
                await store.append_message("gone", "user", "again", id="d1")
            await store.append_message("order-17", "user", "And on it goes")
            assert await store.check() == []

    asyncio.run(run())


@pytest.mark.parametrize("release", RELEASES)
def test_a_golden_export_can_be_imported(tmp_path: Path, release: str) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db", clock=Clock()) as store:
            await store.import_(GOLDEN / release / "export.jsonl")
            assert await told(store) == await expected()

    asyncio.run(run())
