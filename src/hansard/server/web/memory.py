"""What was made lately, up to so many bytes."""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from threading import Lock

_OVERHEAD = 200
"""What an entry takes beside its text."""
_LARGEST = 8
"""What would take more than this part of a memory is not kept: it would push everything else out."""


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
            if before is not None:
                self.size -= _size(before)
            if _size(text) > self._most // _LARGEST:
                return
            self.size += _size(text)
            self._kept[key] = text
            while self.size > self._most:
                _, old = self._kept.popitem(last=False)
                self.size -= _size(old)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.size = 0


def _size(text: str) -> int:
    # In bytes: a character takes one, two or four, as the widest one in the text does.
    return sys.getsizeof(text) + _OVERHEAD


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=20).digest()
