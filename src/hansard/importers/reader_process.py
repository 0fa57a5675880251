"""Reads foreign conversations in a process of its own, while this one stores those before them.

An import is work of the processor. Half of it is to read the file and to make of each message what the store needs (see
`preparation`), the other half is to store it. Because of the GIL, the first half runs in a process of its own. What is
stored is the same.

The child gets a `_Request` and answers with `_Batch`es, pickled, over pipes that only these two processes have. It ends
when this process does, which closes its end of both.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing, suppress
from copyreg import dispatch_table
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from msgspec import Struct

from hansard.errors import Unavailable
from hansard.executor import run_in_thread
from hansard.importers.garbage import rare_collections
from hansard.importers.importer import ForeignConversation, Importer, size_of
from hansard.importers.preparation import PackedConversation, prepare, unpack
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource, ServerSource, open_source
from hansard.importers.values import reporting_times
from hansard.limits import Limits
from hansard.model import NOT_YET

_LEAST_BYTES = 8_000_000
"""Of a source. Smaller ones are read before a process has begun."""
_BATCH_MESSAGES = 5_000
_BATCH_CHARACTERS = 4_000_000
"""Few enough to hold three times: here, there and on the way. A single conversation may have more."""
_END_SECONDS = 5.0
"""For a child that was told to end, which removes what it has unpacked."""
_TOO_DEEP = "a value in it is nested too deeply to be read by two processes: import it with --strict"
_COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from hansard.importers.reader_process import main; main()"


class _Request(Struct, frozen=True):
    path: Path
    importer: Importer
    limits: Limits
    folder: str
    """For temporary files. Either process removes it if the other one was killed."""
    with_terms: bool = True
    is_trusted: bool = True
    element_bytes: int = ImportSource.element_bytes


class _Batch(Struct, frozen=True):
    conversations: list[PackedConversation]
    report: ImportReport
    """What was found since the batch before."""
    moved: int
    """The bytes that were read for it."""
    is_last: bool = False
    error: Exception | None = None
    """Why it is the last one, if the source could not be read to its end."""


def is_worthwhile(source: ImportSource, importer: Importer) -> bool:
    """Whether the source is large enough for another process, which can read it and has a core of its own."""
    if isinstance(source, ServerSource) or not _is_ours(importer) or _cores() < 2:
        return False
    return sum(map(source.size, source.names())) >= _LEAST_BYTES


def _is_ours(importer: Importer) -> bool:
    """Plugins need not be picklable, and LangGraph's threads go their own way into a store."""
    return type(importer).__module__.startswith("hansard.") and importer.name != "langgraph"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def read_source(
    source: ImportSource,
    importer: Importer,
    limits: Limits,
    report: ImportReport,
    *,
    with_terms: bool = True,
    is_apart: bool | None = None,
) -> AsyncGenerator[ForeignConversation]:
    """Yields what the importer reads; if another process reads it, prepared for a store with these limits.

    `is_apart`: whether another process reads; None where that is worthwhile. It reads ahead: the report may have
    problems of what comes later. `with_terms`: it analyses the messages, too, for a store that takes their terms
    (`Draft.terms`).
    """
    if is_worthwhile(source, importer) if is_apart is None else is_apart:
        with TemporaryDirectory(prefix="hansard-import-") as folder:
            path = Path(source.path)
            request = _Request(path, importer, limits, folder, with_terms, source.is_trusted, source.element_bytes)
            child = None
            with suppress(OSError):  # where no process can be started, this one reads
                child = _start(request)
            if child is not None:
                source.close()  # what it has unpacked is not needed twice
                async with aclosing(_read_from(child, source, report)) as prepared:
                    async for conversation in prepared:
                        yield conversation
                return
    with closing(reporting_times(importer.read(source, report), report)) as read:
        for conversation in read:
            yield conversation


async def _read_from(
    child: subprocess.Popen[bytes], source: ImportSource, report: ImportReport
) -> AsyncGenerator[ForeignConversation]:
    """Yields what the child reads. The report, and `source.moved`, get what it tells with each batch."""
    assert child.stdout is not None
    is_last = False
    with child.stdout as pipe:
        following = asyncio.ensure_future(run_in_thread(_next, child, pipe))
        try:
            while not is_last:
                batch = await following
                is_last = batch.is_last
                if not is_last:
                    following = asyncio.ensure_future(run_in_thread(_next, child, pipe))
                    await asyncio.sleep(0)  # it begins now, not when the first group was stored
                report.merge(batch.report)
                source.moved(batch.moved)
                for packed in batch.conversations:
                    conversation = _unpacked(packed, report)
                    if conversation is not None:
                        yield conversation
                if batch.error is not None:
                    raise batch.error
        finally:
            if not is_last:
                child.terminate()
            await run_in_thread(_end, child)
            # The thread reads on until the child's end.
            await asyncio.gather(following, return_exceptions=True)


