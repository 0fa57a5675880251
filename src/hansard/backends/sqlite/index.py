"""The search index: filled after the appends, kept exact by every write that changes or removes a message.

An append only lists the message in `search_rows`. The terms follow later, in passes of many messages: by the writing
thread while it is idle, by callers of the blocking API now and then, or by a search that finds too long a tail. A
search reads the tail message by message, so it misses nothing. A changed or removed message leaves the index in the
same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import index, itemgetter
from typing import Any

from msgspec import Struct

from hansard import codec
from hansard.analysis import VERSION, columns, searchable, searchable_content, searchable_text
from hansard.backends.shared import lists
from hansard.backends.shared.full_text import columns_of, owner_terms
from hansard.backends.sqlite import rows
from hansard.backends.sqlite.errors import decodes
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import Row
from hansard.backends.sqlite.writer import CachedState, SqliteWriter
from hansard.contract.types import Draft
from hansard.model import Message, Problem

PASS = 1000
"""Messages of one pass between other jobs."""
SHORT_PASS = 200
"""Messages of one pass when idle: a caller that arrives meanwhile waits for that long."""
LONG_PASS = 5000
"""Messages of one pass when a caller waits for the index: fewer and larger passes cost less."""
PASS_CHARACTERS = 8_000_000
"""Characters of the messages of one pass, after which it ends: it holds them twice, as they are and as words."""
_TENANT_SHIFT = 45
_ENTRY_MASK = (1 << _TENANT_SHIFT) - 1
_SLOT_BITS = 12
_SLOT_MASK = (1 << _SLOT_BITS) - 1
_SECOND = 20
"""Bits of the microseconds in a slot, which is about a second. There are slots until the year 2255."""
_LAST_SLOT = (1 << 33) - (1 << 21)
"""The slot of later times. Those after it are for what did not fit into earlier ones."""
_ALWAYS = 1 << 60
"""A lag longer than all times."""
_ALL_FREE = (0, -_ALWAYS)
"""The next number of an empty slot, and a time before the one of any message."""
_SMALL = 256
"""Pages of an index that a deletion rewrites, so that its words are physically gone. `purge` does a larger one."""
_MERGES = 4
"""Merges in a row. Only one that finds nothing to do tells that those before it are done."""
_USUAL = {"automerge": 4, "crisismerge": 16, "hashsize": 1 << 20}
"""FTS5's own settings: how many segments of one size are merged during writes, how many at the latest, and how many
bytes of terms it collects before it writes a segment."""
_BULK = {"automerge": 0, "crisismerge": 1000, "hashsize": 16 << 20}
"""Settings for many passes after which `merge` is called: a pass is one segment, and none is merged twice."""
_MERGED = 1000
"""Pages of the index that are merged at once, after it has become much larger."""
MANY_UNMERGED = 20_000
"""Messages after which segments of the same size are merged, when idle. FTS5 merges four of them during writes, and so
leaves up to three of each size: 24 in an index of three million messages, and a search asks each. Merging them two by
two leaves one of each size. Merging more often costs more: every 1,000 messages twice as much as indexing them."""
_MERGED_IDLE = 100
"""Pages of one merge when idle: a caller that arrives meanwhile waits for about 20 milliseconds."""

Unindexed = tuple[str, str | None, int, int, int, tuple[str, str]]
"""A message to index: the tenant, the user, the conversation, its key, its time and the columns of its text."""
_created_at = itemgetter(4)
_first = itemgetter(0)


class IndexState(Struct, frozen=True, gc=False):
    """How far the index is filled."""

    version: int
    indexed: int
    moved: int
    """How far behind its time the slot of an entry may be."""
    lag: int
    unclean: int
    has_entries: int
    """Whether anything is indexed: 0 or 1."""
    last: int
    tail: int
    """An upper bound of the number of messages that are not indexed yet."""

    @property
    def is_ours(self) -> bool:
        """Returns whether it was built by this version of the analysis. An empty one is usable by every version."""
        return self.version == VERSION or not self.has_entries

    @property
    def is_older(self) -> bool:
        return self.version < VERSION and not self.is_ours


def state_of(connection: sqlite3.Connection) -> IndexState:
    return _state_of(connection.execute(QUERIES["search_state"]).fetchone())


@decodes
def _state_of(row: Row) -> IndexState:
    version, indexed, latest, lag, unclean, has_entries = map(index, row[:-1])
    last = 0 if row[-1] is None else index(row[-1])
    return IndexState(version, indexed, max(0, latest), lag, unclean, has_entries, last, max(0, last - indexed))


def entry_range(connection: sqlite3.Connection, tenant: str) -> tuple[int, int] | None:
    """Returns the range of a tenant's entries; None if nothing of it is indexed."""
    row = connection.execute(QUERIES["find_search_tenant"], (tenant,)).fetchone()
    return _range_of(row) if row else None


