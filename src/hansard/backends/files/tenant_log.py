"""The tenant's own journal: its name, tombstones, and the usage of deleted conversations."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from hansard import rules
from hansard.backends.files import line_format
from hansard.backends.files.disk import Disk
from hansard.backends.files.layout import ENDING, TENANT, Layout
from hansard.backends.files.line_format import ReadPosition
from hansard.backends.files.locks import Locks
from hansard.backends.files.small_journal import SmallJournal, SmallJournalWriter
from hansard.model import NOT_YET, UsageRow

_LEAST_WASTE = 1 << 16
_MOST_REMEMBERED = 1000
"""Deleted journals whose ids are kept. A journal is removed right after its usage was added, unless its writer died."""

UsageRows = dict[rules.UsageKey, UsageRow]


class TenantLogLine(Struct, omit_defaults=True, kw_only=True):
    """A line of the log."""

    hansard: int = 0
    kind: str = ""
    tenant: str = ""
    what: str = ""
    at: datetime = NOT_YET
    tombstones: dict[str, datetime] = {}
    usage: list[UsageRow] = []
    taken: list[str] = []
    """The deleted journals that the usage comes from: each is added once."""


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(TenantLogLine)


class TenantLogState:
    """The state of the log."""

    def __init__(self) -> None:
        self.position = ReadPosition()
        self.tenant = ""
        self.tombstones: dict[str, datetime] = {}
        self.usage: UsageRows = {}
        self.taken: dict[str, None] = {}
        self.waste = 0

    def apply(self, line: bytes, at: int) -> None:
        entry = _line.decode(line)
        if entry.hansard:
            line_format.check_format(entry.hansard, "the log of a tenant")
            self.tenant = entry.tenant
        for digest, time in entry.tombstones.items():
            self.tombstones[digest] = max(time, self.tombstones.get(digest, time))
        if not entry.taken or any(journal not in self.taken for journal in entry.taken):
            add_usage_rows(self.usage, entry.usage)
        self.taken.update(dict.fromkeys(entry.taken))
        if not entry.hansard and entry.usage:
            self.waste += len(line)


def add_usage_rows(rows: UsageRows, more: Iterable[UsageRow]) -> None:
    for row in more:
        key = (row.day, row.user_id, row.agent_id, row.model)
        rows[key] = rules.add_usage(rows[key], row) if key in rows else row


class TenantLog:
    def __init__(self, layout: Layout, writes: Disk, locks: Locks) -> None:
        self._layout = layout
        self._file = SmallJournal(
            layout.log,
            TenantLogState,
            writes,
            locks,
            lock=layout.lock("_tenant"),
            what=f"the log of tenant {layout.tenant!r}",
        )

    def create_if_missing(self) -> None:
        """Creates the log, and with it the tenant."""
        root = self._layout.home.parent
        while root.is_dir():
            # A process that deletes the tenant may remove its folder between any two steps.
            with contextlib.suppress(FileNotFoundError):
                self._file.disk.make_folder(self._layout.locks)
                if not self._exists():
                    with self._file.writing() as journal:
                        self._write_first_line(journal)
                return
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))

    def _exists(self) -> bool:
        try:
            return self._layout.log.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _write_first_line(self, journal: SmallJournalWriter[TenantLogState]) -> None:
        if not journal.state.position.lines:
            first = TenantLogLine(hansard=line_format.FORMAT, kind="tenant", tenant=self._layout.tenant)
            journal.append(_encode(first))

    def copy_to(self, path: Path, writes: Disk) -> None:
        self._file.copy_to(path, writes)

    def tombstones(self, digests: Iterable[str]) -> dict[str, datetime]:
        """Returns the existing ones of these tombstones."""
        with self._reading() as log_state:
            return {each: log_state.tombstones[each] for each in digests if each in log_state.tombstones}

    def usage(self) -> tuple[UsageRows, set[str]]:
        """Returns the usage rows, and the deleted journals that they include."""
        with self._reading() as log_state:
            return dict(log_state.usage), set(log_state.taken)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[TenantLogState]:
        with self._file.reading() as found:
            if found is None:
                yield TenantLogState()
                return
            with self._file.mutex:
                yield found[1]

    def add_tombstones(self, digests: Iterable[str], at: datetime) -> None:
        self._write(TenantLogLine(what="delete", at=at, tombstones=dict.fromkeys(digests, at)))

    def add_deleted(
        self, journal: str, usage: Sequence[UsageRow], tombstones: Mapping[str, datetime], at: datetime
    ) -> None:
        """Adds the usage and tombstones of a deleted conversation. Repeating it changes nothing."""
        if usage or tombstones:
            taken = [journal] if usage else []
            self._write(
                TenantLogLine(what="delete", at=at, tombstones=dict(tombstones), usage=list(usage), taken=taken)
            )

    def erase(self, user_id: str) -> None:
        rows, _ = self.usage()
        if any(key[1] == user_id for key in rows):
            with self._file.writing() as journal:
                journal.replace(_bodies(journal.state, erased=user_id))

    def sweep(self, before: datetime) -> int:
        """Removes tombstones of that time and earlier. Returns how many."""
        with self._reading() as log_state:
            old = sum(at <= before for at in log_state.tombstones.values())
        if old:
            with self._file.writing() as journal:
                journal.replace(_bodies(journal.state, before=before))
        return old

    def _write(self, entry: TenantLogLine) -> None:
        with self._file.writing() as journal:
            self._write_first_line(journal)
            journal.append(_encode(entry))
            if journal.state.waste > max(_LEAST_WASTE, journal.state.position.size // 2):
                # The write is complete. If compacting fails, a later write tries again.
                with contextlib.suppress(OSError):
                    journal.replace(_bodies(journal.state))


def _bodies(log_state: TenantLogState, *, before: datetime = NOT_YET, erased: str | None = None) -> Iterator[bytes]:
    """Yields the lines of a compacted log, without older tombstones and an erased user's usage."""
    usage = [row for row in log_state.usage.values() if erased is None or row.user_id != erased]
    taken = list(log_state.taken)[-_MOST_REMEMBERED:]
    yield _encode(
        TenantLogLine(hansard=line_format.FORMAT, kind="tenant", tenant=log_state.tenant, usage=usage, taken=taken)
    )
    for digest, at in log_state.tombstones.items():
        if at > before:
            yield _encode(TenantLogLine(tombstones={digest: at}))


def tenant_at(home: Path) -> str | None:
    """Returns the tenant that a folder belongs to, as recorded in its log or in any journal."""
    line = line_format.first_line(home / TENANT)
    if line is None:
        line = next(filter(None, map(line_format.first_line, home.glob("*/*" + ENDING))), None)
    return _line.decode(line).tenant if line else None
