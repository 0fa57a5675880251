"""Prometheus metrics: counts and durations of every route. Tenants and ids are not included: they are data.

Counted in plain dictionaries, which only the event loop uses, and converted when Prometheus asks: its own counters take
a lock each.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from hansard import __version__
from hansard.server.relay_sessions import RelaySessions

if TYPE_CHECKING:
    from hansard.server.request import Request

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, float("inf"))


class _Durations:
    """Durations of the requests of one route."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * len(_BUCKETS)
        self.sum = 0.0


class Metrics(Collector):
    """The counters of one worker."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(
        self, backend: str, relay_sessions: RelaySessions, commits: Callable[[], tuple[int, int]] | None = None
    ) -> None:
        self._relay_sessions = relay_sessions
        self._commits = commits
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._seconds: defaultdict[str, _Durations] = defaultdict(_Durations)
        self._errors: defaultdict[str, int] = defaultdict(int)
        self._received = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        about = Gauge("hansard_info", "What is running.", ("version", "backend"), registry=self._registry)
        about.labels(__version__, backend).set(1)

    def on_response(self, request: Request[Any, Any], status: int, code: str | None) -> None:
        # Requests without a route share one name: clients can send any number of paths.
        action = request.action or "none"
        took = time.perf_counter() - request.started_at
        self._requests[action, status] += 1
        times = self._seconds[action]
        times.counts[bisect_left(_BUCKETS, took)] += 1
        times.sum += took
        self._received += request.received
        if code is not None:
            self._errors[code] += 1

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("hansard_requests", "Requests answered.", labels=("action", "status"))
        for (action, status), count in self._requests.items():
            requests.add_metric((action, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "hansard_request_seconds",
            "From the request's headers to its response, which for an append follows its commit.",
            labels=("action",),
        )
        for action, times in self._seconds.items():
            buckets = zip(map(floatToGoString, _BUCKETS), accumulate(times.counts), strict=True)
            seconds.add_metric((action,), [*buckets], times.sum)
        yield seconds
        errors = CounterMetricFamily("hansard_errors", "Errors by their code.", labels=("code",))
        for code, count in self._errors.items():
            errors.add_metric((code,), count)
        yield errors
        yield from self._grouped()
        yield from self._relayed()
        yield CounterMetricFamily("hansard_received_bytes", "Bytes of bodies received.", value=self._received)

    def _grouped(self) -> Iterator[Metric]:
        if self._commits is not None:
            commits, writes = self._commits()
            yield CounterMetricFamily("hansard_commits", "Commits of the storage.", value=commits)
            yield CounterMetricFamily("hansard_committed_writes", "Writes in those commits.", value=writes)

    def _relayed(self) -> Iterator[Metric]:
        relay_sessions = self._relay_sessions
        yield GaugeMetricFamily("hansard_relays", "Live sessions being relayed.", value=relay_sessions.open)
        events = CounterMetricFamily("hansard_relayed_events", "Events relayed in live sessions.", labels=("of",))
        events.add_metric(("client",), relay_sessions.from_clients)
        events.add_metric(("model",), relay_sessions.from_models)
        yield events
        text = "Live sessions that ended because they could not be recorded."
        yield CounterMetricFamily("hansard_relays_unrecorded", text, value=relay_sessions.unrecorded)

    def render(self) -> bytes:
        return generate_latest(self._registry)
