"""OpenTelemetry: a span for every request, if its API is installed and configured."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hansard.version import VERSION

if TYPE_CHECKING:
    from hansard.model import Usage
    from hansard.server.request import Request

_AGAIN = 1.0
_CHATS = ("openai_create_response", "openai_create_completion")
"""Requests of OpenAI's wire that a model answers."""


def export_to(endpoint: str) -> None:
    """Sends the spans of this process to an OTLP endpoint, in the background. While it is away, only spans are lost."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"service.name": "hansard", "service.version": VERSION}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint.rstrip("/") + "/v1/traces")))
    trace.set_tracer_provider(provider)


def tracer() -> Traces | None:
    """Returns None if OpenTelemetry is not installed."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    return Traces(trace)


def _gen_ai(request: Request[Any, Any]) -> dict[str, str | int]:
    """Returns the attributes of OpenTelemetry's conventions for generative AI."""
    ids, body = request.subject_ids, getattr(request, "body", None)
    sent: dict[str, Any] = body if isinstance(body, dict) else {}
    conversation = sent.get("conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    usage: Usage | None = getattr(request, "answer_usage", None)
    found = {
        "gen_ai.conversation.id": ids.get("conversation_id") or ids.get("thread_id") or conversation,
        "gen_ai.request.model": sent.get("model"),
        "gen_ai.operation.name": "chat" if request.action in _CHATS else None,
        "gen_ai.provider.name": "openai" if request.action in _CHATS else None,
    }
    if usage is not None:
        found |= {
            "gen_ai.response.model": usage.model,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
    return {name: value for name, value in found.items() if isinstance(value, str | int)}


class Traces:
    """Creates a span after each request, with its start and end time, so that no span is open meanwhile."""

    def __init__(self, trace: Any) -> None:
        from opentelemetry.propagate import extract

        self._trace = trace
        self._extract = extract
        self._tracer = trace.get_tracer("hansard.server")
        self._has_provider = False
        self._check_at = 0.0

    def _is_set_up(self, now: float) -> bool:
        """Whether a tracer provider is configured. Checked once a second until then, because the check is slow."""
        if not self._has_provider and now >= self._check_at:
            self._check_at = now + _AGAIN
            self._has_provider = not isinstance(self._trace.get_tracer_provider(), self._trace.ProxyTracerProvider)
        return self._has_provider

    def on_response(self, request: Request[Any, Any], status: int, code: str | None) -> None:
        if not self._is_set_up(request.started_at):
            return
        action = request.action or "none"
        end = time.time_ns()
        start = end - int((time.perf_counter() - request.started_at) * 1e9)
        parent = request.headers.get(b"traceparent")
        context = None if parent is None else self._extract({"traceparent": parent.decode("latin-1")})
        span = self._tracer.start_span(action, context=context, kind=self._trace.SpanKind.SERVER, start_time=start)
        span.set_attribute("http.request.method", request.method)
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("hansard.request_id", request.request_id)
        for name, value in _gen_ai(request).items():
            span.set_attribute(name, value)
        if code is not None:
            span.set_attribute("error.type", code)
        if status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(end)
