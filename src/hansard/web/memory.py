"""What was made lately, up to so many bytes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

_OVERHEAD = 200
"""What an entry takes beside its text."""


class Memory:
    """Texts by the digest of what they were made from; those that were not asked for longest go first."""

    def __init__(self, most: int) -> None:
        self._lock = Lock()
        self._most = most
        self.size = 0
        self._kept: OrderedDict[bytes, str] = OrderedDict()

    def get(self, key: bytes) -> str | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: bytes, text: str) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self.size += _size(text) - (0 if before is None else _size(before))
            self._kept[key] = text
            while self.size > self._most:
                _, old = self._kept.popitem(last=False)
                self.size -= _size(old)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.size = 0


def _size(text: str) -> int:
    return len(text) + _OVERHEAD


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=20).digest()
