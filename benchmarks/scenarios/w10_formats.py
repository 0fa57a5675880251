"""W10: conversion of a plain-text history to each provider's format, at most 10 us of CPU time per message."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import process_time

from benchmarks.arena import Arena
from benchmarks.contenders.product import as_messages
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import samples
from hansard import Message, formats

TITLE = "W10 formats"
MESSAGES = 1000
ALLOWED, MOST = "10 us a message", 10.0


def run(arena: Arena) -> Iterator[Comparison]:
    messages = [Message(one.role, one.content, format="text") for one in as_messages(samples(MESSAGES))]
    rounds = arena.size(40, quick=5)
    timed_contenders = [TimedContender(format, partial(timed, messages, format), rounds) for format in formats.FORMATS]
    series = {**by_turns(timed_contenders), ALLOWED: [MOST] * rounds}
    judge = Judge(arena.roster, TITLE, series)
    for format in formats.FORMATS:
        yield judge.compare(format, ALLOWED, 1.0)


def timed(messages: list[Message], format: str, _round: int) -> float:
    begin = process_time()
    converted = formats.convert(messages, format)
    cost = process_time() - begin
    check(len(converted) == MESSAGES and not converted.losses, f"{format} has {len(converted)} of {MESSAGES}")
    return cost / MESSAGES * 1e6
