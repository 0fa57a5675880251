"""The messages that every contender stores: numbered, about 200 characters, with some metadata.

The number in the text lets a scenario check the order without relying on keys of the store. The metadata makes each
contender encode and decode something, as for real messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BODY = (
    "the order left our warehouse on monday and should reach you before the weekend please keep the number at hand "
    "because the carrier asks for it when nobody opens and the parcel goes to the nearest shop "
)
TRANSCRIPT = "33333333-3333-4333-8333-333333333333"
"""The session of Claude's that the batches belong to."""
_BODIES = [_BODY[turn:] + _BODY[:turn] for turn in range(0, len(_BODY), 7)]


@dataclass(frozen=True, slots=True)
class Sample:
    """One message to store. Role and text follow from its number."""

    number: int
    role: str
    text: str
    metadata: dict[str, Any]


def sample(number: int) -> Sample:
    role = "assistant" if number % 2 else "user"
    return Sample(number, role, f"{number:09d} {_BODIES[number % len(_BODIES)]}", {"model": "small", "n": number})


def samples(count: int, start: int = 0) -> list[Sample]:
    return [sample(number) for number in range(start, start + count)]


def batches(count: int, size: int) -> Iterator[list[Sample]]:
    for start in range(0, count, size):
        yield samples(min(size, count - start), start)


def number_of(text: str) -> int:
    return int(text[:9])


def transcript_batch(number: int) -> list[dict[str, Any]]:
    """What Claude's process mirrors of a turn: a question, an answer, and an entry that is no message."""
    said: list[dict[str, Any]] = [
        {
            "type": sample.role,
            "uuid": str(uuid.uuid4()),
            "sessionId": TRANSCRIPT,
            "timestamp": "2026-11-15T08:00:00.000Z",
            "message": {"role": sample.role, "content": sample.text},
        }
        for sample in samples(2, 2 * number)
    ]
    return [*said, {"type": "last-prompt", "lastPrompt": said[0]["message"]["content"]}]
