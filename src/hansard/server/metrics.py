"""What Prometheus asks for: counts and times of every route. No tenant, no id: they would be data."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from hansard import __version__

if TYPE_CHECKING:
    from hansard.server.exchanges import Exchange

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The counters of one worker."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, backend: str) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "hansard_requests", "Requests answered.", ("action", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "hansard_request_seconds",
            "From the request's head to its answer, which for an append is its commit.",
            ("action",),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._errors = Counter("hansard_errors", "Errors by their code.", ("code",), registry=self._registry)
        self._received = Counter("hansard_received_bytes", "Bytes of bodies received.", registry=self._registry)
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        """What was asked for before: looking it up by its labels takes longer than counting."""
        about = Gauge("hansard_info", "What is running.", ("version", "backend"), registry=self._registry)
        about.labels(__version__, backend).set(1)

    def answered(self, exchange: Exchange, status: int, code: str | None) -> None:
        # What no route was found for is counted under one name: paths are made by clients, without end.
        action = exchange.endpoint.name if exchange.endpoint else "none"
        known = self._known.get((action, status))
        if known is None:
            known = self._known[action, status] = self._requests.labels(action, status), self._seconds.labels(action)
        requests, seconds = known
        requests.inc()
        seconds.observe(time.perf_counter() - exchange.began)
        if exchange.received:
            self._received.inc(exchange.received)
        if code is not None:
            self._errors.labels(code).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
