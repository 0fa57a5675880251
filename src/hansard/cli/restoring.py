"""A backup back in its place: copied beside it, tried, and only then given its name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from hansard.cli.locating import SIGN, is_missing, path_of
from hansard.errors import Conflict, FormatMismatch, Unsupported
from hansard.urls import Url

Kind = Literal["sqlite", "file"]

_MAGIC = b"SQLite format 3\0"
_BESIDE = ("", "-wal", "-shm")


def kind_of(backup: Path) -> Kind | None:
    """Which backend wrote the backup; None when it is something else."""
    if backup.is_dir():
        if not (backup / SIGN).exists():
            raise FormatMismatch(f"the folder {backup} is not a backup: it holds no {SIGN}", wanted=SIGN)
        return "file"
    with backup.open("rb") as opened:
        return "sqlite" if opened.read(len(_MAGIC)) == _MAGIC else None


def restore(backup: Path, kind: Kind, url: str) -> Path:
    """The file or folder that the URL names. Never over one that exists."""
    target = path_of(url)
    if target is None or Url(url).scheme != kind:
        raise Unsupported(
            f"this backup is restored to a {kind}: URL, not to {url}: restore it, then use `hansard copy`",
            capability="backup",
        )
    if not is_missing(url) or (kind == "sqlite" and any(_beside(target, end).exists() for end in _BESIDE)):
        raise _taken(target)
    part = target.with_name(target.name + ".restoring")
    try:
        _copy(backup, part)
        _try(part, kind)
        _name(part, target)
    finally:
        _remove(part)
    return target


def _taken(target: Path) -> Conflict:
    return Conflict(f"{target} exists already: move it away first, nothing is overwritten")


def _copy(backup: Path, part: Path) -> None:
    if backup.is_dir():
        shutil.copytree(backup, part)
    else:
        shutil.copyfile(backup, part)


def _try(part: Path, kind: Kind) -> None:
    """Opens the copy as a store, so that a damaged or foreign file is noticed before it has a name."""
    from hansard import sync

    slashes = ":///" if kind == "sqlite" else "://"
    with sync.connect(kind + slashes + quote(str(part.absolute()))) as store:
        store.admin.stats()
    for path in part.rglob("*") if part.is_dir() else [part]:
        if path.is_file():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())


def _name(part: Path, target: Path) -> None:
    """Gives the copy its name, unless something took it meanwhile."""
    try:
        if part.is_dir():
            # Takes the place of an empty folder, but of nothing else.
            part.rename(target)
        else:
            # A link, not a rename, which would replace a file that appeared just now.
            os.link(part, target)
    except OSError as error:
        if target.exists():
            raise _taken(target) from error
        part.rename(target)  # not every file system has links


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    for end in _BESIDE:
        _beside(part, end).unlink(missing_ok=True)
