"""The current trace, if OpenTelemetry is in use."""

from __future__ import annotations

import sys


def current_trace_id() -> str | None:
    """Returns the id of the current span's trace, as 32 hex digits.

    A program with a span has imported OpenTelemetry: if it is not imported, there is no span.
    """
    current = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if current is None:
        return None
    context = current().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
