"""The saver's cache of recent threads: positions of messages, newest checkpoints, pending writes."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple
from weakref import WeakValueDictionary

from langchain_core.messages import BaseMessage
from msgspec import Struct

from hansard.adapters.langgraph.records import Saved, TaskWrites, changed
from hansard.adapters.langgraph.references import HistoryPosition, refer_to_rows
from hansard.adapters.langgraph.versions import Version, begin_with
from hansard.cache import Cache
from hansard.model import Message

_THREADS = 64
_CHECKPOINTS = 8 * _THREADS
_LOCKS = 64
_WEIGHT = 100_000_000
"""The most characters cached for all threads together; a message counts a thousand more than it has."""
_MOST_SUBGRAPHS = 1000
"""The most records of subgraphs noted for a thread."""
_PINNED = 4
"""Older checkpoints of a thread whose messages are cached, because a run may continue from them."""

Runs = tuple[tuple[int, int], ...]
_Numbers = dict[str, tuple[int, ...]]
"""The indexes of the messages of a key."""
_Place = tuple[str, str, str]
"""Thread, namespace, checkpoint."""


class StateMessages:
    """The messages of a state in order, with their positions in the history. Immutable."""

    def __init__(
        self,
        versions: Sequence[Version] = (),
        seqs: Sequence[int] = (),
        row_ids: Sequence[str] = (),
        runs: Runs | None = None,
    ) -> None:
        self.versions = versions
        self.seqs = seqs
        """One message of another format may be several here, which have the same seq."""
        self.row_ids = row_ids
        self.runs = tuple(runs_of(seqs)) if runs is None else runs
        self._numbers: _Numbers | None = None
        self._weight: int | None = None

    def __len__(self) -> int:
        return len(self.versions)

    @property
    def newest(self) -> int:
        """The greatest seq."""
        return max((last for _, last in self.runs), default=0)

    def begins(self, messages: Sequence[BaseMessage]) -> bool:
        """Whether the messages begin with these."""
        return begin_with(self.versions, messages)

    def messages(self) -> list[BaseMessage]:
        """Returns new copies of the messages."""
        return [version.make() for version in self.versions]

    @property
    def weight(self) -> int:
        """Roughly how much memory the messages take."""
        if self._weight is None:
            self._weight = sum(version.weight for version in self.versions)
        return self._weight

    def and_more(self, places: Sequence[HistoryPosition]) -> StateMessages:
        seqs, versions = [place.seq for place in places], [place.version for place in places]
        state = StateMessages(
            [*self.versions, *versions],
            [*self.seqs, *seqs],
            [*self.row_ids, *(place.row_id for place in places)],
            tuple(runs_of(seqs, self.runs)),
        )
        state._weight = self.weight + sum(version.weight for version in versions)
        if self._numbers is not None:
            state._numbers = _numbered(versions, dict(self._numbers), len(self))
        return state

    def at(self, key: str) -> Iterator[HistoryPosition]:
        """Yields the positions of the messages of a key."""
        if self._numbers is None:
            self._numbers = _numbered(self.versions, {}, 0)
        return map(self._place, self._numbers.get(key, ()))

    def row_id(self, seq: int) -> str:
        return self.row_ids[self.seqs.index(seq)]

    def places(self) -> Iterator[HistoryPosition]:
        """Yields the position of each message."""
        return map(self._place, range(len(self)))

    def _place(self, number: int) -> HistoryPosition:
        seqs, seq = self.seqs, self.seqs[number]
        first, end = number, number + 1
        while first and seqs[first - 1] == seq:
            first -= 1
        while end < len(seqs) and seqs[end] == seq:
            end += 1
        return HistoryPosition(self.versions[number], seq, self.row_ids[number], number - first, end - first)


def _numbered(versions: Iterable[Version], numbers: _Numbers, begin: int) -> _Numbers:
    for number, version in enumerate(versions, begin):
        key = key_of(version.message)
        numbers[key] = (*numbers.get(key, ()), number)
    return numbers


def state_of(rows: Iterable[tuple[Message, Sequence[Version]]]) -> StateMessages:
    versions: list[Version] = []
    seqs: list[int] = []
    row_ids: list[str] = []
    for row, made in rows:
        versions += made
        seqs += [row.seq] * len(made)
        row_ids += [row.id] * len(made)
    return StateMessages(versions, seqs, row_ids)


def runs_of(seqs: Iterable[int], before: Runs = ()) -> Iterator[tuple[int, int]]:
    """Yields runs of consecutive seqs that continue the existing runs."""
    yield from before[:-1]
    first, last = before[-1] if before else (None, None)
    for seq in seqs:
        if first is None or last is None:
            first = seq
        elif seq == last:
            continue  # Parts of one message of another format.
        elif seq != last + 1:
            yield first, last
            first = seq
        last = seq
    if first is not None and last is not None:
        yield first, last


class Thread:
    """A thread's root graph: the branch that it writes to, and which of its messages are stored there."""

    def __init__(self, branch: str, state: StateMessages | None = None) -> None:
        self.branch = branch
        self.is_owned = True
        """False for a conversation that others created without an owner."""
        self.head: str = ""
        self.state = state or StateMessages()
        """The messages of the state that was last read or put."""
        self.tail = self.state.newest
        """The newest known row of the branch."""
        self.unseen: list[int] = []
        """Rows before it that others wrote while the graph ran, and that no state includes yet."""
        self._pinned: deque[tuple[str, str, StateMessages]] = deque(maxlen=_PINNED)
        """Older checkpoints, or '' for messages that others added to one, with their branches and messages."""
        self._places: dict[str, list[HistoryPosition]] = {}
        self._indexed: list[StateMessages] = []

    @property
    def weight(self) -> int:
        return self.state.weight + sum(state.weight for *_, state in self._pinned if state is not self.state)

    def pin(self, checkpoint_id: str, branch: str, state: StateMessages) -> None:
        """Caches the messages of an older checkpoint, from which a run may continue."""
        self._pinned.append((checkpoint_id, branch, state))

    def has_pinned(self, checkpoint_id: str) -> bool:
        return any(checkpoint_id == each for each, *_ in self._pinned)

    def drop_seen(self) -> None:
        """Drops from `unseen` what the state now contains."""
        if self.unseen:
            seen = set(self.state.seqs)
            self.unseen = [seq for seq in self.unseen if seq not in seen]

    def switch_branch(self, branch: str) -> None:
        """Switches branch; cached positions no longer apply."""
        if branch != self.branch:
            self.branch, self.state, self.unseen = branch, StateMessages(), []
            self._places, self._indexed = {}, []

    def split(self, branch: str, reached: int) -> None:
        """Switches to a new branch, which shares everything up to a seq."""
        self.index()
        self._places = {
            key: kept for key, places in self._places.items() if (kept := [one for one in places if one.seq <= reached])
        }
        self.branch, self.tail = branch, reached
        self.unseen = [seq for seq in self.unseen if seq <= reached]

    def index(self) -> None:
        """Makes every message findable. Postponed until a state does not begin with the last one."""
        states = [self.state, *(state for _, branch, state in self._pinned if branch == self.branch)]
        for state in states:
            if not any(state is each for each in self._indexed):
                self.add(state.places())
        self._indexed = states

    def add(self, places: Iterable[HistoryPosition]) -> None:
        for place in places:
            known = self._places.setdefault(key_of(place.version.message), [])
            if all(each.seq != place.seq or each.part != place.part for each in known):
                known.append(place)

    def place_of(self, message: BaseMessage) -> HistoryPosition | None:
        """Returns the position of exactly this message; None if it is not stored or has been edited since."""
        return next((place for place in self.places(key_of(message)) if place.version.is_exactly(message)), None)

    def places(self, key: str) -> Iterable[HistoryPosition]:
        """Returns the positions of messages of a key, in any version."""
        return chain(self._places.get(key, ()), self.state.at(key))

    def with_references(self, task: TaskWrites) -> TaskWrites:
        """Returns the writes of a task with references to the rows of the messages in them."""
        return changed(task, lambda blob: refer_to_rows(blob, lambda id: self.places(id) if id else ()))

    def find(
        self, message: BaseMessage, used: Container[tuple[int, int]], known: Container[int]
    ) -> HistoryPosition | None:
        """Returns the position of exactly this message; None if it is new, edited, or at a used position."""
        for place in self._places.get(key_of(message), ()):
            if (place.seq, place.part) not in used and place.seq not in known and place.version.is_exactly(message):
                return place
        return None


