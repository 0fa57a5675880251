"""The running hash of an export: every line after the first, each with one line feed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


class Seal:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, lines: Sequence[bytes]) -> None:
        """Takes lines without their ends."""
        if lines:
            self._hash.update(b"\n".join(lines) + b"\n")

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()
