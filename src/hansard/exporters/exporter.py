"""What a module for one format must offer, and what it gets to write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from hansard.exporters.report import ExportReport
from hansard.model import Conversation, Message


class TreeMessage(Struct, frozen=True, gc=False):
    """A message, and the message that it follows; None for the first one of a branch that shares nothing."""

    message: Message
    parent: str | None


class ExportedConversation(Protocol):
    """A conversation to write. Its messages are read while they are iterated over, page by page."""

    @property
    def conversation(self) -> Conversation: ...

    def line(self) -> AsyncIterator[Message]:
        """The messages of the active branch, in order."""

    def tree(self) -> AsyncIterator[TreeMessage]:
        """The messages of all branches, each once, parents before their children."""


class Exporter(Protocol):
    """One format. Plugins register theirs under the entry point group `hansard.exporters`."""

    @property
    def name(self) -> str:
        """What people pass as `--as`."""

    @property
    def title(self) -> str:
        """The format, for people: `OpenAI fine-tuning (JSON Lines)`."""

    @property
    def media_type(self) -> str: ...

    def write(self, conversations: AsyncIterator[ExportedConversation], report: ExportReport) -> AsyncIterator[bytes]:
        """Yields the file in pieces. What the format cannot represent goes to the report, not to an error."""
