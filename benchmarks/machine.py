"""Describes the machine of a result, without anything that identifies it or its owner."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.arena import Options
from benchmarks.contenders import Roster


def describe(options: Options, roster: Roster) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "quick": options.quick,
        "backend": options.url.partition(":")[0],
        "machine": {
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "sync of 4 KiB": f"{sync_cost(options.folder):.0f} us",
        },
        "versions": roster.versions(),
        "absent": roster.absent,
    }


def sync_cost(folder: str | None) -> float:
    """Returns the minimum cost of a durable write. The larger it is, the less a store's own work affects a ratio."""
    costs = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            begin = perf_counter()
            os.fsync(file.fileno())
            costs.append(perf_counter() - begin)
    return statistics.median(costs) * 1e6


def commit() -> str:
    """Returns the current commit, marked if files differ from it."""
    revision = _git("rev-parse", "--short=12", "HEAD")
    if not revision:
        return "none"
    return f"{revision}+changes" if _git("status", "--porcelain", "--untracked-files=no") else revision


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