@decodes
def _range_of(row: Row) -> tuple[int, int]:
    first = row[0] << _TENANT_SHIFT
    if not 0 <= first < 1 << 63:
        raise ValueError(f"no tenant of the search index has the number {row[0]}")
    return first, first | _ENTRY_MASK


def count(connection: sqlite3.Connection, match: str, between: tuple[int, int], most: int) -> int:
    """Returns how many entries of a tenant match, up to a bound."""
    found: int = connection.execute(QUERIES["count_search_entries"], (match, *between, most)).fetchone()[0]
    return found


def _text_of(row: Sequence[Any]) -> str:
    """Returns the searchable text of a message, from the columns of `tail`. Most have no sources: only the content."""
    _, id, _, format, body, _, extra = row
    if extra is not None and '"sources"' in extra:
        return searchable(rows.message_of(tuple(row), ""))
    return searchable_text(body) if format is None else searchable_content(codec.decode(body, f"message {id!r}"))


text_of = decodes(_text_of)


# Filling


def index_some(writer: SqliteWriter, limit: int = PASS) -> int:
    """Indexes the next messages of the tail; returns an upper bound of how many are left."""
    writer.flush()
    state = state_of(writer.connection)
    if not state.is_ours:
        return 0  # left as it is until it is rebuilt
    with closing(writer.run("to_index", state.indexed, limit)) as waiting:
        found = _first_rows(waiting)
    if not found:
        return 0
    _add(writer, state, found[-1][0], _with_texts(found))
    writer.run("delete_indexed_rows", found[-1][0])
    writer.unmerged += len(found)
    left: int = state.last - found[-1][0]
    return max(0, left)


@decodes
def _first_rows(waiting: Iterable[Row]) -> list[Row]:
    """Returns as many rows of `to_index` as one pass may hold, and at least one."""
    return lists.take(waiting, None, PASS_CHARACTERS, _length)[0]


def _length(row: Row) -> int:
    return len(row[8] or "")


@decodes
def _with_texts(found: Sequence[Row]) -> list[Unindexed]:
    """Decodes the rows of `to_index`. Some messages were deleted before they were indexed."""
    return [
        (tenant, user_id, conversation, row[0], row[-2], columns(_text_of(row)))
        for _, tenant, user_id, conversation, *row in found
        if tenant is not None
    ]


def unindexed(
    tenant: str, user_id: str | None, made: Sequence[Row], placed: Sequence[tuple[Message, Draft]]
) -> list[Unindexed]:
    """Returns what `index_inserted` needs of new messages and their rows."""
    return [
        (tenant, user_id, row[1], row[0], row[6], draft.terms or columns(searchable(message)))
        for row, (message, draft) in zip(made, placed, strict=True)
    ]


def index_inserted(writer: SqliteWriter, inserted: Sequence[Unindexed]) -> bool:
    """Indexes messages that this transaction has inserted, so that no later pass must read them again.

    Returns False, and does nothing, if the index is of another version.
    """
    state = state_of(writer.connection)
    if not state.is_ours:
        return False
    with _without_merging(writer):
        _add(writer, state, state.indexed, inserted)
    writer.loaded += len(inserted)
    return True


