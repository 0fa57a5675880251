"""Helpers for the tests of files: connect to a folder, and read journals without the store."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path
from typing import Any

from hansard import Limits, sync
from hansard.store.core import utc_now
from hansard.testing import Clock


def connect(root: Path, clock: Clock | None = None, limits: Limits | None = None, **options: str) -> sync.Store:
    """Opens a blocking store on a folder. Unless an option says otherwise, it does not wait for the disk."""
    options = {"durability": "process"} | options
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return sync.connect(f"file://{root}?{query}", limits=limits, clock=clock or utc_now)


def journal(root: Path, name: str, agent: str = "_no_agent", tenant: str = "default") -> Path:
    return root / tenant / agent / f"{name}.jsonl"


def journals(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("*/*/*.jsonl") if path.parent.name != "_records")


def lines(path: Path) -> list[dict[str, Any]]:
    """Returns every line as JSON, after checking its checksum as docs/reference/backends/files.md describes it."""
    content = path.read_bytes()
    assert content.endswith(b"\n")
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        entry = json.loads(line)
        make_line = f',"check":"{entry["check"]}"}}'.encode()
        assert line.endswith(make_line)
        assert zlib.crc32(line.removesuffix(make_line), number) == int(entry["check"], 16)
        found.append(entry)
    return found


def everything(root: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def contents(store: sync.Store, id: str, **options: Any) -> list[Any]:
    return [message.content for message in store.iter_messages(id, **options)]


def let_time_pass() -> None:
    """Waits until a change of a file gets a new modification time: the clock of the system is coarse."""
    time.sleep(0.05)
