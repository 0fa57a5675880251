"""Where everything is stored.

hansard.json                       the format of this folder
<tenant>/
  <agent>/<conversation>.jsonl     the journals: the truth
  _no_agent/<conversation>.jsonl
  _tenant.jsonl                    the tenant's name, its tombstones, the usage of deleted conversations
  _records/<user>.jsonl            records of a user's own space; `_common.jsonl` for the rest
  _blobs/<ab>/<sha256>
  _locks/                          must not be removed while the store is in use
  _cache/                          may be removed at any time: it is rebuilt
    index.sqlite                   derived data for listings, searches and readers
    behind/<conversation>          an empty file: the journal has lines that the index may not have yet
_gone.<random>/                    a tenant that is being deleted
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from hansard.backends.files import names

ROOT = "hansard.json"
TENANT = "_tenant.jsonl"
ENDING = ".jsonl"


@lru_cache(maxsize=10_000)
def _inside(folder: Path, name: str) -> Path:
    """Cached, because building paths would be a good part of the time of an append."""
    return folder / name


class Layout:
    """The paths of one tenant."""

    def __init__(self, root: Path, tenant: str) -> None:
        self.tenant = tenant
        self.home = root / names.escape(tenant)
        self.log = self.home / TENANT
        self.records = self.home / "_records"
        self.blobs = self.home / "_blobs"
        self.locks = self.home / "_locks"
        self.cache = self.home / "_cache"
        self.index = self.cache / "index.sqlite"
        self.behind = self.cache / "behind"

    def journal(self, folder: str, name: str) -> Path:
        return _inside(_inside(self.home, folder), name + ENDING)

    def lock(self, name: str) -> Path:
        return _inside(self.locks, name + ".lock")

    def marker(self, name: str) -> Path:
        return _inside(self.behind, name)

    def space(self, owner: str) -> Path:
        return self.records / ((names.escape(owner) if owner else names.COMMON) + ENDING)

    def blob(self, sha256: str) -> Path:
        return self.blobs / sha256[:2] / sha256

    def folders(self) -> list[str]:
        """Returns the names of the folders that hold conversations."""
        return [name for name in folders_in(self.home) if name == names.NO_AGENT or not names.is_ours(name)]


def folders_in(path: Path) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(each.name for each in found if each.is_dir(follow_symlinks=True))
    except FileNotFoundError:
        return []


def files_in(path: Path, ending: str = "") -> Iterator[os.DirEntry[str]]:
    """Yields the files of a folder. One that is removed meanwhile may be missing."""
    try:
        with os.scandir(path) as found:
            yield from (each for each in found if each.name.endswith(ending) and each.is_file())
    except FileNotFoundError:
        return
