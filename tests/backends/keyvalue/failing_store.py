"""A store of one's own that fails at its Nth call, before it does anything or after it did all."""

from __future__ import annotations

from typing import Any, Literal

from tests.contract.keyvalue_stores import DictStore

When = Literal["before", "after", "lost"]
"""`lost`: a put was stored, and is answered as lost, as after a request that was repeated on its way."""


class Failure(Exception):
    """What a cloud store's client raises."""


class FailingStore:
    def __init__(self, inner: DictStore, at: int = 0, when: When = "before") -> None:
        self.inner = inner
        self._at = at
        self._when = when
        self.calls: list[str] = []
        self.written = 0
        self.has_failed = False

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append(f"{name} {args[0]}")
        if len(self.calls) != self._at or (self._when == "lost" and name != "put"):
            return getattr(self.inner, name)(*args)
        self.has_failed = True
        if self._when == "before":
            raise Failure(f"call {self._at}, {name}, was made to fail")
        answer = getattr(self.inner, name)(*args)
        if self._when == "lost":
            return None
        raise Failure(f"the answer of call {self._at}, {name}, {answer!r}, was made to get lost")

    def get(self, key: str) -> Any:
        return self._call("get", key)

    def put(self, key: str, value: bytes, expected_token: int | None) -> Any:
        self.written += len(value)
        return self._call("put", key, value, expected_token)

    def delete(self, key: str, expected_token: int | None) -> Any:
        return self._call("delete", key, expected_token)

    def list(self, prefix: str, after: str, limit: int) -> Any:
        return self._call("list", prefix, after, limit)
