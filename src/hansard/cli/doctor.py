"""`doctor`: what is installed, what the store can do, and what needs attention."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hansard import __version__
from hansard.cli import output
from hansard.cli.configuration import are_in_store, keys_path
from hansard.cli.context import Context, is_missing, path_of
from hansard.cli.table import print_table
from hansard.errors import HansardError
from hansard.server.key_file import KeyFile
from hansard.urls import shown

if TYPE_CHECKING:
    from hansard import sync

State = Literal["ok", "warning", "error"]

_LEAST_FREE_BYTES = 1_000_000_000
_MOST_UNINDEXED = 1000
"""Messages that a busy store may have waiting for its index."""
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_DISTRIBUTION = re.compile(r"[\w.-]+")


class Finding(Struct, frozen=True):
    state: State
    what: str
    detail: str


def doctor(*, context: Context) -> int:
    """Check this installation and its store.

    Versions, extras, the store and its index, keys, the clock and the disk. Exit code 1 if anything is an error.
    It does not read the messages: `check` does.
    """
    findings = [*_installation(), *_keys(), *_store(context)]
    if context.json:
        output.print_json({"items": findings})
    else:
        rows = [(finding.state, finding.what, finding.detail) for finding in findings]
        print_table(("STATE", "WHAT", "DETAIL"), rows, wrap="DETAIL")
    return HansardError.exit_code if any(finding.state == "error" for finding in findings) else 0


def _installation() -> Iterator[Finding]:
    yield Finding("ok", "hansard", f"{__version__}, in {Path(__file__).parents[1]}")
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    complete, partial = _extras()
    yield Finding("ok", "extras", ", ".join(sorted(complete)) or "none")
    for extra, missing in sorted(partial.items()):
        yield Finding("warning", f"extra {extra}", f"lacks {', '.join(missing)}: pip install 'hansard[{extra}]'")


def _extras() -> tuple[set[str], dict[str, list[str]]]:
    """Returns the extras that are installed, and those that are installed in part, with what they lack."""
    from importlib import metadata  # imported here: every command would wait for it

    wanted: dict[str, list[str]] = {}
    for requirement in metadata.requires("hansard") or ():
        extra, name = _EXTRA.search(requirement), _DISTRIBUTION.match(requirement)
        if extra and name and name[0] != "hansard" and _applies(requirement):
            wanted.setdefault(extra[1], []).append(name[0])
    missing = {extra: [name for name in names if not _is_installed(name)] for extra, names in wanted.items()}
    complete = {extra for extra, names in missing.items() if not names}
    return complete, {extra: names for extra, names in missing.items() if 0 < len(names) < len(wanted[extra])}


def _applies(requirement: str) -> bool:
    """Whether a requirement is for this Python. Only the markers that Hansard's own extras use are understood."""
    if "platform_python_implementation" in requirement:
        return platform.python_implementation() == "CPython"
    limit = re.search(r"python_version\s*<\s*['\"]3\.(\d+)['\"]", requirement)
    return limit is None or sys.version_info < (3, int(limit[1]))


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _keys() -> Iterator[Finding]:
    path = keys_path()
    if are_in_store(path):
        yield Finding("ok", "keys", "in the store: `hansard keys` lists them")
        return
    try:
        count = sum(key.revoked_at is None for key in KeyFile(path).list())
    except (HansardError, OSError) as error:
        yield Finding("error", "keys", str(error))
        return
    hint = "" if count else ": `hansard serve` then serves only this machine"
    yield Finding("ok", "keys", f"{output.counted(count, 'key')} in {path}{hint}")


def _store(context: Context) -> Iterator[Finding]:
    where = shown(context.url)
    yield from _disk(path_of(context.url))
    if is_missing(context.url):
        yield Finding("ok", "store", f"{where} does not exist yet: the first append creates it")
        return
    try:
        with context.open_whole() as store:
            yield from _opened(where, store)
    except HansardError as error:
        yield Finding("error", "store", f"{where}: {error}")


def _opened(where: str, store: sync.Store) -> Iterator[Finding]:
    stats, can = store.admin.stats(), store.capabilities
    held = f"{output.counted(stats.conversations, 'conversation')}, {output.counted(stats.messages, 'message')}"
    size = f", {output.size(stats.bytes)}" if stats.bytes is not None else ""
    yield Finding("ok", "store", f"{where}: {held}{size}")
    state: State = "ok" if can.durability == "machine" else "warning"
    yield Finding(state, "durability", f"acknowledged writes survive {output.SURVIVES[can.durability]}")
    if stats.unindexed is None:
        yield Finding("ok", "index", "none: searches scan the messages")
    else:
        yield _index(store, stats.unindexed)
    yield from _clock(store)


def _index(store: sync.Store, waiting: int) -> Finding:
    try:
        store.search("index", limit=1)
    except HansardError as error:
        return Finding("error", "index", str(error))  # such as one that another version has built
    state: State = "ok" if waiting <= _MOST_UNINDEXED else "warning"
    hint = "" if state == "ok" else ": they are indexed while a program has the store open, or by `hansard reindex`"
    return Finding(state, "index", f"{output.counted(waiting, 'message')} waiting{hint}")


def _clock(store: sync.Store) -> Iterator[Finding]:
    """Compares this machine's clock with the times that are stored."""
    newest = store.list_conversations(sort="updated_at", limit=1).items
    now = datetime.now(UTC)
    if newest and newest[0].updated_at > now:
        ahead = (newest[0].updated_at - now).total_seconds()
        yield Finding("warning", "clock", f"the newest change is {ahead:,.0f} s in the future: check the clocks")
    else:
        yield Finding("ok", "clock", f"{output.local(now)}, no stored change is later")


def _disk(path: Path | None) -> Iterator[Finding]:
    if path is None:
        return
    folder = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(folder).free
    state: State = "ok" if free >= _LEAST_FREE_BYTES else "warning"
    yield Finding(state, "disk", f"{output.size(free)} free in {folder}")
