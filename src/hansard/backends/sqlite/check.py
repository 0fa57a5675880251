"""Checks everything that is stored: each conversation, and the search index against its messages.

It works on one snapshot. Looking up each message in the index would take longer the larger it is, so the two are
compared by two walks, over the messages in the order of conversations and over the index in the order of terms. Every
term at its position adds a number to the sum of its message on one walk, and subtracts it on the other: a sum that is
not zero in the end is a difference. Many messages share a sum, so that memory does not grow with the store; only if one
differs, the walks are repeated to tell its messages apart. Some terms are also looked up. The walks advance together,
so that the progress covers both.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from operator import mul

from hansard import codec, rules
from hansard.backends.shared.full_text import columns_of
from hansard.backends.sqlite import index, read, rows
from hansard.backends.sqlite.errors import DRIVER, decodes, next_number, translate
from hansard.backends.sqlite.queries import QUERIES
from hansard.backends.sqlite.rows import Row
from hansard.backends.sqlite.writer import find_state
from hansard.errors import Corrupt, HansardError
from hansard.model import Problem

_PAGE = 20
"""Conversations that are checked in one step."""
_BLOBS = 4
"""Blobs that are checked in one step: each may be large."""
_TERMS = 200_000
"""Terms of the index that are checked in one step, after all messages."""
_SOME = 1_000
"""One of this many terms of the index is looked up."""
_NAMED = 100
"""Messages that are named one by one, of those with wrong index entries."""
_SHARED_SUMS = 65_521
"""Sums that all messages share: a prime, so that messages of one conversation or second have different ones."""
_WEIGHTS = {"words": 1, "more": 3, "owner": 5}
_REMEDY = "run `hansard reindex`"


class Audit:
    """One check of a store, or of one tenant, step by step. It has a connection of its own, which it closes."""

    def __init__(self, connection: sqlite3.Connection, tenant: str | None) -> None:
        self.seen = 0
        """Conversations checked so far."""
        self._connection = connection
        self._tenant = tenant
        self._steps = self._all()
        self._lock = threading.Lock()
        """The caller that waited for a step may be cancelled, and close before the step has ended."""

    def step(self) -> list[Problem] | None:
        """Returns the problems of the next step; None after the last."""
        with self._lock:
            return next(self._steps, None)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _all(self) -> Iterator[list[Problem]]:
        self._connection.execute("BEGIN")
        yield _check_file(self._connection)
        yield list(index.check(self._connection, self._tenant))
        comparison = IndexAudit(self._connection, self._tenant)
        for page in self._conversations():
            problems: list[Problem] = []
            for pk, tenant, id in page:
                problems += _check_conversation(self._connection, pk, tenant, id, comparison)
            self.seen += len(page)
            yield problems + comparison.catch_up()
        yield from self._blobs()
        while comparison.is_open:
            yield comparison.walk(_TERMS)
        if comparison.begin_again():
            yield from self._tell_apart(comparison)
        yield comparison.differences()

    def _conversations(self) -> Iterator[list[Row]]:
        after = 0
        while page := self._connection.execute(
            QUERIES["conversations_of_tenant"], (self._tenant, after, _PAGE)
        ).fetchall():
            yield page
            after = next_number(after, page[-1][0])

    def _tell_apart(self, comparison: IndexAudit) -> Iterator[list[Problem]]:
        """Walks again over the messages whose shared sums differ."""
        for page in self._conversations():
            for pk, tenant, id in page:
                with suppress(HansardError, *DRIVER):  # reported by the first walk
                    entry = find_state(self._connection, tenant, id)
                    if entry is not None:
                        comparison.add(pk, entry.state.conversation.user_id)
            yield comparison.catch_up()
        while comparison.is_open:
            yield comparison.walk(_TERMS)

    def _blobs(self) -> Iterator[list[Problem]]:
        """Checks every blob, a few at a time, including those that no message refers to."""
        after = 0
        while page := self._connection.execute(QUERIES["blobs_of_tenant"], (self._tenant, after, _BLOBS)).fetchall():
            yield [
                Problem(tenant, f"blob {sha256} is damaged: its bytes have another hash")
                for _, tenant, sha256, data in page
                if not codec.is_blob(sha256, data)
            ]
            after = next_number(after, page[-1][0])


class IndexAudit:
    """Compares the terms that the messages should have in the index with those that it has."""

    def __init__(self, connection: sqlite3.Connection, tenant: str | None) -> None:
        self._connection = connection
        self._between = (0, 1 << 63) if tenant is None else index.entry_range(connection, tenant) or (1, 0)
        self._sums: dict[int, int] = {}
        """By shared number; on the second walk by message."""
        self._suspects: set[int] | None = None
        """The numbers of the shared sums that differ; None on the first walk."""
        self._ahead = 0
        """The sums of messages' terms that the walk over the index has not cancelled yet."""
        self._unreadable: set[int] = set()
        """Conversations whose messages cannot be decoded, so their terms are unknown."""
        self._is_comparable = self.is_open = index.state_of(connection).is_ours
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("CREATE VIRTUAL TABLE temp.search_terms USING fts5vocab (main, search, instance)")
        connection.execute("PRAGMA query_only = ON")
        self._terms = self._all_terms()
        self._unfound = 0
        """Terms of the walk that a lookup does not find."""

    def _all_terms(self) -> Iterator[tuple[str, int, str, int]]:
        # Not `yield from`: it would close the cursor at the end of the check, after the connection.
        for row in self._connection.execute(QUERIES["walk_search_terms"]):  # noqa: UP028
            yield row

    def add(self, pk: int, user_id: str | None) -> None:
        """Adds the terms that the messages of a conversation should have."""
        lengths: dict[int, int] = dict(self._connection.execute(QUERIES["search_lengths"], (pk,)))
        for entry, *row in self._connection.execute(QUERIES["indexed_of_conversation"], (pk,)):
            columns = columns_of(index.text_of(row), user_id, pk)
            # A wrong length counts as a wrong word. One that is missing is reported as not listed.
            words = index.length_of(columns[0])
            value = words - lengths.get(entry, words)
            for weight, text in zip(_WEIGHTS.values(), columns, strict=True):
                terms = text.split()
                value += weight * sum(map(mul, map(hash, terms), count(1)))
                self._ahead += len(terms)
            self._add(entry, value)

    def _add(self, entry: int, value: int) -> None:
        key = entry % _SHARED_SUMS
        if self._suspects is not None:
            if key not in self._suspects:
                return
            key = entry
        # The factor tells messages with one sum apart: else words that stand under another message would cancel out.
        self._sums[key] = self._sums.get(key, 0) + value * (entry + 1)

    def begin_again(self) -> bool:
        """Begins the second walk, if a sum differs."""
        self._suspects = {key for key, value in self._sums.items() if value}
        if not self._suspects or not self._is_comparable:
            return False
        self._sums, self._ahead, self.is_open = {}, 0, True
        self._terms = self._all_terms()
        return True

    def leave_out(self, pk: int) -> None:
        self._unreadable.add(pk)

    def catch_up(self) -> list[Problem]:
        return self.walk(self._ahead)

    def walk(self, terms: int) -> list[Problem]:
        """Walks over this many terms of the index."""
        if not self.is_open:
            return []
        walked = 0
        try:
            while walked < terms and (some := [*islice(self._terms, min(terms - walked, _SOME))]):
                walked += len(some)
                self._take_off(some)
                if self._suspects is None:
                    self._unfound += not self._is_found(*some[-1])
        except DRIVER as error:
            self._is_comparable = self.is_open = False
            return [Problem("search index", f"it cannot be read ({error}): {_REMEDY}")]
        self._ahead -= walked
        self.is_open = walked == terms
        return []

    @decodes
    def _take_off(self, found: list[tuple[str, int, str, int]]) -> None:
        first, last = self._between
        for term, entry, column, offset in found:
            if first <= entry <= last:
                self._add(entry, -_WEIGHTS[column] * hash(term) * (offset + 1))

    def _is_found(self, term: str, entry: int, column: str, _: int) -> bool:
        """Looks a term up as a search does, which reads other pages than the walk."""
        row = self._connection.execute(QUERIES["is_search_entry"], (f'{column} : "{term}"', entry)).fetchone()
        return row is not None

    def differences(self) -> list[Problem]:
        if not self._is_comparable:
            return []
        wrong = sorted(entry for entry, value in self._sums.items() if value)
        homes = [self._home(entry) for entry in wrong]
        named = [home for home in homes if home is not None and home[0] not in self._unreadable]
        problems = [
            Problem(f"{tenant}/{conversation}", f"the search index has other words than message {id!r}: {_REMEDY}")
            for _, tenant, conversation, id in named[:_NAMED]
        ]
        for many, what in (
            (len(named) - _NAMED, "it has other words than {} messages more"),
            (homes.count(None), "it has words of {} messages that it does not list"),
            (self._unfound, "{} of the words that were looked up in it are not found"),
        ):
            if many > 0:
                problems.append(Problem("search index", f"{what.format(many)}: {_REMEDY}"))
        return problems

    def _home(self, entry: int) -> tuple[int, str, str, str] | None:
        """Returns the message of an entry: its conversation, tenant, conversation's id and id.

        None if none is listed.
        """
        found: tuple[int, str, str, str] | None = self._connection.execute(
            QUERIES["message_of_search_entry"], (entry,)
        ).fetchone()
        return found


