"""W8: startup cost of a process: the import alone, and the time from its start to the first append.

Each measurement is a new interpreter with a new file. asyncio is imported before the import is timed, and all programs
run on an event loop, as agents do. The start time is taken in this process just before the other one is created, on a
clock that all processes share.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic

from benchmarks.arena import Arena
from benchmarks.contenders import raw
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge

TITLE = "W8 start"
TARGETS = {"sqlite": {("ours", "raw"): 3.0}}

TimedProgram = Callable[[Arena, str, int], float]

IMPORTS = {
    "raw": "import sqlite3, msgspec",
    "ours": "import hansard; hansard.connect",
    "openai-agents": "from agents import SQLiteSession",
}
TIMED_IMPORT = """
import asyncio, time
begin = time.perf_counter()
{statement}
print(time.perf_counter() - begin)
"""
FIRST_APPENDS = {
    "raw": f"""
import asyncio, sqlite3, sys, time, msgspec
async def main():
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.executescript({raw.SCHEMA!r})
    now = time.time_ns() // 1000
    db.execute("BEGIN IMMEDIATE")
    db.execute({raw.ADD_CONVERSATION!r}, ("c", None, now, now, now))
    rest = msgspec.json.encode({{"metadata": {{"n": 1}}}})
    db.execute({raw.ADD_MESSAGE!r}, (1 << 24 | 1, "msg_1", "user", "text", "Where is my order?", now, rest))
    db.execute({raw.COUNT_UP!r}, (now, 1, 1))
    db.execute("COMMIT")
    print(time.monotonic(), len(db.execute({raw.LAST!r}, (0, 1 << 62, 50)).fetchall()))
asyncio.run(main())
""",
    "ours": """
import asyncio, sys, time, hansard
async def main():
    store = await hansard.connect(sys.argv[2])
    await store.append_message("c", role="user", content="Where is my order?", metadata={"n": 1})
    print(time.monotonic(), len(await store.get_messages("c", last=50)))
    await store.close()
asyncio.run(main())
""",
    "openai-agents": """
import asyncio, sys, time
from agents import SQLiteSession
async def main():
    session = SQLiteSession("c", sys.argv[1])
    await session.add_items([{"role": "user", "content": "Where is my order?", "metadata": {"n": 1}}])
    print(time.monotonic(), len(await session.get_items(limit=50)))
    session.close()
asyncio.run(main())
""",
}


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    imports = {key: TIMED_IMPORT.format(statement=statement) for key, statement in IMPORTS.items()}
    yield from measured(arena, f"{TITLE}: import", imports, import_time)
    yield from measured(arena, f"{TITLE}: process to first append", FIRST_APPENDS, first_append_time)


def measured(arena: Arena, title: str, programs: Mapping[str, str], timing: TimedProgram) -> Iterator[Comparison]:
    rounds = arena.size(15, quick=5)
    timed_contenders = [
        TimedContender(
            kind.key, partial(timing, arena, programs[kind.key]), 3 if kind.key == "openai-agents" else rounds
        )
        for kind in arena.roster.of(programs)
    ]
    for timed_contender in timed_contenders:
        timed_contender.portion(0)  # the first run compiles the modules and warms the disk cache
    yield from Judge(arena.roster, title, by_turns(timed_contenders), unit="ms").standings(TARGETS)


def import_time(_arena: Arena, program: str, _round: int) -> float:
    return float(output_of(program)) * 1e3


def first_append_time(arena: Arena, program: str, _round: int) -> float:
    path, url = arena.place()
    begin = monotonic()
    end, count = output_of(program, str(path), url).split()
    check(count == "1", f"the first append left {count} messages")
    return (float(end) - begin) * 1e3


def output_of(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    check(done.returncode == 0, done.stderr.strip().rpartition("\n")[2])
    return done.stdout
