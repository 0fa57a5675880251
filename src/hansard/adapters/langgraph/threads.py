"""What a saver remembers of the threads at hand: where their messages lie, their newest checkpoints, pending writes."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from msgspec import Struct

from hansard.adapters.langgraph.records import Saved, TaskWrites
from hansard.adapters.langgraph.templates import Mould, Moulds
from hansard.model import Message

_CHECKPOINTS = 8
_THREADS = 64
_LOCKS = 64
_WEIGHT = 100_000_000
"""Characters that are remembered of all threads together, where a message counts as a thousand more than it has."""
_PINNED = 4
"""Older checkpoints of a thread whose messages are remembered, because a run may go on from them."""

Runs = tuple[tuple[int, int], ...]
_Place = tuple[str, str, str]
"""Thread, namespace, checkpoint."""


class Line:
    """Messages of a state, one behind the other, and where they lie in the history. It is never changed."""

    def __init__(
        self,
        moulds: Sequence[Mould] = (),
        seqs: Sequence[int] = (),
        row_ids: Sequence[str] = (),
        runs: Runs | None = None,
        newest: int | None = None,
        columns: Moulds | None = None,
    ) -> None:
        self.moulds = moulds
        self._columns = columns
        self._ids: dict[str | None, int] | None = None
        self._weight: int | None = None
        self.seqs = seqs
        """One message of another format may be several here, which have the same seq."""
        self.row_ids = row_ids
        self.runs = tuple(runs_of(seqs)) if runs is None else runs
        self.newest = max(seqs, default=0) if newest is None else newest
        """The greatest seq."""

    def __len__(self) -> int:
        return len(self.moulds)

    def begins(self, messages: Sequence[BaseMessage]) -> bool:
        """Whether the messages are these, and perhaps more."""
        if self._columns is None:
            self._columns = Moulds(self.moulds)
        return self._columns.begin(messages)

    def messages(self) -> list[BaseMessage]:
        """The messages, made anew."""
        return [mould.make() for mould in self.moulds]

    @property
    def weight(self) -> int:
        """How much memory the messages take, roughly."""
        if self._weight is None:
            self._weight = sum(mould.weight for mould in self.moulds)
        return self._weight

    def and_more(self, places: Sequence[Place]) -> Line:
        seqs = [place.seq for place in places]
        moulds = [place.mould for place in places]
        line = Line(
            [*self.moulds, *moulds],
            [*self.seqs, *seqs],
            [*self.row_ids, *(place.row_id for place in places)],
            tuple(runs_of(seqs, self.runs)),
            max(self.newest, *seqs) if seqs else self.newest,
            self._columns.and_more(moulds) if self._columns is not None else None,
        )
        line._weight = self.weight + sum(mould.weight for mould in moulds)
        return line

    def named(self, ids: Iterable[str]) -> list[Place]:
        """The messages of these ids."""
        if self._ids is None:
            self._ids = {mould.given.get("id"): at for at, mould in enumerate(self.moulds)}
        found = [self._ids[id] for id in ids if id in self._ids]
        return [Place(self.moulds[at], self.seqs[at], self.row_ids[at]) for at in found]

    def row_id(self, seq: int) -> str:
        return self.row_ids[self.seqs.index(seq)]

    def places(self) -> Iterator[Place]:
        """Where each message lies."""
        begin = 0
        while begin < len(self.seqs):
            end = begin + 1
            while end < len(self.seqs) and self.seqs[end] == self.seqs[begin]:
                end += 1
            for at in range(begin, end):
                yield Place(self.moulds[at], self.seqs[at], self.row_ids[at], at - begin, end - begin)
            begin = end


class Place(NamedTuple):
    """Where a message lies in the history: which part of a row, of how many."""

    mould: Mould
    seq: int
    row_id: str
    part: int = 0
    parts: int = 1


def line_of(rows: Iterable[tuple[Message, Sequence[Mould]]]) -> Line:
    moulds: list[Mould] = []
    seqs: list[int] = []
    row_ids: list[str] = []
    for row, made in rows:
        moulds += made
        seqs += [row.seq] * len(made)
        row_ids += [row.id] * len(made)
    return Line(moulds, seqs, row_ids)


def runs_of(seqs: Iterable[int], before: Runs = ()) -> Iterator[tuple[int, int]]:
    """Runs of consecutive seqs, after those that there are already."""
    yield from before[:-1]
    first, last = before[-1] if before else (None, None)
    for seq in seqs:
        if first is None or last is None:
            first = seq
        elif seq == last:
            continue  # The parts of one message of another format.
        elif seq != last + 1:
            yield first, last
            first = seq
        last = seq
    if first is not None and last is not None:
        yield first, last


class Thread:
    """A thread's root graph: the branch that it writes to, and which messages of it lie there."""

    def __init__(self, branch: str, line: Line | None = None) -> None:
        self.branch = branch
        self.is_owned = True
        """False for a conversation that others began for nobody."""
        self.head: str = ""
        self.line = line or Line()
        """The messages of the state that was read or put last."""
        self.tail = self.line.newest
        """The newest row of the branch that is known of."""
        self.unheard: list[int] = []
        """Rows before it that others have written while the graph ran, and that are in no state of it yet."""
        self._pinned: deque[tuple[str, Line]] = deque(maxlen=_PINNED)
        self._places: dict[str, list[Place]] = {}
        self._indexed: list[Line] = []

    @property
    def weight(self) -> int:
        return self.line.weight + sum(line.weight for _, line in self._pinned if line is not self.line)

    def hear(self, branch: str, line: Line) -> None:
        """The messages of an older checkpoint, from which a run may go on."""
        self._pinned.append((branch, line))

    def heard(self) -> None:
        """Forgets of what others wrote that which is in the state by now."""
        if self.unheard:
            heard = set(self.line.seqs)
            self.unheard = [seq for seq in self.unheard if seq not in heard]

    def turn_to(self, branch: str) -> None:
        """Goes on with another branch: what lies on this one need not lie there."""
        if branch != self.branch:
            self.branch, self.line, self.unheard = branch, Line(), []
            self._places, self._indexed = {}, []

    def split(self, branch: str, reached: int) -> None:
        """Goes on with a new branch, which has all that this one has up to a seq."""
        self.index()
        self._places = {
            key: kept for key, places in self._places.items() if (kept := [one for one in places if one.seq <= reached])
        }
        self.branch, self.tail = branch, reached
        self.unheard = [seq for seq in self.unheard if seq <= reached]

    def index(self) -> None:
        """Makes every message findable. Put off until a state does not begin with the last one."""
        lines = [self.line, *(line for branch, line in self._pinned if branch == self.branch)]
        for line in lines:
            if not any(line is each for each in self._indexed):
                self.add(line.places())
        self._indexed = lines

    def add(self, places: Iterable[Place]) -> None:
        for place in places:
            known = self._places.setdefault(key_of(place.mould.fields), [])
            if all(each.seq != place.seq or each.part != place.part for each in known):
                known.append(place)

    def named(self, ids: Collection[str]) -> list[Place]:
        """The messages of these ids that are known of."""
        noted = [place for id in ids for place in self._places.get(id, ())]
        return noted + self.line.named(ids) if ids else []

    def find(self, message: BaseMessage, used: Container[tuple[int, int]], known: Container[int]) -> Place | None:
        """Where this very message lies; None for a new or an edited one, or where it lies is taken."""
        for place in self._places.get(key_of(message.__dict__), ()):
            if (place.seq, place.part) not in used and place.seq not in known and place.mould.is_exactly(message):
                return place
        return None


