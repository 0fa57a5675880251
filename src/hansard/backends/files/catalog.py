"""A catalogue of a tenant's conversations: for listings, usage and references to blobs. A cache, and only that.

It is filled once by a look at every journal's size and time; then the log of changes says which ones to look at again.
What it knew is written down when a process ends, so that the next one reads only what has changed since.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec
from msgspec import Struct

from hansard import rules
from hansard.backends.files.changes import Reader
from hansard.backends.files.disk import Disk
from hansard.backends.files.index import Index
from hansard.backends.files.layout import ENDING, files_in
from hansard.backends.files.shelf import Busy, Journal, Shelf
from hansard.backends.memory.listing import Listing
from hansard.contract.types import Context, ConversationQuery
from hansard.cursors import sort_time
from hansard.errors import Corrupt, FormatMismatch
from hansard.model import Conversation, UsageRow

_FORMAT = 1
_FEW = 100
"""So many journals that changed are kept in mind after they were looked at."""
_RECENT = 2_000_000_000
"""A file may change again within the grain of its time: what is younger, in nanoseconds, is looked at again."""

Facts = tuple[int, int, int]
"""Number, size and time of a file."""


class Card(Struct, omit_defaults=True):
    """What the catalogue holds of a conversation."""

    name: str
    id: str
    facts: Facts
    journal: str
    conversation: Conversation | None
    """None when it was deleted, and only its journal is still there."""
    branches: int = 1
    summaries: int = 0
    digests: list[str] = []
    users: list[str] = []
    usage: list[UsageRow] = []


class Saved(Struct):
    format: int
    cards: list[Card]


_encode = msgspec.json.Encoder().encode
_saved = msgspec.json.Decoder(Saved)


class Catalog:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._layout = shelf.layout
        self._log = Reader(shelf.layout.changes)
        self._is_filled = False
        self._changed = 0
        self._due: set[str] = set()
        self.mutex = threading.RLock()
        """Held by whoever looks at what follows."""
        self.cards: dict[str, Card] = {}
        self.conversations: dict[str, Conversation] = {}
        self._listing = Listing()
        self.holders: Counter[str] = Counter()
        """How many conversations refer to a blob."""

    def __len__(self) -> int:
        return len(self.cards)

    def sync(self, *, wait: bool = True) -> None:
        """Brings it up to date. Without `wait`, `Busy` when a conversation cannot be found just now."""
        if wait:
            self._shelf.patiently(self._catch_up)
        else:
            self._catch_up()

    def _catch_up(self) -> None:
        with self.mutex:
            names = self._log.read_on()
            if names is None:
                # A first log, or a first look at another one.
                self._shelf.changes.ensure()
                self._log.read_on()
            if names is None or not self._is_filled:
                self._look_at_all()
                names = self._log.read_on() or set()
            # What cannot be read now is tried again next time.
            self._due |= names | self._log.unsettled
            for name in list(self._due):
                self._look(name, keep=len(self._due) <= _FEW)
                self._due.discard(name)
            if self._log.is_long:
                self._shelf.changes.renew(self._log.unsettled)

    def select(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        """A page, and whether there are more."""
        walked = (self.conversations[id] for id in self._listing.walk(query, context.user))
        matching = (each for each in walked if rules.matches(each, query, context))
        page = list(islice(matching, query.offset, query.offset + query.limit + 1))
        return page[: query.limit], len(page) > query.limit

    def forget_gone(self) -> None:
        """Takes away what the log of changes and all that was written down say of conversations that are gone."""
        with self.mutex:
            self._shelf.changes.renew(self._log.unsettled)
            with contextlib.suppress(OSError):
                self._layout.catalog.unlink(missing_ok=True)
            self._changed += len(self.cards)
            self._shelf.forget_gone(self.cards)

    # Filling

    def _look_at_all(self) -> None:
        if not self.cards:
            self._fill(self._load())
        self._is_filled = False
        seen = set()
        for folder in self._layout.folders():
            for file in files_in(self._layout.home / folder, ENDING):
                name = file.name.removesuffix(ENDING)
                seen.add(name)
                card = self.cards.get(name)
                with contextlib.suppress(FileNotFoundError):
                    if card is not None and card.facts == _facts(file.stat()):
                        continue
                self._look(name, keep=False)
        for name in self.cards.keys() - seen:
            self._look(name, keep=False)
        self._is_filled = True

    def _fill(self, cards: Iterable[Card]) -> None:
        self.cards = {card.name: card for card in cards}
        self.conversations, self._listing = {}, Listing()
        # In their order, so that each goes to the end of the list.
        found = [card.conversation for card in self.cards.values() if card.conversation]
        for conversation in sorted(found, key=lambda each: (sort_time(each, "last_message_at"), each.id)):
            self._enlist(conversation)
        self.holders = Counter(digest for card in self.cards.values() for digest in card.digests)

    def _look(self, name: str, *, keep: bool) -> None:
        journal = self._shelf.known(name) or (self._shelf.journal(name) if keep else Journal(name))
        with self._shelf.opened(journal, wait=False) as found:
            if found is None:
                self._shelf.forget(name)
                self._drop(name)
                return
            fd, _, index = found
            self._shelf.weigh(journal)
            with journal.mutex:
                card = _card(name, _facts(os.fstat(fd)), index)
        self._drop(name)
        if card is not None:
            self._add(card)

    def _drop(self, name: str) -> None:
        card = self.cards.pop(name, None)
        if card is not None:
            self._changed += 1
            for digest in card.digests:
                self.holders[digest] -= 1
                if not self.holders[digest]:
                    del self.holders[digest]
            if card.conversation is not None:
                self._listing.remove(self.conversations.pop(card.conversation.id))

    def _add(self, card: Card) -> None:
        self._changed += 1
        self.cards[card.name] = card
        self.holders.update(card.digests)
        if card.conversation is not None:
            self._enlist(card.conversation)

    def _enlist(self, conversation: Conversation) -> None:
        self.conversations[conversation.id] = conversation
        self._listing.add(conversation)

    # From one process to the next

    def _load(self) -> list[Card]:
        """What an earlier process knew; nothing when that is damaged."""
        try:
            data = self._layout.catalog.read_bytes()
            body, check = data[:-9], data[-9:]
            saved = _saved.decode(body)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return []
        return saved.cards if check == _check(body) and saved.format == _FORMAT else []

    def save(self) -> None:
        """Writes it down, where that would spare the next process much."""
        with self.mutex:
            if not self._is_filled or self._changed < max(_FEW, len(self.cards) // 10):
                return
            try:
                # Others may have deleted what this one still remembers.
                self.sync(wait=False)
            except (Busy, Corrupt, FormatMismatch, OSError):
                return
            latest = time.time_ns() - _RECENT
            cards = [card for card in self.cards.values() if card.facts[2] < latest]
            body = _encode(Saved(_FORMAT, cards))
            self._changed = 0
        # It need not wait for the disk: a checksum tells whether it arrived.
        with contextlib.suppress(OSError):
            writes = Disk(durable=False)
            writes.make_folder(self._layout.cache, within=self._layout.home)
            writes.replace(self._layout.catalog, [body, _check(body)])


def _check(body: bytes) -> bytes:
    return b"\n%08x" % zlib.crc32(body)


def _facts(stat: os.stat_result) -> Facts:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _card(name: str, facts: Facts, index: Index) -> Card | None:
    """None for a journal that was cut off in its first line."""
    if not index.spot.lines:
        return None
    usage = list(index.usage.values())
    if index.head is None or index.deleted is not None:
        return Card(name, index.id, facts, index.journal, None, 0, usage=usage)
    return Card(
        name,
        index.id,
        facts,
        index.journal,
        index.head.conversation,
        len(index.head.lanes),
        len(index.summaries),
        sorted(index.digests()),
        sorted(index.users),
        usage,
    )
