"""What a module for one foreign format must offer, and what it makes of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcripts import Transcript
from hansard.model import Message
from hansard.store import Store
from hansard.store.records import Put


class ForeignMessage(Struct, frozen=True, gc=False):
    """A message to store, and the message that it follows; None for the first one of a conversation.

    `message.id` is the id in the foreign program, so that a second import finds what is stored already.
    """

    message: Message
    parent: str | None


class ForeignConversationWriter(Protocol):
    """A conversation that has a way of its own into a store, such as a LangGraph thread with its checkpoints."""

    def count(self) -> int:
        """How many messages it has."""

    async def write(self, store: Store, user_id: str | None) -> None:
        """Stores what is not stored yet, for this owner."""


class ForeignConversation(Struct, frozen=True, kw_only=True):
    """A conversation as a tree of messages. Parents come before their children, siblings in their order."""

    id: str
    messages: list[ForeignMessage]
    leaf: str | None = None
    """The last message of the branch that the foreign program shows. None is the newest message."""
    title: str | None = None
    first_words: str | None = None
    """The title of a conversation that has none yet: a later import may bring a better one."""
    created_at: datetime | None = None
    archived_at: datetime | None = None
    metadata: Mapping[str, Any] = {}
    user_id: str | None = None
    agent_id: str | None = None
    audit_id: str | None = None
    transcript: Transcript | None = None
    """All lines of the file, where the foreign program needs the file to go on."""
    records: list[Put] = []
    """Records of the conversation, for an adapter that continues it. Those that exist already stay as they are."""
    user_records: list[Put] = []
    """The same, of the conversation's owner."""
    is_parsed: bool = False
    """Whether contents and metadata of all messages are values decoded from JSON, which nothing else refers to."""
    writer: ForeignConversationWriter | None = None
    """Stores the conversation instead of `messages`, where it is more than messages."""


class Importer(Protocol):
    """One foreign format. Plugins register theirs under the entry point group `hansard.importers`."""

    @property
    def name(self) -> str:
        """What people pass as `--from`."""

    @property
    def title(self) -> str:
        """The program and its file, for people: `ChatGPT export (conversations.json or zip)`."""

    def recognises(self, source: ImportSource) -> bool:
        """Whether the source is of this format. Reads little: a name, or the first bytes of a file."""

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        """All conversations, one at a time. What is damaged or cannot be kept goes to the report, not to an error."""
