"""Joins the chunks of a streamed chat completion. Only its first choice is kept."""

from __future__ import annotations

from typing import Any

_ONCE = ("id", "type", "role", "index", "name")
"""Fields that are sent once or repeated unchanged, so they are not concatenated."""
_COPIED = ("created", "model", "service_tier", "system_fingerprint", "usage")


class Chunks:
    def __init__(self) -> None:
        self.completion: dict[str, Any] = {}
        """The fields outside of the choices, such as the model and the usage."""
        self.finish_reason: str | None = None
        self._message: dict[str, Any] = {}
        self._calls: dict[Any, dict[str, Any]] = {}
        self._latest: dict[Any, Any] = {}
        """The key in `_calls` for the next delta of each index."""

    @property
    def is_finished(self) -> bool:
        return bool(self.finish_reason)

    def add(self, chunk: dict[str, Any]) -> None:
        for name in _COPIED:
            if chunk.get(name):
                self.completion[name] = chunk[name]
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                if isinstance(delta := choice.get("delta"), dict):
                    self._add(delta)

    def _add(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in value if isinstance(value, list) else ():
                    if isinstance(piece, dict):
                        self._add_call(piece)
            elif name != "role":
                _join(self._message, name, value)

    def _add_call(self, piece: dict[str, Any]) -> None:
        """Adds a delta of a tool call. Some endpoints send the same index for every call: a new id is a new call."""
        index, id = piece.get("index", 0), piece.get("id")
        index = index if isinstance(index, int) else 0
        place = self._latest.get(index, index)
        known = self._calls.get(place)
        if known is not None and id and known.get("id") not in (None, id):
            place = (index, len(self._calls))
        self._latest[index] = place
        known = self._calls.setdefault(place, {})
        for name, value in piece.items():
            if name != "index":
                _join(known, name, value)

    def message(self) -> dict[str, Any] | None:
        """Returns the whole message; None if the answer did not finish."""
        if not self.is_finished:
            return None
        answer_fields = _joined(self._message)
        if self._calls:
            answer_fields["tool_calls"] = [{"type": "function", **_joined(each)} for each in self._calls.values()]
        return {"role": "assistant", "content": None, **answer_fields}

    def whole(self, id: str) -> dict[str, Any]:
        """Returns the completion as if it had not been streamed."""
        message = {"refusal": None, **(self.message() or {})}
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": message, "logprobs": None}
        return {
            "created": 0,
            "model": "",
            **self.completion,
            "id": id,
            "object": "chat.completion",
            "choices": [choice],
        }


class _TextPieces(list[str]):
    """The deltas of a text, which are joined once at the end."""


def _join(into: dict[str, Any], name: str, value: Any) -> None:
    known = into.get(name)
    if isinstance(value, str) and name not in _ONCE:
        if not isinstance(known, _TextPieces):
            known = into[name] = _TextPieces()
        known.append(value)
    elif isinstance(value, dict) and isinstance(known, dict | None):
        if known is None:
            known = into[name] = {}
        for each, inner in value.items():
            _join(known, each, inner)
    elif isinstance(value, list) and isinstance(known, list) and not isinstance(known, _TextPieces):
        into[name] = known + value
    elif known is None and (value or name not in into):
        into[name] = value


def _joined(value: Any) -> Any:
    if isinstance(value, _TextPieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _joined(inner) for name, inner in value.items()}
    return value
