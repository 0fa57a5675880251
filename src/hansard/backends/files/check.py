"""Checks every line of every journal, the index against the journals, and every blob."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hansard import codec, rules
from hansard.backends.files import disk, line_format, maintenance, names, rows
from hansard.backends.files.index import IndexFailure
from hansard.backends.files.layout import ENDING, TENANT, files_in, folders_in
from hansard.backends.files.line_format import R
from hansard.backends.files.records import RecordJournalState
from hansard.backends.files.replay import JournalReplay
from hansard.backends.files.rows import QUERIES, IndexedMessage, IndexRow
from hansard.backends.files.tenant import SharedResources, Tenant
from hansard.backends.files.tenant_log import TenantLogState, tenant_at
from hansard.errors import Corrupt, FormatMismatch
from hansard.model import Message, Problem, from_micros


def check(common: SharedResources, tenant: str | None) -> Iterator[Problem | int]:
    checked = 0
    for each in maintenance.selected_tenants(common, tenant):
        yield from _check_tenant_data(each)
        for found in _check_conversations(each):
            if isinstance(found, int):
                checked += found
                yield checked
            else:
                yield found
    if tenant is None:
        yield from _check_root(common)
    yield checked


def _check_root(common: SharedResources) -> Iterator[Problem]:
    for name in folders_in(common.root):
        home = common.root / name
        if not names.is_ours(name) and tenant_at(home) is None and any(home.glob("*/*" + ENDING)):
            yield Problem(str(common.root / name), "no file in this folder names the tenant that it belongs to")


# --- conversations ----------------------------------------------------------------------------------------------------


def _check_conversations(tenant: Tenant) -> Iterator[Problem | int]:
    seen: dict[str, str] = {}
    for folder in tenant.layout.folders():
        for file in files_in(tenant.layout.home / folder, ENDING):
            name = file.name.removesuffix(ENDING)
            if name in seen and tenant.layout.journal(seen[name], name).exists():
                yield Problem(
                    f"{tenant.id}/{folder}/{file.name}", f"the folder {seen[name]!r} has a journal of this name too"
                )
            seen[name] = folder
            yield from _confirmed_problems(tenant, name, partial(_check_conversation, tenant, folder, name))
            yield 1


def _confirmed_problems(tenant: Tenant, name: str, find_problems: Callable[[], Iterator[Problem]]) -> list[Problem]:
    """Returns the problems that are still there while no process writes: a write in progress looks like a torn tail."""
    problems = list(find_problems())
    if not problems:
        return []
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):
            stack.enter_context(tenant.journals.locks.hold(tenant.layout.lock(name), "a journal", flags=disk.READ))
        return list(find_problems())


def _check_conversation(tenant: Tenant, folder: str, name: str) -> Iterator[Problem]:
    path = tenant.layout.journal(folder, name)
    problems, replayed = _replay(path, JournalReplay)
    yield from problems
    if replayed is None or not replayed.position.lines:
        return
    state = replayed.state
    if names.escape(state.id) != name:
        yield Problem(str(path), f"it holds conversation {state.id!r}, which belongs in another file")
    if state.deleted_at is not None:
        yield Problem(str(path), "the deletion of this conversation was not finished: purge() finishes it")
    elif state.conversation_state is None:
        yield Problem(str(path), "it ends before the line that describes its conversation")
    else:
        places = {id: place for id, place in replayed.places.items() if place is not None}
        yield from _check_index(tenant, name, replayed)
        yield from rules.audit(f"{tenant.id}/{state.id}", state.conversation_state, _as_messages(places))
        for sha256 in sorted({digest for place in places.values() for digest in place.digests}):
            if not tenant.layout.blob(sha256).exists():
                yield Problem(f"{tenant.id}/{state.id}", f"blob {sha256} is missing")


def _check_index(tenant: Tenant, name: str, replayed: JournalReplay) -> Iterator[Problem]:
    """Compares the index with a journal. The index may be behind a marked journal; a private index is not checked."""
    where, path = f"{tenant.id}/{replayed.state.id}", tenant.layout.index
    try:
        with tenant.index.reading() as connection:
            if tenant.index.is_private:
                return
            row = rows.load(connection, name)
            known = connection.execute(QUERIES["known_messages"], (row.pk,)).fetchall() if row else []
    except IndexFailure as failure:
        yield Problem(str(path), f"the index is damaged ({failure}): run `hansard reindex`")
        return
    if (
        row is None
        or row.state.position.size != replayed.position.size
        or row.state.position.tail != replayed.position.tail
    ):
        if tenant.index.is_synced and not tenant.layout.marker(name).exists():
            yield Problem(where, "the index is behind its journal: run `hansard reindex`")
    elif not _is_equal(row, known, replayed):
        yield Problem(where, "the index differs from its journal: run `hansard reindex`")


def _is_equal(row: IndexRow, known: list[tuple[Any, ...]], replayed: JournalReplay) -> bool:
    found = {id: tuple(rest[:-1]) for id, *rest in known}
    expected = {id: place[:-1] for id, place in replayed.places.items() if place is not None}
    return found == expected and row.state.conversation_state == replayed.state.conversation_state


def _as_messages(places: dict[str, IndexedMessage]) -> list[tuple[int, Message]]:
    """Returns the messages in the form that `rules.audit` takes."""
    ordered = sorted(places.items(), key=lambda each: each[1].seq)
    return [
        (place.segment, Message("", None, id, seq=place.seq, created_at=from_micros(place.created)))
        for id, place in ordered
    ]


def _replay(path: Path, fresh: Callable[[], R]) -> tuple[list[Problem], R | None]:
    """Reads a journal from its beginning. Returns its problems and its state."""
    try:
        with disk.opened(path, disk.READ) as fd:
            state = line_format.catch_up(fd, fresh(), fresh, path)
            is_torn = os.fstat(fd).st_size > state.position.size
    except FileNotFoundError:
        return [], None
    except (Corrupt, FormatMismatch) as error:
        return [Problem(getattr(error, "where", None) or str(path), str(error))], None
    problem = Problem(f"{path}:{state.position.lines + 1}", "a torn tail: the last write was cut off, and is ignored")
    return [problem] if is_torn else [], state


# --- tenant data ------------------------------------------------------------------------------------------------------


def _check_tenant_data(tenant: Tenant) -> Iterator[Problem]:
    paths = tenant.layout
    if not paths.log.exists():
        yield Problem(
            str(paths.home), f"{TENANT} is missing: tombstones and the usage of deleted conversations are lost"
        )
    yield from _confirmed_problems(tenant, "_tenant", lambda: iter(_replay(paths.log, TenantLogState)[0]))
    for file in files_in(paths.records, ENDING):
        path = paths.records / file.name
        yield from _confirmed_problems(tenant, "_records." + path.stem, partial(_check_records, path))
    yield from _check_blobs(tenant)


def _check_records(path: Path) -> Iterator[Problem]:
    return iter(_replay(path, RecordJournalState)[0])


def _check_blobs(tenant: Tenant) -> Iterator[Problem]:
    for sha256, _ in tenant.blobs.all():
        path = tenant.layout.blob(sha256)
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if file.read(len(codec.IN_BUCKET) + 1) == codec.IN_BUCKET:
                continue
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                yield Problem(str(path), "its content does not have the hash in its name")
