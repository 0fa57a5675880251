"""`bench`: a quick benchmark of a store."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import Parameter
from msgspec import Struct

from hansard import ids
from hansard.cli import output
from hansard.cli.context import Context
from hansard.cli.table import print_table
from hansard.errors import ValidationError
from hansard.model import Message

if TYPE_CHECKING:
    from hansard import sync


_TEXT = "the order left our warehouse on monday and should reach you before the weekend, please keep the number " * 2
_BATCH = 100


class Timing(Struct, frozen=True):
    """The timing of one operation."""

    what: str
    count: int
    seconds: float
    per_second: float
    median_ms: float
    p99_ms: float


def bench(
    *,
    messages: Annotated[int, Parameter(help="How many messages to append one by one.")] = 1000,
    context: Context,
) -> None:
    """Measure how fast a store appends and reads.

    Uses a new tenant, which is deleted afterwards; without --url, a new SQLite file in the temporary folder. The result
    is an estimate: `make bench` measures carefully.
    """
    if messages < 1:
        raise ValidationError(f"--messages is {messages}: it must be at least 1")
    with _bench_store(context) as (url, store), output.progress_bar("measuring", 4, shown=not context.json) as progress:
        found = []
        for done, measure in enumerate((_append, _batches, _read, _turn)):
            found.append(measure(store, messages))
            progress(done + 1)
    if context.json:
        output.print_json({"url": url, "items": found})
        return
    output.print_line(url)
    rows = [
        (
            each.what,
            each.count,
            f"{each.seconds:.3f}",
            f"{each.per_second:,.0f}",
            f"{each.median_ms:.3f}",
            f"{each.p99_ms:.3f}",
        )
        for each in found
    ]
    columns = ("", "COUNT", "SECONDS", "PER SECOND", "MEDIAN MS", "P99 MS")
    print_table(columns, rows, numbers=columns[1:])


@contextmanager
def _bench_store(context: Context) -> Iterator[tuple[str, sync.Store]]:
    """Yields the URL of a store and a view of a new tenant in it."""
    name = ids.new_id("bench_")
    with tempfile.TemporaryDirectory(prefix="hansard-bench-") as folder:
        url = context.given_url or f"sqlite:///{quote(folder)}/bench.db"
        with context.open_whole(url, create=True) as store:
            try:
                yield url, store.tenant(name)
            finally:
                store.admin.delete_tenant(name)


def _measure(what: str, count: int, work: Callable[[int], object]) -> Timing:
    times = []
    for number in range(count):
        begin = perf_counter()
        work(number)
        times.append(perf_counter() - begin)
    total = sum(times)
    p99 = sorted(times)[(len(times) * 99 - 1) // 100]
    return Timing(what, count, total, count / total, statistics.median(times) * 1000, p99 * 1000)


def _append(store: sync.Store, messages: int) -> Timing:
    return _measure("append one message", messages, lambda _: store.append_message("bench", "user", _TEXT))


def _batches(store: sync.Store, messages: int) -> Timing:
    batch = [Message("user", _TEXT) for _ in range(_BATCH)]
    return _measure(f"append {_BATCH} messages", max(10, messages // _BATCH), lambda _: store.append("batches", batch))


def _read(store: sync.Store, messages: int) -> Timing:
    return _measure("read the last 50", max(10, messages // 4), lambda _: store.get_messages("bench", last=50))


def _turn(store: sync.Store, messages: int) -> Timing:
    def turn(_: int) -> None:
        store.get_messages("bench", last=50)
        store.append_message("bench", "user", _TEXT)
        store.append_message("bench", "assistant", _TEXT)

    return _measure("a turn: read 50, append 2", max(10, messages // 4), turn)
