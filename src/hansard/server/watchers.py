"""Who looks at every answer: the audit log, the metrics, the log of requests."""

from __future__ import annotations

from typing import Any, Protocol


class Watcher(Protocol):
    def answered(self, exchange: Any, status: int, code: str | None) -> None:
        """Told of every answer before it is sent: `code` is that of its error, if it is one."""


class Watchers:
    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def answered(self, exchange: Any, status: int, code: str | None = None) -> None:
        for watcher in self._watchers:
            watcher.answered(exchange, status, code)
