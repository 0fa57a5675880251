"""A conversation as its journal tells it: the head, and where each message stands.

Messages stay in the file. For each line of messages there is a table of numbers, in the order of seq; so the newest N
are found, and read, at the cost of N. What a write does here is exactly what reading its line again would do.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import chain

from msgspec import UNSET, structs

from hansard import rules
from hansard.backends.files import entries, lines
from hansard.backends.files.entries import Entry, Stub
from hansard.backends.files.lines import Piece, Spot
from hansard.backends.files.tables import Row, Table
from hansard.contract.storage import Run, Span
from hansard.contract.types import Head
from hansard.model import NOT_YET, Summary, UsageRow, from_micros, to_micros

_LINE_SHIFT = 40
_SEQ_MASK = (1 << _LINE_SHIFT) - 1


class Index:
    """All that a journal says about its conversation."""

    def __init__(self) -> None:
        self.spot = Spot()
        self.id = ""
        self.journal = ""
        self.head: Head | None = None
        self.deleted: Entry | None = None
        self.tables: dict[int, Table] = {}
        self.places: dict[str, int] = {}
        self.summaries: list[Summary] = []
        self.usage: dict[rules.UsageKey, UsageRow] = {}
        self.refs: dict[int, tuple[str, ...]] = {}
        """By seq, the blobs of messages that have any."""
        self.pinned: set[int] = set()
        """The seqs of pinned messages."""
        self.users: set[str] = set()
        """Participants of kind user, and perhaps some who have left."""
        self.owners: set[str] = set()
        self.top = 0
        self.waste = 0
        """Bytes in the journal that a rewrite would leave out."""

    # Finding

    def find(self, message_id: str) -> Row | None:
        place = self.places.get(message_id)
        if place is None:
            return None
        table = self.tables[place >> _LINE_SHIFT]
        return table.row(table.find(place & _SEQ_MASK))

    def place(self, row: Row) -> int:
        """What `places` says of the message in that row."""
        return row.line << _LINE_SHIFT | row.seq

    def spans(self, branch: str | None) -> list[tuple[Table, int]]:
        """The tables that a branch reads, oldest first, and how many messages of each."""
        assert self.head is not None
        parts = rules.segments(self.head.lane(branch))
        return [
            (table, table.upto(seq)) for line, seq in parts if (table := self.tables.get(line)) is not None and table
        ]

    def between(self, runs: Sequence[Run], newest: int | None = None) -> list[Row]:
        """The messages of these runs in order: all, or only so many from the end."""
        found: list[Row] = []
        for run in reversed(runs):
            table, start, end = self._part(run)
            if newest is not None:
                start = max(start, end - (newest - len(found)))
            found[:0] = table.rows(start, end)
        return found

    def span(self, run: Run) -> Span:
        table, start, end = self._part(run)
        return Span(end - start, table.seq[start], table.seq[end - 1]) if start < end else Span()

    def _part(self, run: Run) -> tuple[Table, int, int]:
        """The table of a run's segment, and where in it the run begins and ends."""
        table = self.tables.get(run.segment) or Table(run.segment)
        start = table.upto(run.after)
        return table, start, max(start, table.upto(run.upto))

    def ids(self, runs: Sequence[Run]) -> list[str]:
        """The ids of the messages of these runs."""
        wanted = {self.place(row) for row in self.between(runs)}
        return [id for id, place in self.places.items() if place in wanted] if wanted else []

    def all_rows(self, after: int = 0) -> Iterator[Row]:
        """Of every line, in the order of seq."""
        tables = self.tables.values()
        return merge(*(table.rows(table.upto(after), len(table)) for table in tables), key=lambda row: row.seq)

    def last_time(self, without: Collection[str]) -> datetime | None:
        """The time of the last message, the ones of these ids aside."""
        gone = {self.places[id] & _SEQ_MASK for id in without if id in self.places}
        last = max((table.last(gone) for table in self.tables.values()), default=None)
        return from_micros(last[1]) if last and last[0] else None

    def last_segment(self) -> int:
        """The highest number that a segment of this conversation has, or had."""
        assert self.head is not None
        return max(self.top, *(lane.line for lane in self.head.lanes.values()))

    def digests(self, ids: Iterable[str] | None = None) -> set[str]:
        """Blobs that these messages refer to, or all."""
        if ids is None:
            return set(chain.from_iterable(self.refs.values()))
        return {digest for id in ids for digest in self.refs.get(self.places[id] & _SEQ_MASK, ())}

    # Reading on

    def apply(self, line: bytes, at: int) -> None:
        entry = entries.decode_entry(line)
        if entry.hansard:
            lines.check_format(entry.hansard, f"the journal of conversation {entry.id!r}")
            self.id, self.journal = entry.id, entry.journal
        grown = len(self.places)
        self._remove(entry)
        if entry.messages:
            for raw, piece in lines.pieces(line, at, entries.MESSAGES, entry.messages):
                self._put(entries.decode_stub(raw), piece)
        if len(self.places) <= grown:
            self.waste += len(line)
        self.change(entry)

    def change(self, entry: Entry) -> None:
        """Takes in everything but messages."""
        self._change_head(entry)
        self._change_rest(entry)

    def _remove(self, entry: Entry) -> None:
        if entry.cleared:
            self.waste += sum(sum(table.length) for table in self.tables.values())
            self.tables, self.places, self.refs, self.pinned, self.top = {}, {}, {}, set(), 0
        for id in entry.removed:
            place = self.places.pop(id)
            table = self.tables[place >> _LINE_SHIFT]
            at = table.find(place & _SEQ_MASK)
            self.waste += table.length[at]
            table.remove(at)
            self.refs.pop(place & _SEQ_MASK, None)
            self.pinned.discard(place & _SEQ_MASK)

    def _put(self, stub: Stub, piece: Piece) -> None:
        place = self.places.get(stub.id)
        if place is None:
            table = self.tables.get(stub.line)
            if table is None:
                table = self.tables[stub.line] = Table(stub.line)
                self.top = max(self.top, stub.line)
            table.add(stub.seq, to_micros(stub.created_at), stub.size, piece)
            self.places[stub.id] = stub.line << _LINE_SHIFT | stub.seq
        else:
            table = self.tables[place >> _LINE_SHIFT]
            at = table.find(place & _SEQ_MASK)
            self.waste += table.length[at]
            table.put(at, stub.size, piece)
            self.refs.pop(stub.seq, None)
            self.pinned.discard(stub.seq)
        if stub.blobs:
            self.refs[stub.seq] = tuple({ref.sha256 for ref in stub.blobs})
        if stub.pinned:
            self.pinned.add(stub.seq)
        self._meet(stub)

    def _meet(self, stub: Stub) -> None:
        if stub.participant is not None and stub.participant.kind == "user":
            self.users.add(stub.participant.id)

    def _change_head(self, entry: Entry) -> None:
        head = self.head
        conversation = head.conversation if head else None
        if entry.conversation is not UNSET:
            conversation = entries.with_facts(conversation, self.id, entry.conversation)
        if conversation is None:
            return
        if conversation.message_count != len(self.places):
            raise ValueError(f"it counts {conversation.message_count} messages, and there are {len(self.places)}")
        lanes = dict(head.lanes) if head else {}
        for id in entry.dropped:
            del lanes[id]
        lanes.update((lane.id, lane) for lane in entry.branches)
        for id, count in entry.counts.items():
            lanes[id] = structs.replace(lanes[id], count=count)
        seq = entry.seq if entry.seq is not UNSET else head.seq if head else 0
        buried = entry.buried if entry.buried is not UNSET else head is not None and head.buried
        self.head = Head(conversation, seq, lanes, buried)

    def _change_rest(self, entry: Entry) -> None:
        self.top = max(self.top, entry.top)
        if entry.summaries is not UNSET:
            self.summaries = entry.summaries
        if entry.summary is not UNSET:
            self.summaries.append(entry.summary)
        for row in entry.usage:
            key = (row.day, row.user_id, row.agent_id, row.model)
            self.usage[key] = rules.add_usage(self.usage[key], row) if key in self.usage else row
        if entry.erased:
            self.usage = {key: row for key, row in self.usage.items() if key[1] != entry.erased}
        self.owners.update(entry.owners)
        if entry.deleted:
            self.deleted = entry

    # Writing anew

    def copy(self) -> Index:
        """A twin that may change without changing this one."""
        twin = Index()
        for name, value in vars(self).items():
            setattr(twin, name, value)
        twin.spot = structs.replace(self.spot)
        twin.tables = {line: table.copy() for line, table in self.tables.items()}
        twin.places, twin.usage, twin.refs = dict(self.places), dict(self.usage), dict(self.refs)
        twin.summaries, twin.users, twin.owners = list(self.summaries), set(self.users), set(self.owners)
        twin.pinned = set(self.pinned)
        return twin

    def whole(self, at: datetime = NOT_YET) -> Entry:
        """Everything but the messages. The nonce tells a file that ends with it from another of the same length."""
        entry = Entry(
            what="snapshot",
            at=at,
            nonce=secrets.token_hex(4),
            top=self.top,
            summaries=self.summaries,
            usage=list(self.usage.values()),
            owners=sorted(self.owners),
        )
        assert self.head is not None
        entries.set_head(entry, None, self.head)
        return entry

    def begin(self) -> None:
        """Before it is led along a new file: nothing is read, nothing is waste."""
        self.spot, self.waste, self.users = Spot(), 0, set()

    def moved(self, row: Row, offset: int, stub: Stub) -> None:
        """A message stands elsewhere in the new file."""
        table = self.tables[row.line]
        table.offset[table.find(row.seq)] = offset
        self._meet(stub)
