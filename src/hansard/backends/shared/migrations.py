"""Which migrations a store lacks, by the names and checksums in its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from hansard.errors import Corrupt, FormatMismatch


class NamedMigration(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def checksum(self) -> str: ...


M = TypeVar("M", bound=NamedMigration)


def lacking(where: str, known: Sequence[M], done: Mapping[str, str]) -> list[M]:
    """Returns the migrations of this version that a store has not had.

    A store that has had others is refused, since a newer version wrote it; and so is one that has had another migration
    of the same name.
    """
    if newer := sorted(done.keys() - {migration.name for migration in known}):
        raise FormatMismatch(
            f"{where} was written by a newer version of Hansard ({newer[-1]!r}): install that version",
            found=newer[-1],
            wanted=known[-1].name,
        )
    for migration in known:
        if done.get(migration.name, migration.checksum) != migration.checksum:
            raise Corrupt(f"the schema {migration.name!r} of {where} has another checksum than expected", where=where)
    return [migration for migration in known if migration.name not in done]
