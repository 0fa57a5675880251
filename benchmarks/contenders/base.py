"""What a scenario asks of a store, ours or another's.

All methods are coroutines, so that each workload is written once. A `blocking` contender never suspends: its
coroutines finish in one step and are driven without an event loop, so that a blocking API is timed as a plain
script uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.samples import Sample


class NotAvailable(Exception):
    """The contender has no such call, or not yet."""


class Contender(ABC):
    key: ClassVar[str]
    """Its short name, in scenarios and on the command line."""
    title: ClassVar[str]
    blocking: ClassVar[bool] = False
    package: ClassVar[str]
    """The distribution whose version a result names."""

    thrift: ClassVar[int] = 1
    """How many times fewer operations than the others it gets, so that a slow one does not fill the run."""
    per_write: ClassVar[int] = 1
    """How many messages one native write holds: some write whole turns."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        """Where to keep data: a file name without suffix, in a folder of its own."""
        self.url = url
        """What ours connects to; the others have no choice of storage here."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    def prepare(self, samples: Sequence[Sample]) -> None:
        """Make what a framework hands to its store of these samples, where that is dear. Never timed."""
        del samples  # most are handed over as they are

    @abstractmethod
    async def append(self, conversation: str, sample: Sample) -> None:
        """Store one message; on return it is durable."""

    @abstractmethod
    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        """Store several messages at once."""

    @abstractmethod
    async def last(self, conversation: str, count: int) -> Sequence[Any]:
        """The newest messages, oldest first, in the contender's own types."""

    @abstractmethod
    def texts(self, messages: Sequence[Any]) -> list[str]:
        """The texts of what `last` returned. Never timed."""

    async def turn(self, conversation: str, question: Sample, answer: Sample) -> Sequence[Any]:
        """What an agent does: read the newest 50, write the question, write the answer."""
        history = await self.last(conversation, 50)
        await self.append(conversation, question)
        await self.append(conversation, answer)
        return history


class Lister(Contender):
    """A contender that knows its users' conversations."""

    @abstractmethod
    async def start(self, owners: Mapping[str, str], sample: Sample) -> None:
        """Make these conversations, each with its owner and one message, as fast as it can."""

    @abstractmethod
    async def newest(self, user_id: str, count: int) -> Sequence[Any]:
        """The user's conversations, newest first, in the contender's own types."""

    @abstractmethod
    def names(self, conversations: Sequence[Any]) -> list[str]:
        """The ids of what `newest` returned. Never timed."""


class Reference(Lister):
    """What the engine allows, written by hand: the others are measured against it."""

    @abstractmethod
    async def group(self, appends: Sequence[tuple[str, Sample]]) -> None:
        """Append one message to each of several conversations, in one transaction."""
