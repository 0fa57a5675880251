"""The trace that is going on, where OpenTelemetry is in use."""

from __future__ import annotations

import sys


def current_trace_id() -> str | None:
    """The id of the current span's trace, as 32 hex digits.

    Who has a span has imported OpenTelemetry: where nobody has, there is nothing to ask.
    """
    current = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    if current is None:
        return None
    context = current().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
