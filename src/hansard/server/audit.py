"""The audit log: who read, wrote and erased what, and who tried to. It contains ids only, no content and no secret.

Each line is one JSON object, appended with a single write, so that several workers can share a file. A response is sent
only after its line is written. If the line cannot be written, the request fails.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hansard.errors import Unavailable

if TYPE_CHECKING:
    from hansard.server.request import Request


class AuditEntry(Struct, frozen=True, omit_defaults=True):
    at: datetime
    request_id: str
    status: int
    caller: str | None = None
    """The id of a key, or the subject of a token."""
    tenant: str | None = None
    user: str | None = None
    scope: str | None = None
    action: str | None = None
    """The name of the route, as in the OpenAPI document."""
    on: dict[str, str] = {}
    """The ids of the conversation, the message, … that the request was about."""
    code: str | None = None
    """The error code, if the request failed."""


class AuditLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise Unavailable(f"cannot write the audit log {path}: {error.strerror}", retryable=False) from error

    def on_response(self, request: Request[Any, Any], status: int, code: str | None) -> None:
        endpoint, caller = request.endpoint, request.caller
        entry = AuditEntry(
            datetime.now(UTC),
            request.request_id,
            status,
            caller.name if caller else None,
            request.tenant,
            request.user,
            endpoint.scope if endpoint else None,
            request.action,
            request.subject_ids,
            code,
        )
        line = msgspec.json.encode(entry) + b"\n"
        try:
            if os.write(self._file, line) != len(line):
                raise OSError("only a part of the line was written")
        except OSError as error:
            outcome = "unknown" if endpoint is not None and endpoint.scope != "read" else "not_applied"
            raise Unavailable("the audit log cannot be written", outcome=outcome) from error  # type: ignore[arg-type]
