"""Time-sortable ids: 48 bits of milliseconds, then 80 random bits that only grow within a millisecond.

They are written as 32 hex digits, so that they sort as text in the order in which one process made them. The order of
messages never depends on them (`seq` defines it); they sort for people and for indexes.
"""

from __future__ import annotations

import itertools
import os
import threading
import time

_RANDOM_BITS = 80
_RANDOM_BYTES = _RANDOM_BITS // 8
# The top bit of the random part stays clear, so that counting up cannot overflow into the milliseconds.
_CLEAR_TOP = (1 << (_RANDOM_BITS - 1)) - 1
# A system call lets other threads run; too many would split the batches of a group commit.
_POOL = 512 * _RANDOM_BYTES


class _Clock:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.millisecond = -1
        self.pool = b""

    def tick(self) -> str:
        millisecond = time.time_ns() // 1_000_000
        if millisecond > self.millisecond:
            self._turn(millisecond)
        # Within a millisecond, or if the clock went back, ids continue from the last one.
        digits, numbers = self.run
        return digits + next(numbers).to_bytes(_RANDOM_BYTES, "big").hex()

    def _turn(self, millisecond: int) -> None:
        with self.lock:
            if millisecond > self.millisecond:
                # In this order: a thread that sees the new millisecond must find its run.
                self.run = f"{millisecond:012x}", itertools.count(self._random() & _CLEAR_TOP)
                self.millisecond = millisecond

    def _random(self) -> int:
        pool = self.pool or os.urandom(_POOL)
        self.pool = pool[_RANDOM_BYTES:]
        return int.from_bytes(pool[:_RANDOM_BYTES])


_clock = _Clock()


def _reset_after_fork() -> None:
    # A forked child would continue from its parent's last id and make the same ones.
    global _clock  # noqa: PLW0603
    _clock = _Clock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def new_id(prefix: str = "msg_") -> str:
    """Returns `prefix` and 32 hex digits, greater than every earlier id of this process."""
    return prefix + _clock.tick()


def message_id() -> str:
    return "msg_" + _clock.tick()


def conversation_id() -> str:
    return new_id("conv_")


def branch_id() -> str:
    return new_id("branch_")