def _check_file(connection: sqlite3.Connection) -> list[Problem]:
    """Runs SQLite's own check of the file."""
    try:
        found = connection.execute("PRAGMA integrity_check").fetchall()
    except sqlite3.DatabaseError as error:
        return [Problem("file", str(error))]
    return [Problem("file", text) for (text,) in found if text != "ok"]


def _check_conversation(
    connection: sqlite3.Connection, pk: int, tenant: str, id: str, comparison: IndexAudit
) -> Iterator[Problem]:
    """Checks a conversation: counts, order, branches, bodies, blobs."""
    where = f"{tenant}/{id}"
    try:
        entry = find_state(connection, tenant, id)
        if entry is None:
            raise Corrupt("it is not found by its id: the index of conversations is damaged", where=where)
        found = [
            (each.segment, each.message) for each in read.read_rows(connection, entry.state, 0, rows.SEQ_MASK, 1 << 62)
        ]
        comparison.add(pk, entry.state.conversation.user_id)
    except (HansardError, *DRIVER) as error:
        comparison.leave_out(pk)
        yield Problem(where, str(translate(error, where)))
        return
    yield from rules.audit(where, entry.state, found)
    for sha256 in {ref.sha256 for _, message in found for ref in message.blobs}:
        if connection.execute(QUERIES["find_blob"], (tenant, sha256)).fetchone() is None:
            yield Problem(where, f"blob {sha256} is missing")
