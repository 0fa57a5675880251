"""Changes are reported by events, and where these cannot be had, by polling."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from hansard.collector import watcher


async def test_events_name_the_files(tmp_path: Path) -> None:
    changes = watcher.changes(lambda: [tmp_path])
    assert await anext(changes) is None, "everything is scanned once, when the watch has begun"
    (tmp_path / "deep").mkdir()
    path = tmp_path / "deep" / "a.jsonl"
    found: set[Path] = set()
    async with asyncio.timeout(60):
        while path not in found:
            path.write_text("x")
            found = found | (await anext(changes) or frozenset())
    await changes.aclose()


async def test_what_is_written_before_the_first_event_is_read_is_not_missed(tmp_path: Path) -> None:
    changes = watcher.changes(lambda: [tmp_path])
    await anext(changes)
    path = tmp_path / "a.jsonl"
    path.write_text("x")
    await asyncio.sleep(0.5)
    async with asyncio.timeout(60):
        while path not in (await anext(changes) or ()):
            pass
    await changes.aclose()


async def test_a_folder_that_appears_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "TICK", 0.2)
    folder = tmp_path / "later"
    changes = watcher.changes(lambda: [each for each in (tmp_path / "now", folder) if each.is_dir()])
    (tmp_path / "now").mkdir()
    assert await anext(changes) is None
    folder.mkdir()
    async with asyncio.timeout(60):
        while await anext(changes) is not None:
            pass
    await changes.aclose()


async def test_without_events_everything_is_scanned_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(watcher, "_SHORTEST", 0.01)
    changes = watcher.changes(lambda: [tmp_path])
    async with asyncio.timeout(60):
        assert [await anext(changes) for _ in range(3)] == [None, None, None]
