"""What scenarios need of a store, ours or another.

All methods are coroutines, so that each workload is written once. The coroutines of a `blocking` contender never
suspend and are driven without an event loop, so that a blocking API is timed as a script uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.samples import Sample


class NotAvailable(Exception):
    """The contender does not support this call."""


class Contender(ABC):
    key: ClassVar[str]
    """Its short name, in scenarios and on the command line."""
    title: ClassVar[str]
    blocking: ClassVar[bool] = False
    package: ClassVar[str]
    """The distribution whose version a result names."""

    thrift: ClassVar[int] = 1
    """Divides its number of operations, so that a slow contender does not dominate the run."""
    per_write: ClassVar[int] = 1
    """Messages per native write: some contenders write whole turns."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        """A file name without suffix for its data, in its own folder."""
        self.url = url
        """The URL that ours connects to; the others ignore it."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    def prepare(self, samples: Sequence[Sample]) -> None:
        """Converts samples to the framework's types, if that is expensive. Never timed."""
        del samples  # most contenders need no conversion

    @abstractmethod
    async def append(self, conversation: str, sample: Sample) -> None:
        """Stores one message, which is durable on return."""

    @abstractmethod
    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        """Stores several messages at once."""

    @abstractmethod
    async def last(self, conversation: str, count: int) -> Sequence[Any]:
        """Returns the newest messages, oldest first, in the contender's own types."""

    @abstractmethod
    def texts(self, messages: Sequence[Any]) -> list[str]:
        """Returns the texts of the result of `last`. Never timed."""

    async def turn(self, conversation: str, question: Sample, answer: Sample) -> Sequence[Any]:
        """Runs a turn of an agent: read the newest 50, write the question, write the answer."""
        history = await self.last(conversation, 50)
        await self.append(conversation, question)
        await self.append(conversation, answer)
        return history


class Lister(Contender):
    """A contender that can list a user's conversations."""

    @abstractmethod
    async def start(self, owners: Mapping[str, str], sample: Sample) -> None:
        """Creates these conversations, each with its owner and one message, as fast as possible."""

    @abstractmethod
    async def newest(self, user_id: str, count: int) -> Sequence[Any]:
        """Returns the user's conversations, newest first, in the contender's own types."""

    @abstractmethod
    def names(self, conversations: Sequence[Any]) -> list[str]:
        """Returns the ids of the result of `newest`. Never timed."""


class Reference(Lister):
    """The bare engine, written by hand, with which the others are compared."""

    @abstractmethod
    async def group(self, appends: Sequence[tuple[str, Sample]]) -> None:
        """Appends one message to each of several conversations, in one transaction."""
