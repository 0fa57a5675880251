"""A store of one's own at whose calls a test can do something, as another process would at that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.contract.keyvalue_stores import DictStore

Meddler = Callable[[], Any]


class MeddlingStore:
    """Calls `meddler` once: after the first call of the function `at` whose key holds `part` has done its work."""

    def __init__(self, inner: DictStore, at: str, part: str, meddler: Meddler, *, loses_answer: bool = False) -> None:
        self.inner = inner
        self._at = at
        self._part = part
        self._meddler: Meddler | None = meddler
        self._loses_answer = loses_answer

    @property
    def has_meddled(self) -> bool:
        return self._meddler is None

    def _call(self, name: str, *args: Any) -> Any:
        answer = getattr(self.inner, name)(*args)
        meddler = self._meddler
        if meddler is None or name != self._at or self._part not in args[0]:
            return answer
        self._meddler = None
        meddler()
        return None if self._loses_answer else answer

    def get(self, key: str) -> Any:
        return self._call("get", key)

    def put(self, key: str, value: bytes, expected_token: int | None) -> Any:
        return self._call("put", key, value, expected_token)

    def delete(self, key: str, expected_token: int | None) -> Any:
        return self._call("delete", key, expected_token)

    def list(self, prefix: str, after: str, limit: int) -> Any:
        return self._call("list", prefix, after, limit)
