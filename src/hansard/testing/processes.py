"""Writers in separate processes, and a check of what they stored before they were killed.

A `Writer` is a process that runs `hansard.testing.writer`. `crash` kills writers with SIGKILL at random moments, again
and again, and lets their successors retry the last batch that was not acknowledged, as a careful client does. `verify`
then checks that every acknowledged message is stored once and in order, that batches are whole and counts exact.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hansard import sync
from hansard.testing.targets import Target
from hansard.testing.writer import Job, run_job

PATIENCE = 120.0
"""Seconds without a report after which a writer counts as hung."""


CONTEXT: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
"""Starts processes. On Linux they are forked from a server that has imported Hansard, because starting Python takes
longer than most writers run. Elsewhere the path of the server's socket may be too long."""
_BACKENDS = ("files", "http", "postgres", "redis", "sqlite")
PRELOADED = ("__main__", "hansard.testing.writer", *(f"hansard.backends.{name}" for name in _BACKENDS))
"""What that server imports. Python has one such server for a process: modules that set others must include these."""
CONTEXT.set_forkserver_preload(list(PRELOADED))


class Writer:
    """A process that appends.

    `acknowledged` counts, for each stream, the batches whose append has returned; `longest` is the longest that one
    append has taken, in seconds.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        conversations: Sequence[str] = ("c",),
        batches: int | None = None,
        batch: int = 3,
        tasks: int = 0,
        starts: Mapping[str, int] | None = None,
    ) -> None:
        self.job = Job(url, name, list(conversations), batch, batches, tasks, dict(starts or {}))
        self.acknowledged: dict[str, int] = {stream: self.job.starts.get(stream, 0) for stream in self.job.streams()}
        self.longest = 0.0
        self._errors = ""
        self._pipe, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=run_job, args=(self.job, theirs))
        self.process.start()
        theirs.close()

    def wait_until_open(self) -> None:
        if self._next() != "open":
            self._collect()
            raise AssertionError(self._failure())

    def wait(self) -> None:
        """Waits until it has written all its batches."""
        self._collect()
        assert self.process.exitcode == 0, self._failure()

    def kill(self) -> None:
        """Sends SIGKILL, and reads the acknowledgements that are left in its pipe."""
        self.process.kill()
        self._collect()

    def end(self) -> None:
        """Kills it if it still runs, and releases its resources."""
        self.process.kill()
        self.process.join()
        self._pipe.close()

    def _next(self) -> str | None:
        """Returns its next report; None when it has ended. Raises `TimeoutError` if it is hung."""
        if not self._pipe.poll(PATIENCE):
            self.end()
            raise TimeoutError(f"writer {self.job.name} has reported nothing for {PATIENCE:.0f} seconds")
        try:
            line: str = self._pipe.recv_bytes().decode()
        except EOFError:
            return None
        if line.startswith("Traceback"):
            self._errors = line
        return line

    def _collect(self) -> None:
        while (line := self._next()) is not None:
            if line not in ("open", self._errors):
                stream, number, seconds = line.split()
                self.longest = max(self.longest, float(seconds))
                # Batches of a stream are reported in order: anything else is a bug in this module.
                assert int(number) == self.acknowledged[stream], line
                self.acknowledged[stream] += 1
        self.process.join(PATIENCE)
        self.end()

    def _failure(self) -> str:
        return f"writer {self.job.name} ended with {self.process.exitcode}:\n{self._errors}"


def verify(store: sync.Store, writers: Iterable[Writer], *, at_rest: bool = True) -> None:
    """Checks that the store has every acknowledged batch, and no batch twice or in part.

    `at_rest` means that every batch was acknowledged in the end: then no other batch may be stored.
    """
    promised: dict[str, int] = {}
    jobs: dict[str, Job] = {}
    for writer in writers:
        for stream, count in writer.acknowledged.items():
            promised[stream] = max(promised.get(stream, 0), count)
            jobs[stream] = writer.job
    assert len({job.batch for job in jobs.values()}) <= 1
    found: dict[str, list[int]] = defaultdict(list)
    for conversation in sorted({each for job in jobs.values() for each in job.conversations}):
        size = next(iter(jobs.values())).batch
        for stream, number in _batches(store, conversation, size):
            assert jobs[stream].home(number) == conversation, f"batch {number} of {stream} is stored in {conversation}"
            found[stream].append(number)
    for stream, count in promised.items():
        numbers = found[stream]
        assert len(numbers) == len(set(numbers)), f"{stream} is stored twice"
        missing = set(range(count)) - set(numbers)
        assert not missing, f"{stream} lost batches {sorted(missing)} that were acknowledged"
        # The batch in flight when its writer died may be stored without an acknowledgement.
        assert max(numbers, default=-1) < count + (not at_rest), f"{stream} has more than it wrote"
    if store.capabilities.mirrors and not at_rest:
        # A batch in flight may be in the index only, which `check` reports: the next write must complete it.
        for interrupted in store.list_conversations().items:
            store.update_conversation(interrupted.id, title="completed")
    assert store.check() == []


def _batches(store: sync.Store, conversation: str, size: int) -> Iterable[tuple[str, int]]:
    """Yields the batches of a conversation; checks that each is whole and that those of a stream are in order."""
    messages = list(store.iter_messages(conversation))
    described = store.get_conversation(conversation)
    assert (described.message_count if described else 0) == len(messages)
    seqs = [message.seq for message in messages]
    assert seqs == sorted(set(seqs))
    assert len(messages) % size == 0, "a batch is torn"
    last: dict[str, int] = {}
    for start in range(0, len(messages), size):
        ids = [message.id for message in messages[start : start + size]]
        stream, number, _ = ids[0].rsplit(".", 2)
        assert ids == [f"{stream}.{number}.{part}" for part in range(size)], f"a batch is torn: {ids}"
        assert int(number) > last.get(stream, -1), f"{stream} is out of order"
        last[stream] = int(number)
        yield stream, int(number)


def crash(target: Target, kills: int, *, seed: int = 0, batch: int = 3) -> int:
    """Kills writers `kills` times and verifies. Returns the number of acknowledged batches."""
    assert target.url is not None
    chance = random.Random(seed)
    starts: dict[str, int] = {}
    for round in range((kills + 1) // 2):
        writers = _pair(target.url, starts, batch)
        for writer in writers:
            _kill_at_some_moment(writer, chance)
            starts |= writer.acknowledged
        _verify_reopened(target, writers, thoroughly=round % 10 == 0)
    writers = _pair(target.url, starts, batch, batches=2)
    for writer in writers:
        # The last writers retry what was not acknowledged and end normally: then every batch must be stored exactly
        # once.
        writer.wait()
        starts |= writer.acknowledged
    verify(target.open("blocking"), writers)
    target.close()
    return sum(starts.values())


def _pair(url: str, starts: Mapping[str, int], batch: int, batches: int | None = None) -> list[Writer]:
    """Starts a blocking writer and an async one with several tasks, on the same conversations."""
    return [
        Writer(url, name, conversations=("c", "d"), batch=batch, batches=batches, tasks=tasks, starts=starts)
        for name, tasks in (("one", 0), ("many", 4))
    ]


def _kill_at_some_moment(writer: Writer, chance: random.Random) -> None:
    if chance.random() < 0.15:
        # While it opens the store, or earlier.
        time.sleep(chance.uniform(0, 0.3))
    else:
        writer.wait_until_open()
        time.sleep(chance.choice((0, 0.001, 0.01, 0.05)) * chance.random())
    writer.kill()


def _verify_reopened(target: Target, writers: Sequence[Writer], *, thoroughly: bool) -> None:
    """Checks that the store opens again without help, and that its counters are exact."""
    store = target.open("blocking")
    if thoroughly:
        verify(store, writers, at_rest=False)
    for conversation in ("c", "d"):
        described = store.get_conversation(conversation)
        if described is not None:
            main = store.list_branches(conversation)[0]
            assert main.message_count == described.message_count
            assert described.message_count % writers[0].job.batch == 0, "a batch is torn"
    target.close()
