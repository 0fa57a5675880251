"""Structured logs: one JSON object per line on stderr, with ids and times but no content and no secrets."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from hansard.server.request import Request

_LOG = logging.getLogger("hansard.requests")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up(level: str) -> None:
    """Sends the logs of Hansard and uvicorn to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("hansard", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
    logging.getLogger("hansard").setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class RequestLog:
    """Logs every request at level `info`."""

    def on_response(self, request: Request[Any, Any], status: int, code: str | None) -> None:
        if not _LOG.isEnabledFor(logging.INFO):
            return
        facts = {
            "request_id": request.request_id,
            "action": request.action,
            "status": status,
            "code": code,
            "caller": request.caller.name if request.caller else None,
            "tenant": request.tenant,
            "ms": round((time.perf_counter() - request.started_at) * 1000, 3),
        }
        _LOG.info("answered", extra={"facts": facts})
