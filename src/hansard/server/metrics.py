"""Prometheus metrics: requests of every route, over all workers, and the size of the store.

Tenants and ids are not included: they are data. Counted in plain dictionaries and converted when Prometheus asks: its
own counters take a lock each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from hansard import __version__
from hansard.agents.capture.spool import Spool
from hansard.model import Stats
from hansard.server.relay_sessions import RelaySessions
from hansard.server.tail import Shutdown
from hansard.server.worker_metrics import BUCKETS, SharedCounters, WorkerCounters

if TYPE_CHECKING:
    from hansard.server.request import Request

_STORE = {
    "conversations": "Conversations in the store.",
    "messages": "Messages in the store.",
    "records": "Records in the store.",
    "tenants": "Tenants that store anything.",
    "blobs": "Blobs in the store.",
    "blob_bytes": "Bytes of the blobs.",
    "bytes": "Size of the store on disk.",
    "unindexed": "Messages that are not in the search index yet, up to 10,000.",
}
"""Fields of `Stats` that are metrics."""


class Metrics(Collector):
    """The counters of this worker, and of the others, if there are any."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        backend: str,
        relay_sessions: RelaySessions,
        shutdown: Shutdown,
        commits: Callable[[], tuple[int, int]] | None = None,
        shared: SharedCounters | None = None,
        spool: Path | None = None,
    ) -> None:
        self._relay_sessions = relay_sessions
        self._shutdown = shutdown
        self._commits = commits
        self._shared = shared
        self._spool = None if spool is None else Spool(spool)
        self._counters = WorkerCounters(process=os.getpid())
        self._received = 0
        self.stats: Stats | None = None
        """The size of the store, as of the last scrape that asked for it."""
        self._registry = CollectorRegistry()
        self._registry.register(self)
        about = Gauge("hansard_info", "What is running.", ("version", "backend"), registry=self._registry)
        about.labels(__version__, backend).set(1)
        if self._shared is not None:
            self._shared.write(self._current)  # at once: others count this worker before its first request

    def on_response(self, request: Request[Any, Any], status: int, code: str | None) -> None:
        # Requests without a route share one name: clients can send any number of paths.
        took = time.perf_counter() - request.started_at
        self._counters.count_request(request.action or "none", status, took, code)
        self._received += request.received
        if self._shared is not None:
            self._shared.schedule(self._current)

    def _current(self) -> WorkerCounters:
        """Returns the counters of this worker, with those that others count."""
        counters, relays = self._counters, self._relay_sessions
        commits, writes = self._commits() if self._commits is not None else (0, 0)
        counters.totals = {
            "received_bytes": self._received,
            "commits": commits,
            "committed_writes": writes,
            "client_events": relays.from_clients,
            "model_events": relays.from_models,
            "relays_unrecorded": relays.unrecorded,
        }
        counters.gauges = {
            "workers": 1,
            "relays": relays.open,
            "streams": self._shutdown.stream_count,
            "oldest_stream_seconds": self._shutdown.oldest_stream_seconds,
        }
        return counters

    def _together(self) -> WorkerCounters:
        together = WorkerCounters()
        together.add(self._current())
        for counters in self._shared.others() if self._shared is not None else ():
            together.add(counters)
        return together

    def collect(self) -> Iterator[Metric]:
        counters = self._together()
        requests = CounterMetricFamily("hansard_requests", "Requests answered.", labels=("action", "status"))
        for action, statuses in counters.requests.items():
            for status, count in statuses.items():
                requests.add_metric((action, str(status)), count)
        yield requests
        yield _durations(counters)
        errors = CounterMetricFamily("hansard_errors", "Errors by their code.", labels=("code",))
        for code, count in counters.errors.items():
            errors.add_metric((code,), count)
        yield errors
        yield from self._totals(counters)
        yield from _gauges(counters)
        yield from self._store()
        if self._spool is not None:
            sizes = self._spool.sizes
            yield GaugeMetricFamily("hansard_spool_bytes", "Bytes of messages that wait in the spool.", sum(sizes))
            yield GaugeMetricFamily("hansard_spool_files", "Files in the spool.", len(sizes))

    def _totals(self, counters: WorkerCounters) -> Iterator[Metric]:
        totals = counters.totals
        yield CounterMetricFamily("hansard_received_bytes", "Bytes of bodies received.", totals["received_bytes"])
        if self._commits is not None:
            yield CounterMetricFamily("hansard_commits", "Commits of the storage.", totals["commits"])
            text = "Writes in those commits."
            yield CounterMetricFamily("hansard_committed_writes", text, totals["committed_writes"])
        events = CounterMetricFamily("hansard_relayed_events", "Events relayed in live sessions.", labels=("of",))
        events.add_metric(("client",), totals["client_events"])
        events.add_metric(("model",), totals["model_events"])
        yield events
        text = "Live sessions that ended because they could not be recorded."
        yield CounterMetricFamily("hansard_relays_unrecorded", text, totals["relays_unrecorded"])

    def _store(self) -> Iterator[Metric]:
        for name, text in _STORE.items():
            if self.stats is not None and (value := getattr(self.stats, name)) is not None:
                yield GaugeMetricFamily(f"hansard_store_{name}", text, value)

    def render(self) -> bytes:
        return generate_latest(self._registry)


def _durations(counters: WorkerCounters) -> Metric:
    seconds = HistogramMetricFamily(
        "hansard_request_seconds",
        "From the request's headers to its response, which for an append follows its commit.",
        labels=("action",),
    )
    for action, times in counters.seconds.items():
        buckets = zip(map(floatToGoString, BUCKETS), accumulate(times.counts), strict=True)
        seconds.add_metric((action,), [*buckets], times.sum)
    return seconds


def _gauges(counters: WorkerCounters) -> Iterator[Metric]:
    gauges = counters.gauges
    yield GaugeMetricFamily("hansard_workers", "Worker processes.", gauges["workers"])
    yield GaugeMetricFamily("hansard_relays", "Live sessions being relayed.", gauges["relays"])
    yield GaugeMetricFamily("hansard_streams", "Open live tails and sessions, and streamed answers.", gauges["streams"])
    text = "Age of the oldest of them."
    yield GaugeMetricFamily("hansard_oldest_stream_seconds", text, gauges["oldest_stream_seconds"])