def key_of(message: BaseMessage) -> str:
    """Returns the key by which a message is looked up: its id, or else its text."""
    return message.id or f"@{message.content}"


class LatestState(NamedTuple):
    """The messages of a thread's newest checkpoint, at a version of the conversation.

    Reading rows and creating messages from them costs more than copying messages. While the version is the same, so are
    the rows.
    """

    version: int
    head: str
    branch: str
    state: StateMessages

    def is_at(self, version: int, head: str, branch: str | None) -> bool:
        return (self.version, self.head, self.branch) == (version, head, branch)


class KnownCheckpoint(Struct):
    """A checkpoint that was put or read recently, and the revision of its record."""

    saved: Saved
    revision: int


class ThreadCache:
    """The threads and checkpoints used last, a bounded number of each."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._checkpoints: Cache[_Place, KnownCheckpoint] = Cache(_CHECKPOINTS)
        self._tasks: Cache[_Place, dict[str, TaskWrites]] = Cache(_CHECKPOINTS)
        self._latest: dict[str, LatestState] = {}
        self.in_flight: set[tuple[_Place, str]] = set()
        """Tasks whose writes are being stored."""
        self._unsettled: dict[str, dict[tuple[tuple[str, ...], str], None]] = {}
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def turn(self, thread_id: str) -> asyncio.Lock:
        """The lock for putting a checkpoint of a thread: two concurrent runs would corrupt its cached state."""
        return self._turns.setdefault((id(asyncio.get_running_loop()), thread_id), asyncio.Lock())

    def lock(self, thread_id: str) -> threading.Lock:
        """The same for blocking code, which runs in several threads; some threads of graphs share a lock."""
        return self._locks[hash(thread_id) % _LOCKS]

    def get(self, thread_id: str) -> Thread | None:
        return self._threads.get(thread_id)

    def put(self, thread_id: str, thread: Thread) -> None:
        self._threads[thread_id] = thread
        self._threads.move_to_end(thread_id)
        # Never evict the thread itself, however long it is: it is in use.
        while len(self._threads) > _THREADS or (len(self._threads) > 1 and self._weight() > _WEIGHT):
            oldest, _ = self._threads.popitem(last=False)
            self._latest.pop(oldest, None)
            self._unsettled.pop(oldest, None)

    def _weight(self) -> int:
        states = [(self._threads[id].state, latest.state) for id, latest in self._latest.items() if id in self._threads]
        more = sum(latest.weight for state, latest in states if latest is not state)
        return more + sum(thread.weight for thread in self._threads.values())

    def latest(self, thread_id: str) -> LatestState | None:
        return self._latest.get(thread_id)

    def remember(self, thread_id: str, latest: LatestState | None) -> None:
        """Caches the latest state as long as the thread."""
        if latest is not None and thread_id in self._threads:
            self._latest[thread_id] = latest
        else:
            self._latest.pop(thread_id, None)

    def known(self, thread_id: str, checkpoint_ns: str, id: str | None) -> KnownCheckpoint | None:
        return self._checkpoints.peek((thread_id, checkpoint_ns, id)) if id else None

    def remember_checkpoint(self, thread_id: str, checkpoint_ns: str, id: str, known: KnownCheckpoint) -> None:
        self._checkpoints.put((thread_id, checkpoint_ns, id), known)

    def tasks(self, thread_id: str, checkpoint_ns: str, id: str) -> dict[str, TaskWrites]:
        """Returns the writes of a checkpoint that are in records of their own. They may come before the checkpoint."""
        return self._tasks.get_or_make((thread_id, checkpoint_ns, id), dict)

    def drop(self, thread_id: str, checkpoint_ns: str, id: str, folded: dict[str, TaskWrites]) -> None:
        """Drops writes that were folded into their checkpoint."""
        kept = self.tasks(thread_id, checkpoint_ns, id)
        for task_id, task in folded.items():
            if kept.get(task_id) is task:
                del kept[task_id]

    def note_subgraph(self, thread_id: str, namespace: tuple[str, ...], key: str) -> None:
        """Notes a record of a subgraph: messages in it may reach the root graph's state and become rows."""
        noted = self._unsettled.setdefault(thread_id, {})
        noted[namespace, key] = None
        if len(noted) > _MOST_SUBGRAPHS:
            noted.pop(next(iter(noted)), None)

    def take_subgraphs(self, thread_id: str) -> list[tuple[tuple[str, ...], str]]:
        """Removes and returns the noted records."""
        return list(self._unsettled.pop(thread_id, ()))

    def forget(self, thread_id: str) -> None:
        """Drops the positions of a thread's messages."""
        self._threads.pop(thread_id, None)
        self.remember(thread_id, None)

    def discard(self, thread_id: str) -> None:
        self.forget(thread_id)
        self._unsettled.pop(thread_id, None)
        self._checkpoints.drop_where(lambda place: place[0] == thread_id)
        self._tasks.drop_where(lambda place: place[0] == thread_id)
