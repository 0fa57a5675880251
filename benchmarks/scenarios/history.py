"""Creates a conversation of a given length, and verifies that every message is stored once and in order."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.contenders import Contender
from benchmarks.measure import check
from benchmarks.samples import batches, number_of

BATCH = 1000


async def fill(contender: Contender, conversation: str, count: int) -> None:
    for batch in batches(count, BATCH):
        await contender.append_many(conversation, batch)


async def verify(contender: Contender, conversation: str, count: int) -> None:
    """Verifies that the conversation contains the samples 0 to `count`, and nothing else."""
    found = contender.texts(await contender.last(conversation, count + 1))
    verify_numbers(contender, conversation, found, range(count))


async def verify_last(contender: Contender, conversation: str, count: int, last: int) -> None:
    """Verifies the newest messages of a conversation of that length."""
    found = contender.texts(await contender.last(conversation, last))
    verify_numbers(contender, conversation, found, range(max(0, count - last), count))


def verify_numbers(contender: Contender, conversation: str, texts: Sequence[str], wanted: range) -> None:
    numbers = [number_of(text) for text in texts]
    check(
        numbers == list(wanted),
        f"{contender.title}: {conversation} should hold {wanted}, but has {len(numbers)} messages: {numbers[:5]} ...",
    )
