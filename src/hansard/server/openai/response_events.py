"""The stream events of a stored response, derived from the response itself.

The same response always produces the same events with the same numbers, in every process. Each text is one delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]

_ENDS = {"completed": "response.completed", "failed": "response.failed"}
"""Types of the last event. There is none for cancelled responses: they end as incomplete."""
_UNKNOWN_YET = dict.fromkeys(("completed_at", "error", "incomplete_details"))


def opening(response: dict[str, Any]) -> Iterator[Event]:
    """Yields the events before any output. A response in progress has only these."""
    begun = {**response, **_UNKNOWN_YET, "status": "in_progress", "output": []}
    begun.pop("usage", None)
    for number, kind in enumerate(("response.created", "response.in_progress")):
        yield {"type": kind, "sequence_number": number, "response": begun}


def of(response: dict[str, Any]) -> Iterator[Event]:
    """Yields all events of a finished response."""
    for number, event in enumerate(_unnumbered(response)):
        yield {**event, "sequence_number": number}


def _unnumbered(response: dict[str, Any]) -> Iterator[Event]:
    yield from opening(response)
    for index, item in enumerate(response["output"]):
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
        at = {"item_id": item.get("id", ""), "output_index": index}
        for event in _of_item(item):
            yield {**event, **at}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": _ENDS.get(response["status"], "response.incomplete"), "response": response}


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    """Returns an item without its content."""
    empty: dict[str, Any] = {
        "message": {"content": []},
        "reasoning": {"summary": []},
        "function_call": {"arguments": ""},
    }
    begun = {**item, **empty.get(item.get("type", ""), {})}
    return {**begun, "status": "in_progress"} if item.get("status") == "completed" else begun


def _of_item(item: dict[str, Any]) -> Iterator[Event]:
    kind = item.get("type")
    if kind == "message":
        yield from _of_content(item)
    elif kind == "reasoning":
        yield from _of_reasoning(item)
    elif kind == "function_call":
        argument_text = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", "delta": argument_text}
        yield {"type": "response.function_call_arguments.done", "arguments": argument_text, "name": item["name"]}


def _of_content(item: dict[str, Any]) -> Iterator[Event]:
    for index, part in enumerate(item["content"]):
        at = {"content_index": index}
        kind = part.get("type")
        field = "refusal" if kind == "refusal" else "text"
        yield {"type": "response.content_part.added", **at, "part": {**part, field: ""} if field in part else part}
        if kind == "output_text":
            logs = {"logprobs": part.get("logprobs") or []}
            yield {"type": "response.output_text.delta", **at, "delta": part["text"], **logs}
            yield {"type": "response.output_text.done", **at, "text": part["text"], **logs}
        elif kind == "refusal":
            yield {"type": "response.refusal.delta", **at, "delta": part["refusal"]}
            yield {"type": "response.refusal.done", **at, "refusal": part["refusal"]}
        yield {"type": "response.content_part.done", **at, "part": part}


def _of_reasoning(item: dict[str, Any]) -> Iterator[Event]:
    for index, part in enumerate(item["summary"]):
        if not isinstance(part, dict) or part.get("type") != "summary_text":
            continue
        at, text = {"summary_index": index}, part.get("text", "")
        yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": text}
        yield {"type": "response.reasoning_summary_text.done", **at, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