def is_much(connection: sqlite3.Connection, loaded: int) -> bool:
    """Returns whether most messages are new: in the tail, or among the `loaded` ones that were indexed at once."""
    entries: int = connection.execute(QUERIES["count_all_search_entries"]).fetchone()[0]
    return state_of(connection).tail + loaded >= max(entries - loaded, LONG_PASS)


def _add(writer: SqliteWriter, state: IndexState, indexed: int, found: Sequence[Unindexed]) -> None:
    """Adds messages to the index."""
    here = sorted(found, key=_created_at)
    slots = _Slots(writer, state.lag, state.moved)
    numbers = slots.take_all({each: _tenant(writer, each) for each in {row[0] for row in here}}, here)
    # In the order of their numbers: FTS5 then inserts them in one pass.
    placed = sorted(zip(numbers, here, _owners_of(here), strict=True), key=_first)
    entries = [(number, *row[-1], owner) for number, row, owner in placed]
    writer.connection.executemany(QUERIES["add_search_entry"], entries)
    listed = [(number, row[3], length_of(row[-1][0])) for number, row, _ in placed]
    writer.insert_all(QUERIES["list_search_entry"], listed)
    writer.insert_all(QUERIES["add_search_place"], sorted([(row[3], number) for number, row, _ in placed]))
    writer.run("save_search_state", VERSION, indexed, slots.moved, slots.lag)


def _owners_of(found: Sequence[Unindexed]) -> Iterator[str]:
    """Yields the owner terms of messages. Most are in the conversation of the one before."""
    before, owner = None, ""
    for _, user_id, conversation, *_ in found:
        if conversation != before:
            before = conversation
            owner = owner_terms(user_id, conversation)
        yield owner


class _Slots:
    """Numbers for new entries, in the order of time: a slot holds those of a second, and what did not fit before."""

    def __init__(self, writer: SqliteWriter, lag: int, moved: int) -> None:
        self.lag = lag
        self.moved = moved
        self._writer = writer
        self._free = writer.free_slots
        self._next = writer.next_slots

    def take_all(self, tenants: Mapping[str, int], found: Sequence[Unindexed]) -> list[int]:
        """Returns a number for each message, which are in the order of time."""
        bases = {each: number << (_TENANT_SHIFT - _SLOT_BITS) for each, number in tenants.items()}
        slots = [bases[row[0]] | _slot(row[4]) for row in found]
        self._look_up({slot for slot in slots if slot not in self._free})
        free, taken = self._free, []
        for slot, row in zip(slots, found, strict=True):
            number, newest = free[slot]
            created_at = row[4]
            # The common case: its slot has room, and nothing newer.
            if number <= _SLOT_MASK and newest <= created_at and 0 <= created_at >> _SECOND < _LAST_SLOT:
                free[slot] = number + 1, created_at
                taken.append(slot << _SLOT_BITS | number)
            else:
                taken.append(self._take(slot, created_at))
        return taken

    def _look_up(self, slots: set[int]) -> None:
        """Finds out what is free in many slots at once."""
        if not slots:
            return
        self._free.update(dict.fromkeys(slots, _ALL_FREE))
        first, last = min(slots) << _SLOT_BITS, max(slots) << _SLOT_BITS | _SLOT_MASK
        if self._writer.one("search_entry_between", first, last) is None:
            return
        for slot, *row in self._writer.run("search_slots", codec.encode([*slots])):
            self._free[slot] = _free_after(row)

    def _take(self, first: int, created_at: int) -> int:
        """Returns a number in the slot of a time, or in a later one."""
        slot = self._next.get(first, first)
        while (free := self._free_in(slot))[0] > _SLOT_MASK:
            slot = self._next[first] = self._next.get(slot, slot + 1)
        number, newest = free
        self._free[slot] = number + 1, max(created_at, newest)
        if not 0 <= created_at >> _SECOND < _LAST_SLOT:
            self.lag = self.moved = _ALWAYS
        elif slot == first:
            self.lag = max(self.lag, newest - created_at)
        else:
            self._note_moved(created_at, slot, newest if number else self._free_in(slot - 1)[1])
        return slot << _SLOT_BITS | number

    def _note_moved(self, created_at: int, slot: int, newest_before: int) -> None:
        """Notes the lag of an entry in a later slot than its own: none if the one before it is not newer."""
        late = _end_of(slot) - created_at
        self.moved = max(self.moved, late)
        if newest_before > created_at:
            self.lag = max(self.lag, min(self.lag + newest_before - created_at, late))

    def _free_in(self, slot: int) -> tuple[int, int]:
        if slot not in self._free:
            first = slot << _SLOT_BITS
            row = self._writer.run("search_slot", first, first | _SLOT_MASK).fetchone()
            self._free[slot] = _free_after(row)
        return self._free[slot]