def key_of(fields: dict[str, Any]) -> str:
    """By what a message is looked for: its id, or else its text."""
    id = fields.get("id")
    return id or f"@{fields['content']}"


class Said(NamedTuple):
    """The messages of a thread's newest checkpoint, at a version of the conversation.

    Reading rows and making moulds of them costs more than making messages. While the version is the same, so are the
    rows.
    """

    version: int
    head: str
    branch: str
    line: Line

    def is_at(self, version: int, head: str, branch: str | None) -> bool:
        return (self.version, self.head, self.branch) == (version, head, branch)


class Known(Struct):
    """A checkpoint that was put or read lately, and the revision of its record."""

    saved: Saved
    revision: int


class Threads:
    """The threads and checkpoints that were used last, a bounded number of each."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._checkpoints: OrderedDict[_Place, Known] = OrderedDict()
        self._tasks: OrderedDict[_Place, dict[str, TaskWrites]] = OrderedDict()
        self._said: dict[str, Said] = {}
        self.in_flight: set[tuple[_Place, str]] = set()
        """Tasks whose writes are being stored just now."""
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def turn(self, thread_id: str) -> asyncio.Lock:
        """For whoever puts a checkpoint of a thread: two runs would change what is remembered under each other."""
        return self._turns.setdefault((id(asyncio.get_running_loop()), thread_id), asyncio.Lock())

    def lock(self, thread_id: str) -> threading.Lock:
        """The same for blocking code, which the system runs at once; some threads of graphs share one."""
        return self._locks[hash(thread_id) % _LOCKS]

    def get(self, thread_id: str) -> Thread | None:
        return self._threads.get(thread_id)

    def put(self, thread_id: str, thread: Thread) -> None:
        self._threads[thread_id] = thread
        self._threads.move_to_end(thread_id)
        # The thread itself stays, however long it is: it is being used.
        while len(self._threads) > _THREADS or (len(self._threads) > 1 and self._weight() > _WEIGHT):
            self._said.pop(self._threads.popitem(last=False)[0], None)

    def _weight(self) -> int:
        lines = [(self._threads[id].line, said.line) for id, said in self._said.items() if id in self._threads]
        more = sum(said.weight for line, said in lines if said is not line)
        return more + sum(thread.weight for thread in self._threads.values())

    def said(self, thread_id: str) -> Said | None:
        return self._said.get(thread_id)

    def say(self, thread_id: str, said: Said | None) -> None:
        """Remembers it as long as the thread."""
        if said is not None and thread_id in self._threads:
            self._said[thread_id] = said
        else:
            self._said.pop(thread_id, None)

    def known(self, thread_id: str, checkpoint_ns: str, id: str | None) -> Known | None:
        return self._checkpoints.get((thread_id, checkpoint_ns, id)) if id else None

    def know(self, thread_id: str, checkpoint_ns: str, id: str, known: Known) -> None:
        self._checkpoints[thread_id, checkpoint_ns, id] = known
        _shorten(self._checkpoints)

    def tasks(self, thread_id: str, checkpoint_ns: str, id: str) -> dict[str, TaskWrites]:
        """The writes of a checkpoint that lie in records of their own. They may come before the checkpoint."""
        found = self._tasks.setdefault((thread_id, checkpoint_ns, id), {})
        _shorten(self._tasks)
        return found

    def drop(self, thread_id: str, checkpoint_ns: str, id: str, folded: dict[str, TaskWrites]) -> None:
        """Forgets writes that were folded into their checkpoint."""
        kept = self._tasks.get((thread_id, checkpoint_ns, id), {})
        for task_id, task in folded.items():
            if kept.get(task_id) is task:
                del kept[task_id]

    def forget(self, thread_id: str) -> None:
        self._threads.pop(thread_id, None)
        self.say(thread_id, None)
        for kept in (self._checkpoints, self._tasks):
            for key in [key for key in kept if key[0] == thread_id]:
                kept.pop(key, None)


def _shorten(kept: OrderedDict[_Place, Any]) -> None:
    while len(kept) > _THREADS * _CHECKPOINTS:
        kept.popitem(last=False)
