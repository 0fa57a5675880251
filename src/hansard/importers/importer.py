"""What a module for one foreign format must offer, and what it makes of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct, structs

from hansard.contract.types import Draft
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
    draft: Draft | None = None
    """The message ready to store, if it was prepared already: see `preparation`."""


def named(messages: list[ForeignMessage]) -> list[ForeignMessage]:
    """The messages; those without an id are named by their place, so that the next import finds them."""
    if all(each.message.id for each in messages):
        return messages
    found = []
    before = None
    for number, each in enumerate(messages, 1):
        id = each.message.id or f"message-{number}"
        parent = each.parent if each.parent != "" else before
        found.append(ForeignMessage(structs.replace(each.message, id=id), parent))
        before = before if each.message.id else id
    return found


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


def size_of(conversation: ForeignConversation) -> int:
    """About how much is held of a conversation: its messages, the lines of its file, and its records."""
    records = [*conversation.records, *conversation.user_records]
    transcript = conversation.transcript
    messages = conversation.messages
    # Most bytes of a transcript are its messages.
    size = transcript.size if transcript is not None else characters_of([one.message.content for one in messages])
    return size + characters_of([record.value for record in records])


def characters_of(content: Any) -> int:
    """About how long a content is, however deep: a store refuses what is too deep, by its conversation."""
    if type(content) is str:
        return len(content)
    characters = 0
    waiting = [content]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind is str or kind is bytes:
            characters += len(part)
        elif kind is dict:
            waiting += part.values()
        elif kind is list:
            waiting += part
    return characters


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