@decodes
def _free_after(row: Sequence[Any]) -> tuple[int, int]:
    last, newest = row
    return _ALL_FREE if last is None else ((last & _SLOT_MASK) + 1, index(newest))


def _slot(created_at: int) -> int:
    slot = created_at >> _SECOND
    return slot if 0 <= slot <= _LAST_SLOT else _LAST_SLOT if slot > 0 else 0


def _end_of(slot: int) -> int:
    return ((slot & (_ENTRY_MASK >> _SLOT_BITS)) + 1) << _SECOND


def narrowed(between: tuple[int, int], since: int | None, until: int | None, moved: int) -> tuple[int, int]:
    """Returns the part of a tenant's entries that has every message from `since` to `until`."""
    first, last = between
    if until is not None and until + moved < _LAST_SLOT << _SECOND:
        last = first | _slot(until + moved) << _SLOT_BITS | _SLOT_MASK
    if since is not None:
        first |= _slot(since) << _SLOT_BITS
    return first, last


def length_of(words: str) -> int:
    """Returns the number of words in a column."""
    return len(words.split()) if "  " in words else words.count(" ") + bool(words)


def index_many(writer: SqliteWriter) -> int:
    return index_some(writer, LONG_PASS)


def index_bulk(writer: SqliteWriter) -> int:
    """Indexes as part of a rebuild: merges once at the end, not repeatedly."""
    with _without_merging(writer):
        return index_many(writer)


@contextmanager
def _without_merging(writer: SqliteWriter) -> Iterator[None]:
    """The settings are reverted in the same transaction, so the entries are flushed before. A rollback reverts all."""
    for name, value in _BULK.items():
        writer.run("configure_search", name, value)
    yield
    _flush(writer)
    for name, value in _USUAL.items():
        writer.run("configure_search", name, value)


def _flush(writer: SqliteWriter) -> None:
    """Makes FTS5 write the entries that it still holds in memory, by a savepoint."""
    writer.execute("SAVEPOINT merging")
    writer.execute("RELEASE merging")


def _tenant(writer: SqliteWriter, tenant: str) -> int:
    row = writer.one("find_search_tenant", tenant)
    number: int | None = row[0] if row else writer.run("add_search_tenant", tenant).lastrowid
    assert number is not None
    return number


def empty(writer: SqliteWriter) -> None:
    """Empties the index; every message becomes part of the tail."""
    writer.flush()
    writer.run("empty_search")
    writer.run("empty_search_places")
    writer.run("empty_search_entries")
    writer.run("empty_search_rows")
    writer.clear_slots()
    writer.run("refill_search_rows")
    writer.run("save_search_state", VERSION, 0, 0, 0)
    writer.run("set_unclean", 0)


# Updates


def change(writer: SqliteWriter, key: int, before: Message, after: Message) -> None:
    """Updates the entry of a message whose text has changed."""
    place = writer.one("find_search_place", key)
    if place is None:
        return
    old, new = searchable(before), searchable(after)
    entry, user_id, conversation = place
    if old != new and _take_out(writer, entry, old, user_id, conversation):
        words, *others = columns_of(new, user_id, conversation)
        writer.run("add_search_entry", entry, words, *others)
        writer.run("change_search_entry", length_of(words), entry)


