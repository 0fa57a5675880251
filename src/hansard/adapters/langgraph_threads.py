"""What a saver remembers of the threads at hand, and how a graph's messages become runs of the history.

The messages of a graph's state are rows of the conversation. A checkpoint holds only where they lie: runs of
consecutive seqs. So it stays small however long the thread is. Rows never change: a message that the graph edits
becomes a new row. When the newest rows of the branch are no longer in the state (a message was edited or removed, or
the graph goes on from an older checkpoint), the history goes on in a new branch from the last row that is; what was
there stays readable on the old one. Rows that the state lacks further up are only hidden from the graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, eq, is_
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from msgspec import Struct

from hansard.adapters.langgraph_messages import copied, row_of, texts_of
from hansard.adapters.langgraph_records import Row, Saved, TaskWrites
from hansard.model import Message
from hansard.store import Store

_CHECKPOINTS = 8
_THREADS = 64
_LONGEST = 10_000
"""Messages beyond which a thread is read anew each time."""

Runs = tuple[tuple[int, int], ...]
_CONTENT = attrgetter("content")
_Place = tuple[str, str, str]
"""Thread, namespace, checkpoint."""


class Place(NamedTuple):
    """Where a message of the state lies in the history."""

    message: BaseMessage
    content: object
    calls: str
    seq: int
    row_id: str


class Said(NamedTuple):
    """The messages of a thread's newest checkpoint, as copies of our own, at a version of the conversation.

    Making a message from its row costs more than reading it. While the version is the same, so are the rows.
    """

    version: int
    head: str
    branch: str
    messages: list[BaseMessage]
    seqs: tuple[int, ...]
    row_ids: list[str]
    runs: Runs

    def is_at(self, version: int, head: str, branch: str | None) -> bool:
        return (self.version, self.head, self.branch) == (version, head, branch)


class Known(Struct):
    """A checkpoint that was put or read lately, and the revision of its record."""

    saved: Saved
    revision: int


class Last(NamedTuple):
    """The messages that were placed last: those with which the next state begins need not be looked at again."""

    messages: Sequence[BaseMessage] = ()
    contents: Sequence[object] = ()
    calls: Sequence[str] = ()
    seqs: tuple[int, ...] = ()
    runs: Runs = ()

    def begins(self, messages: Sequence[BaseMessage]) -> bool:
        """Whether these are the same objects, with the same contents and calls, and perhaps more."""
        return (
            len(messages) >= len(self.messages)
            and all(map(is_, messages, self.messages))
            and all(map(is_, map(_CONTENT, messages), self.contents))
            and all(map(eq, map(calls_of, messages), self.calls))
        )


class Thread:
    """A thread's root graph: where its messages lie, and its newest checkpoints."""

    def __init__(self, branch: str) -> None:
        self.branch = branch
        self.is_owned = True
        """False for a conversation that others began for nobody."""
        self.head: str = ""
        self.tail = 0
        self.last = Last()
        self._places: dict[str, Place] = {}
        self._row_ids: Sequence[str] = ()
        """The rows of messages that were heard again, and have no places yet: making those is put off."""
        self._numbers: dict[str, int] = {}
        self._heard = Last()

    def hear(self, messages: Sequence[BaseMessage], said: Said) -> None:
        """Copies of what was said: they lie where that lies."""
        self.last = self._heard = _last(messages, said.seqs, said.runs)
        self._row_ids = said.row_ids
        self.tail = max(said.seqs, default=0)

    def remember(self, message: BaseMessage, row: Message, said: BaseMessage | None = None) -> None:
        """`said` is the message as it was stored, where somebody may have changed it since."""
        as_stored = said or message
        self._places[key_of(message)] = Place(message, as_stored.content, calls_of(as_stored), row.seq, row.id)
        self.tail = max(self.tail, row.seq)

    def places(self) -> list[Place]:
        """Those of all messages."""
        keys = dict.fromkeys([*map(key_of, self._heard.messages), *self._places])
        return [place for key in keys if (place := self.find(key)) is not None]

    def find(self, key: str) -> Place | None:
        place = self._places.get(key)
        if place is None and self._row_ids:
            if not self._numbers:
                self._numbers = {key_of(each): number for number, each in enumerate(self._heard.messages)}
            number = self._numbers.get(key)
            if number is not None:
                messages, contents, calls, seqs, _ = self._heard
                place = Place(messages[number], contents[number], calls[number], seqs[number], self._row_ids[number])
                self._places[key] = place
        return place

    def seq_of(self, message: BaseMessage) -> int:
        place = self.find(key_of(message))
        assert place is not None
        return place.seq

    def place(self, message: BaseMessage) -> Place | None:
        """Where this very message lies; None for a new or an edited one."""
        place = self.find(key_of(message))
        # A node may have changed the message that we remember, in place: then it is equal, but was not said so.
        if place is None or (place.content, place.calls) != (message.content, calls_of(message)):
            return None
        return place if place.message is message or place.message == message else None


def calls_of(message: BaseMessage) -> str:
    """The tool calls of a message, as they are now. People edit them in place before they let them run."""
    calls = message.__dict__.get("tool_calls")
    return repr(calls) if calls else ""


def _last(messages: Sequence[BaseMessage], seqs: tuple[int, ...], runs: Runs) -> Last:
    return Last(messages, tuple(map(_CONTENT, messages)), tuple(map(calls_of, messages)), seqs, runs)


def key_of(message: BaseMessage) -> str:
    return message.id or f"@{id(message)}"


