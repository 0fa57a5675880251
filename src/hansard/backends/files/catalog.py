"""Queries over all conversations of a tenant: listings, usage, participants, references to blobs.

Every writer keeps its own conversation up to date in the index. Changes that did not reach it, because a writer was
killed or a person changed a file, are found by comparing the inode, size and time of every journal, once after the
index was opened.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from hansard import rules
from hansard.backends.files import line_format, replay
from hansard.backends.files.journals import Journals
from hansard.backends.files.layout import ENDING, files_in
from hansard.backends.files.line_format import ReadPosition, inode_of
from hansard.backends.files.rows import QUERIES
from hansard.backends.files.state import decode_core, decode_rest, decode_usage
from hansard.contract.types import Context, ConversationQuery, Participation
from hansard.errors import TimedOut
from hansard.model import Conversation, UsageRow, to_micros

_BATCH = 100
"""Journals that are read in one transaction of the index, which limits how long other writers wait."""

_DECODED = 2000
"""Size of the cache of decoded conversations."""

_ACTIVITY = "SELECT head, active_at AS at, id FROM conversations WHERE live"
_UPDATES = (
    f"SELECT * FROM ({_ACTIVITY} AND updated_at = active_at{{more}} ORDER BY at {{order}}, id {{order}}) UNION ALL "
    "SELECT * FROM (SELECT head, updated_at AS at, id FROM conversations "
    "WHERE live AND updated_at <> active_at{more_updates} ORDER BY at {order}, id {order})"
)


class Catalog:
    def __init__(self, journals: Journals) -> None:
        self._journals = journals
        self._layout = journals.layout
        self._index = journals.index

    # Synchronising

    def sync(self, *, wait: bool = True, again: bool = False) -> None:
        """Brings the index up to date: from marked journals, or from all of them if they were not compared yet.

        Without `wait`, raises `ConversationMoving` when a journal is being moved. A private index is always compared,
        because other processes do not write to it.
        """
        if wait:
            self._journals.retry_while_moving(lambda: self._sync(again=again))
        else:
            self._sync(again=again)

    def _sync(self, *, again: bool) -> None:
        marked = self._index.marked()
        if again or not self._index.is_synced:
            self._compare()
        elif marked:
            self._update_all(marked)
        if marked and self._index.is_synced:
            for name in marked:
                self._unmark(name)

    def _compare(self) -> None:
        with self._index.synchronising():
            self._update_all(self._changed())

    def _update_all(self, names: Iterable[str]) -> None:
        names = iter(names)
        while chunk := list(islice(names, _BATCH)):
            with self._index.writing():
                for name in chunk:
                    self._update(name)

    def _changed(self) -> Iterator[str]:
        """Yields the names of journals that differ from their row in the index."""
        with self._index.connection(current=True) as connection:
            known = {name: tuple(rest) for name, *rest in connection.execute(QUERIES["files"])}
        for folder in self._layout.folders():
            for file in files_in(self._layout.home / folder, ENDING):
                name = file.name.removesuffix(ENDING)
                try:
                    file_stat = file.stat()
                except FileNotFoundError:
                    continue  # it is being moved, and is still in `known`
                if known.pop(name, None) != (folder, inode_of(file_stat), file_stat.st_size, file_stat.st_mtime_ns):
                    yield name
        yield from known

    def _unmark(self, name: str) -> None:
        """Removes the mark of a journal that the index is up to date with. One that is being written keeps its mark."""
        lock = self._layout.lock(name)
        with contextlib.suppress(TimedOut, OSError), self._journals.locks.hold(lock, "a conversation", timeout=0.0):
            (known,) = self._rows("file_of", name) or (None,)
            if known is not None and _is_same_file(self._layout.journal(known[0], name), known[1:]):
                self._index.unmark(name)
            elif known is None and self._journals.search(name) is None:
                self._index.unmark(name)
                lock.unlink()

    def _update(self, name: str) -> None:
        if self._journals.save(name) is not None:
            return
        target = self._journals.open(name, wait=False)
        if target is not None:
            try:
                # The process that replaced the journal updates the index.
                with contextlib.suppress(replay.JournalReplaced):
                    replay.catch_up(self._index, target)
            finally:
                os.close(target.fd)

    # Queries

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._index.connection(current=True) as connection:
            return connection.execute(QUERIES[query], values).fetchall()

    def names(self) -> list[str]:
        """Returns the names of all journals."""
        return [name for (name,) in self._rows("names")]

    def unindexed(self) -> int:
        """Returns how many messages are not in the search index yet."""
        count: int = self._rows("count_unindexed")[0][0]
        return count

    def select(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        """Returns a page, and whether more conversations match."""
        found: list[Conversation] = []
        wanted = query.offset + query.limit
        with self._index.connection(current=True) as connection:
            for row in _listed(connection, context, query):
                conversation = _conversation(row[0])
                if rules.matches(conversation, query, context):
                    found.append(conversation)
                    if len(found) > wanted:
                        break
        return found[query.offset : wanted], len(found) > wanted

    def conversations(self) -> list[tuple[Conversation, int, int]]:
        """Returns every conversation with the number of its branches and of its summaries."""
        with self._index.connection(current=True) as connection:
            return [_counted(*row) for row in connection.execute(QUERIES["heads"])]

    def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        found: dict[str, list[str]] = {}
        with self._index.connection(current=True) as connection:
            for id, message_id, head in connection.execute(QUERIES["messages_of_user"], (participant_id,)):
                if limit <= 0:
                    break
                if id not in found and not rules.is_visible(_conversation(head), context):
                    continue
                found.setdefault(id, []).append(message_id)
                limit -= 1
        return [Participation(id, ids) for id, ids in found.items()]

    def usage(self) -> list[tuple[str, str, list[UsageRow]]]:
        """Returns id, journal and usage rows of every conversation that has any."""
        with self._index.connection(current=True) as connection:
            rows = connection.execute(QUERIES["usage"])
            return [(id, journal, decode_usage(usage)) for id, journal, usage in rows]

    def overdue(self, context: Context) -> list[str]:
        """Returns the ids of conversations that have expired or whose deletion was not finished."""
        return [id for (id,) in self._rows("overdue", to_micros(context.horizon))]

    def referenced_blobs(self, digests: Iterable[str]) -> Collection[str]:
        """Returns those of these blobs that a message refers to."""
        with self._index.connection(current=True) as connection:
            return {each for each in digests if connection.execute(QUERIES["is_referenced"], (each,)).fetchone()}


def _is_same_file(path: Path, known: tuple[int, int, int]) -> bool:
    inode, size, mtime = known
    return line_format.is_file(path, ReadPosition(inode, size, mtime=mtime))


@lru_cache(_DECODED)
def _conversation(head: bytes) -> Conversation:
    conversation = decode_core(head).conversation
    assert conversation is not None, "only a conversation that exists is live"
    return conversation


def _counted(head: bytes, rest: bytes | None) -> tuple[Conversation, int, int]:
    core = decode_core(head)
    assert core.conversation is not None
    return core.conversation, len(core.branches), len(decode_rest(rest).summaries)


def _listed(connection: sqlite3.Connection, context: Context, query: ConversationQuery) -> sqlite3.Cursor:
    owner = query.user_id if query.user_id is not None else context.user
    kind = "user_id" if owner is not None else "agent_id" if query.agent_id is not None else ""
    values: list[object] = [owner if owner is not None else query.agent_id] if kind else []
    for place in (query.above, query.below):
        if place is not None:
            values += place
    is_by_update = query.sort == "updated_at"
    sql = _sql(is_by_update, kind, query.above is not None, query.below is not None, query.newest_first)
    return connection.execute(sql, values * 2 if is_by_update else values)


@lru_cache(64)
def _sql(by_update: bool, kind: str, above: bool, below: bool, newest_first: bool) -> str:
    """Builds the query from constant fragments only. Each combination walks one index, or merges two."""
    order = "DESC" if newest_first else "ASC"
    if not by_update:
        return f"{_ACTIVITY}{_where(kind, above, below, 'active_at')} ORDER BY active_at {order}, id {order}"
    more, more_updates = _where(kind, above, below, "active_at"), _where(kind, above, below, "updated_at")
    merged = _UPDATES.format(more=more, more_updates=more_updates, order=order)
    return f"{merged} ORDER BY at {order}, id {order}"


def _where(kind: str, above: bool, below: bool, time: str) -> str:
    return "".join(
        (
            f" AND {kind} = ?" if kind else "",
            f" AND ({time}, id) > (?, ?)" if above else "",
            f" AND ({time}, id) < (?, ?)" if below else "",
        )
    )