def _start(request: _Request) -> subprocess.Popen[bytes]:
    # It imports the same modules as this process; `-P` adds no folder to them. In a group of its own it gets no Ctrl-C,
    # for this process ends it.
    command = [sys.executable, "-P", "-c", _COMMAND, *sys.path]
    request_bytes = pickle.dumps(request)
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.write(request_bytes)
        # It stays open: the child ends when it is closed.
        child.stdin.flush()
    return child


def _next(child: subprocess.Popen[bytes], pipe: IO[bytes]) -> _Batch:
    try:
        batch: _Batch = pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError) as error:
        is_killed = (code := child.wait()) < 0
        how = f"was ended by signal {-code}" if is_killed else f"has failed with {code}"
        text = (
            f"the process that reads the file {how}. If it happens again, import with --strict, which reads in this "
            "process"
        )
        raise Unavailable(text, retryable=is_killed, outcome="unknown") from error
    return batch


def _unpacked(packed: PackedConversation, report: ImportReport) -> ForeignConversation | None:
    try:
        return unpack(packed)
    except RecursionError:
        report.complain(f"conversation {packed.conversation.id!r}", _TOO_DEEP)
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    finally:
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended before it was told what to do
            child.stdin.close()


# The child


def main() -> None:
    signal.signal(signal.SIGTERM, _exit)
    request: _Request = pickle.load(sys.stdin.buffer)
    tempfile.tempdir = request.folder
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that is printed may get among the batches
    with suppress(BrokenPipeError, SystemExit):
        with closing(_batches(request)) as batches, rare_collections():
            for batch in batches:
                _write(batch, pipe)
        return
    shutil.rmtree(request.folder, ignore_errors=True)
    # An ordinary end would write to the pipe again, which nobody reads.
    os._exit(1)


def _end_with_parent() -> None:
    """Waits for the parent to close its end, as it does in any case when it is killed."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def _batches(request: _Request) -> Generator[_Batch]:
    report = ImportReport(request.importer.name)
    conversations: list[PackedConversation] = []
    moved = messages = characters = 0
    error: Exception | None = None

    def move(count: int) -> None:
        nonlocal moved
        moved += count

    try:
        with closing(open_source(request.path)) as source:
            source.moved = move
            source.is_trusted, source.element_bytes = request.is_trusted, request.element_bytes
            with closing(reporting_times(request.importer.read(source, report), report)) as read:
                for each in read:
                    size = size_of(each)
                    try:
                        conversations.append(prepare(each, request.limits, size, with_terms=request.with_terms))
                    except RecursionError:
                        report.complain(f"conversation {each.id!r}", _TOO_DEEP)
                    messages += 1 + len(each.messages)
                    characters += size
                    if messages >= _BATCH_MESSAGES or characters >= _BATCH_CHARACTERS:
                        yield _Batch(conversations, report, moved)
                        conversations, moved, messages, characters = [], 0, 0, 0
                        report.clear()
    except Exception as raised:
        error = _sendable(raised)
    yield _Batch(conversations, report, moved, is_last=True, error=error)


def _sendable(error: Exception) -> Exception:
    """The error as the parent would raise it, if it can be sent."""
    try:
        return error if type(pickle.loads(pickle.dumps(error))) is type(error) else RuntimeError(repr(error))
    except Exception:
        return RuntimeError(repr(error))


def _reduced(time: datetime) -> Any:
    """Keeps the identity of `NOT_YET`, by which it is known."""
    return (_not_yet, ()) if time is NOT_YET else time.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _not_yet() -> datetime:
    return NOT_YET


def _write(batch: _Batch, pipe: IO[bytes]) -> None:
    pickler = pickle.Pickler(pipe, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**dispatch_table, datetime: _reduced}
    pickler.dump(batch)
    pipe.flush()


__all__ = ["is_worthwhile", "main", "read_source"]
