"""The program of a writer process: appends batches to a store and reports each acknowledged batch to its parent.

Every message in its pipe is one acknowledgement, with the seconds that the append took, written only after `append`
returned. So after a kill, the parent reads from the pipe exactly what the store has acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
import traceback
from typing import Protocol

from msgspec import Struct

import hansard
from hansard import sync


class Job(Struct, frozen=True):
    """The batches to write. A stream is one writer or one of its tasks; its batches are numbered from `starts`."""

    url: str
    name: str
    conversations: list[str]
    batch: int
    batches: int | None
    """None: writes until it is killed."""
    tasks: int
    """0 writes through the blocking API, more through the async one."""
    starts: dict[str, int]

    def streams(self) -> list[str]:
        return [f"{self.name}{task}" for task in range(self.tasks)] if self.tasks else [self.name]

    def numbers(self, stream: str) -> itertools.chain[int]:
        start = self.starts.get(stream, 0)
        finite = range(start, start + self.batches) if self.batches is not None else itertools.count(start)
        return itertools.chain(finite)

    def home(self, number: int) -> str:
        return self.conversations[number % len(self.conversations)]

    def messages(self, stream: str, number: int) -> list[hansard.Message]:
        ids = [f"{stream}.{number}.{part}" for part in range(self.batch)]
        return [hansard.Message("user", f"batch {id}", id=id) for id in ids]


class Pipe(Protocol):
    """The sending end of a `multiprocessing` pipe."""

    def send_bytes(self, buf: bytes, /) -> None: ...


def acknowledge(pipe: Pipe, stream: str, number: int, began: float) -> None:
    # A write of a few bytes into a pipe is atomic, and can be read after this process has died.
    pipe.send_bytes(f"{stream} {number} {time.monotonic() - began:.3f}".encode())


def write_blocking(job: Job, pipe: Pipe) -> None:
    (stream,) = job.streams()
    with sync.connect(job.url) as store:
        pipe.send_bytes(b"open")
        for number in job.numbers(stream):
            began = time.monotonic()
            store.append(job.home(number), job.messages(stream, number))
            acknowledge(pipe, stream, number, began)


async def write_tasks(job: Job, pipe: Pipe) -> None:
    async with hansard.connect(job.url) as store:
        pipe.send_bytes(b"open")

        async def write(stream: str) -> None:
            for number in job.numbers(stream):
                began = time.monotonic()
                await store.append(job.home(number), job.messages(stream, number))
                acknowledge(pipe, stream, number, began)

        await asyncio.gather(*(write(stream) for stream in job.streams()))


def run_job(job: Job, pipe: Pipe) -> None:
    """Does the job. An error is sent to the parent, and the process exits with 1."""
    try:
        if job.tasks:
            asyncio.run(write_tasks(job, pipe))
        else:
            write_blocking(job, pipe)
    except Exception:
        pipe.send_bytes(traceback.format_exc().encode())
        sys.exit(1)
