"""Disk space of many messages of about 200 characters after closing, including ids and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.arena import Arena
from benchmarks.child import in_child
from benchmarks.report import Comparison, Judge
from benchmarks.scenarios.bulk import fill, verify_bulk

TITLE = "file size"
TARGETS = {"sqlite": {("ours", "raw"): 1.3}}


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    messages = arena.size(1_000_000, quick=20_000)
    kinds = arena.roster.of(["raw", "ours", "openai-agents"])
    series = {kind.key: [bytes_per_message(arena, kind.key, messages)] for kind in kinds}
    judge = Judge(arena.roster, f"{TITLE}, {messages:,} messages", series, unit="B/message")
    yield from judge.standings(TARGETS)


def bytes_per_message(arena: Arena, key: str, messages: int) -> float:
    place = arena.place()
    in_child(fill, key, place, messages)
    size = size_of(place[0].parent)
    in_child(verify_bulk, key, place, messages)
    arena.discard(place)
    return size / messages


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