class Threads:
    """The threads and checkpoints that were used last, a bounded number of each."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._checkpoints: OrderedDict[_Place, Known] = OrderedDict()
        self._tasks: OrderedDict[_Place, dict[str, TaskWrites]] = OrderedDict()
        self._said: OrderedDict[str, Said] = OrderedDict()
        self.in_flight: set[tuple[_Place, str]] = set()
        """Tasks whose writes are being stored just now."""

    def get(self, thread_id: str) -> Thread | None:
        return self._threads.get(thread_id)

    def put(self, thread_id: str, thread: Thread) -> None:
        self._threads[thread_id] = thread
        self._threads.move_to_end(thread_id)
        while len(self._threads) > _THREADS:
            self._threads.popitem(last=False)

    def said(self, thread_id: str) -> Said | None:
        return self._said.get(thread_id)

    def say(self, thread_id: str, said: Said | None) -> None:
        self._said.pop(thread_id, None)
        if said is not None and len(said.messages) <= _LONGEST:
            self._said[thread_id] = said
            while len(self._said) > _THREADS:
                self._said.popitem(last=False)

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
        self._said.pop(thread_id, None)
        for kept in (self._checkpoints, self._tasks):
            for key in [key for key in kept if key[0] == thread_id]:
                kept.pop(key, None)


def _shorten(kept: OrderedDict[_Place, Any]) -> None:
    while len(kept) > _THREADS * _CHECKPOINTS:
        kept.popitem(last=False)


class Placed(NamedTuple):
    """The messages of a state as runs, and the texts of the rows that are new.

    No runs where the state holds only what changes: a delta channel's messages are rebuilt from its writes.
    """

    runs: Runs | None
    texts: dict[bytes, Row]
    said: Said | None = None


async def placed(
    store: Store, thread_id: str, thread: Thread, messages: Sequence[BaseMessage], said: Said | None, *, is_fork: bool
) -> Placed | None:
    """Stores what is new of the messages. None when one of them cannot be a row: then nothing is stored.

    `said` are the messages of the checkpoint that this one follows, where they are at hand.
    """
    last = thread.last if thread.last.begins(messages) else Last()
    rest = messages[len(last.messages) :]
    places = [thread.place(message) for message in rest]
    new = [message for message, place in zip(rest, places, strict=True) if place is None]
    # All that is remembered is taken before the first wait: nodes run meanwhile, and may change messages in place.
    rows, copies, now = [row_of(message) for message in new], list(map(copied, new)), _last(tuple(messages), (), ())
    if any(row is None for row in rows):
        return None
    if rows or is_fork:
        kept = [place for place in places if place]
        if last.messages and (newest := thread.find(key_of(last.messages[last.seqs.index(max(last.seqs))]))):
            kept.append(newest)
        await _leave_what_is_gone(store, thread_id, thread, kept, is_fork=is_fork)
    stored: list[Message] = []
    version = said.version if said is not None else 0
    if rows:
        given = [row for row in rows if row is not None]
        appended = await store.append(thread_id, given, branch=thread.branch, create=False)
        stored, version = appended.messages, appended.version
    for message, row, said_so in zip(new, stored, copies, strict=True):
        thread.remember(message, row, said_so)
    seqs = (*last.seqs, *map(thread.seq_of, rest))
    runs = tuple(runs_of(seqs[len(last.seqs) :], last.runs))
    thread.last = now._replace(seqs=seqs, runs=runs)
    return Placed(runs, _texts(stored), _said_on(said, thread, version, copies, stored))


def _said_on(
    said: Said | None,
    thread: Thread,
    version: int,
    new: Sequence[BaseMessage],
    stored: Sequence[Message],
) -> Said | None:
    """What is said now, if it is what was said and something more, and nobody else has written in between."""
    if said is None or said.branch != thread.branch or version != said.version + bool(stored):
        return None
    if thread.last.seqs != (*said.seqs, *(row.seq for row in stored)):
        return None
    return Said(
        version,
        said.head,
        said.branch,
        [*said.messages, *new],
        thread.last.seqs,
        [*said.row_ids, *(row.id for row in stored)],
        thread.last.runs,
    )


async def noted(store: Store, thread_id: str, thread: Thread, written: Sequence[BaseMessage]) -> Placed:
    """Stores messages that were written to a delta channel; what they remove is not in them."""
    new = [message for message in written if thread.place(message) is None]
    rows = [(message, row) for message in new if (row := row_of(message)) is not None]
    if not rows:
        return Placed(None, {})
    stored = (await store.append(thread_id, [row for _, row in rows], branch=thread.branch, create=False)).messages
    for (message, _), row in zip(rows, stored, strict=True):
        thread.remember(message, row)
    return Placed(None, _texts(stored))


def _texts(stored: Iterable[Message]) -> dict[bytes, Row]:
    """The texts of these rows, each with where it stands. A longer one may hold a shorter: it goes first."""
    found = {text: (row.seq, row.id, which) for row in stored for which, text in enumerate(texts_of(row))}
    return dict(sorted(found.items(), key=lambda item: len(item[0]), reverse=True))


async def _leave_what_is_gone(
    store: Store, thread_id: str, thread: Thread, kept: Sequence[Place], *, is_fork: bool
) -> None:
    """A new branch, when the newest rows of the old one are not in the state any more."""
    last = max(kept, key=lambda place: place.seq, default=None)
    reached = last.seq if last else 0
    if is_fork:
        newest = await store.get_messages(thread_id, last=1, branch=thread.branch)
        thread.tail = newest[-1].seq if newest else 0
    if reached >= thread.tail:
        return
    made = (
        await store.branch(thread_id, at=last.row_id, source=thread.branch)
        if last
        else await store.branch(thread_id, empty=True, source=thread.branch)
    )
    thread.branch, thread.tail = made.id, reached


def runs_of(seqs: Sequence[int], before: Runs = ()) -> Iterator[tuple[int, int]]:
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
