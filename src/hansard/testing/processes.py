"""Writers in processes of their own, and what must hold after they were killed.

A `Writer` is a process that runs `hansard.testing.writer`. `crash` kills writers with SIGKILL at random moments, again
and again, and lets their successors retry the last batch that was not acknowledged, as a careful client does. `verify`
then proves it: every acknowledged message is there, once and in order, batches are whole, counts are exact.
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
from hansard.testing.writer import Job, run

PATIENCE = 60.0
"""Seconds after which a writer that says nothing is taken for hung."""


CONTEXT: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
"""Starts processes. On Linux they are forked from one that has imported Hansard, because a new Python takes longer to
start than most of them live. Elsewhere the socket of such a server may get a path that is too long."""
_BACKENDS = ("files", "http", "postgres", "redis", "sqlite")
CONTEXT.set_forkserver_preload(
    ["__main__", "hansard.testing.writer", *(f"hansard.backends.{name}" for name in _BACKENDS)]
)


class Writer:
    """A process that appends; `acknowledged` holds, for each stream, how many batches it was told are stored."""

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
        self._errors = ""
        self._pipe, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=run, args=(self.job, theirs))
        self.process.start()
        theirs.close()

    def wait_until_open(self) -> None:
        if self._next() != "open":
            self._collect()
            raise AssertionError(self._failure())

    def wait(self) -> None:
        """Until it has written all that it should."""
        self._collect()
        assert self.process.exitcode == 0, self._failure()

    def kill(self) -> None:
        """Kills it without warning. What it had been promised is read from its pipe."""
        self.process.kill()
        self._collect()

    def end(self) -> None:
        """Leaves nothing of it behind, whatever became of it."""
        self.process.kill()
        self.process.join()
        self._pipe.close()

    def _next(self) -> str | None:
        """What it says next; None at its end. One that says nothing for long is hung."""
        if not self._pipe.poll(PATIENCE):
            self.end()
            raise TimeoutError(f"writer {self.job.name} says nothing")
        try:
            said: str = self._pipe.recv_bytes().decode()
        except EOFError:
            return None
        if said.startswith("Traceback"):
            self._errors = said
        return said

    def _collect(self) -> None:
        while (said := self._next()) is not None:
            if said not in ("open", self._errors):
                stream, number = said.split()
                # In a stream one batch follows another: anything else would be a fault of this kit.
                assert int(number) == self.acknowledged[stream], said
                self.acknowledged[stream] += 1
        self.process.join(PATIENCE)
        self.end()

    def _failure(self) -> str:
        return f"writer {self.job.name} ended with {self.process.exitcode}:\n{self._errors}"


def verify(store: sync.Store, writers: Iterable[Writer], *, at_rest: bool = True) -> None:
    """Proves that the store holds what was acknowledged, and nothing else twice or torn.

    `at_rest` means that every batch was acknowledged in the end: then nothing else may be there at all.
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
            assert jobs[stream].home(number) == conversation, f"batch {number} of {stream} lies in {conversation}"
            found[stream].append(number)
    for stream, count in promised.items():
        numbers = found[stream]
        assert len(numbers) == len(set(numbers)), f"{stream} is stored twice"
        missing = set(range(count)) - set(numbers)
        assert not missing, f"{stream} lost batches {sorted(missing)} that were acknowledged"
        # The one that was on its way when its writer died may have landed, unacknowledged.
        assert max(numbers, default=-1) < count + (not at_rest), f"{stream} has more than it wrote"
    assert store.check() == []


def _batches(store: sync.Store, conversation: str, size: int) -> Iterable[tuple[str, int]]:
    """The batches of a conversation in order, after proof that each is whole and each stream's are in order."""
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
    """Kills writers `kills` times and verifies. Gives the number of batches that were acknowledged."""
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
        # The last successors retry what was left open and end well: then everything must be there exactly once.
        writer.wait()
        starts |= writer.acknowledged
    verify(target.open("blocking"), writers)
    target.close()
    return sum(starts.values())


def _pair(url: str, starts: Mapping[str, int], batch: int, batches: int | None = None) -> list[Writer]:
    """One that blocks, and one with several tasks, on the same conversations."""
    return [
        Writer(url, name, conversations=("c", "d"), batch=batch, batches=batches, tasks=tasks, starts=starts)
        for name, tasks in (("one", 0), ("many", 4))
    ]


def _kill_at_some_moment(writer: Writer, chance: random.Random) -> None:
    if chance.random() < 0.15:
        # While it opens the store, or before.
        time.sleep(chance.uniform(0, 0.3))
    else:
        writer.wait_until_open()
        time.sleep(chance.choice((0, 0.001, 0.01, 0.05)) * chance.random())
    writer.kill()


def _verify_reopened(target: Target, writers: Sequence[Writer], *, thoroughly: bool) -> None:
    """The store opens again by itself, and its counters agree with it."""
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