def remove(writer: SqliteWriter, above: int, below: int) -> None:
    """Removes the messages of a run. Callers must call it while they are still stored."""
    found = writer.run("indexed_between", above, below).fetchall()
    if not found:
        return
    for entry, user_id, conversation, *row in found:
        _take_out(writer, entry, text_of(row), user_id, conversation)
        writer.run("delete_search_entry", entry)
    writer.run("delete_search_places", above, below)


def change_owner(writer: SqliteWriter, entry: CachedState, user_id: str | None) -> None:
    """Changes the owner of a conversation, which is part of its messages' search terms."""
    before = entry.state.conversation.user_id
    if user_id == before:
        return
    writer.flush()
    for place, *row in writer.run("indexed_of_conversation", entry.pk).fetchall():
        text = text_of(row)
        if _take_out(writer, place, text, before, entry.pk):
            writer.run("add_search_entry", place, *columns_of(text, user_id, entry.pk))


def _take_out(writer: SqliteWriter, entry: int, text: str, user_id: str | None, conversation: int) -> bool:
    """Returns False if it is not possible: an index of another version has other terms, and is not searched."""
    writer.run("set_unclean", 1)
    if not state_of(writer.connection).is_ours:
        return False
    writer.run("remove_search_entry", entry, *columns_of(text, user_id, conversation))
    return True


def clean(writer: SqliteWriter) -> bool:
    """Merges deleted entries out of the index, if it is small; returns whether none is left."""
    if not state_of(writer.connection).unclean:
        return True
    return writer.one("is_large_search", _SMALL) is None and clean_some(writer, _SMALL)


def clean_some(writer: SqliteWriter, pages: int) -> bool:
    """Merges deleted entries out of a part of the index; returns whether none is left."""
    state = state_of(writer.connection)
    return not state.unclean or (state.is_ours and any(merge(writer, pages) for _ in range(_MERGES)))


def merge(writer: SqliteWriter, pages: int = _MERGED) -> bool:
    """Merges the index towards one segment, which is searched several times as fast; returns whether it is done."""
    if not state_of(writer.connection).is_ours:
        return True  # the rest is removed when it is rebuilt
    if _merge(writer, -pages):
        return False
    writer.run("set_unclean", 0)
    writer.loaded = writer.unmerged = 0
    return True


def merge_equal(writer: SqliteWriter) -> bool:
    """Merges segments of the same size, two by two; returns whether it is done."""
    if state_of(writer.connection).is_ours:
        writer.run("configure_search", "usermerge", 2)
        if _merge(writer, _MERGED_IDLE):
            return False
    writer.unmerged = 0
    return True


def _merge(writer: SqliteWriter, pages: int) -> bool:
    """Returns whether there was anything to merge. A negative number merges everything into one segment."""
    _flush(writer)  # a merge ignores what is still in memory
    before = writer.connection.total_changes
    writer.run("merge_search", pages)
    return writer.connection.total_changes - before >= 2  # the documented sign


# Checking


def check(connection: sqlite3.Connection, tenant: str | None) -> Iterator[Problem]:
    """Checks that the index lists the messages; `check` compares their words."""
    state = state_of(connection)
    if not state.is_ours:
        yield Problem("search index", "it was built by another version: run `hansard reindex`")
        return
    given = (tenant, state.indexed)
    for id, owner, conversation in connection.execute(QUERIES["not_listed_for_search"], given):
        yield Problem(f"{owner}/{conversation}", f"message {id!r} is not in the search index: run `hansard reindex`")
    gone = connection.execute(QUERIES["listed_but_gone"]).fetchall()
    if gone:
        yield Problem("search index", f"{len(gone)} messages in it are gone: run `hansard reindex`")
