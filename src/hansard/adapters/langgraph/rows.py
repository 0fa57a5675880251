"""Rows of the history, read in runs: rows that the checkpoints of one call share are read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from hansard.adapters.langgraph.messages import versions_of
from hansard.adapters.langgraph.versions import Version
from hansard.errors import NotFound
from hansard.model import Message
from hansard.store import Store

_GAP = 8
"""Gaps of up to this many rows between two runs are read too: cheaper than two reads."""


class HistoryRows:
    """Messages of one conversation by seq, each read once."""

    def __init__(self, store: Store, conversation_id: str) -> None:
        self._store = store
        self._id = conversation_id
        self._branch: dict[str | None, dict[int, Message | None]] = {}
        self._versions: dict[int, list[Version]] = {}

    def versions(self, row: Message) -> list[Version]:
        if row.seq not in self._versions:
            self._versions[row.seq] = versions_of(row)
        return self._versions[row.seq]

    async def runs(self, branch: str | None, runs: Iterable[tuple[int, int]]) -> list[Message]:
        """Returns the rows of these runs of a branch, in order. Deleted rows are left out."""
        wanted = list(runs)
        known = self._branch.setdefault(branch, {})
        for first, last in _merged(sorted(wanted)):
            if any(seq not in known for seq in range(first, last + 1)):
                await self._read(branch, first, last)
        return [row for first, last in wanted for seq in range(first, last + 1) if (row := known[seq]) is not None]

    async def after(self, branch: str | None, seq: int) -> list[Message]:
        """Returns the rows of a branch after a seq, to its end."""
        return await self._read(branch, seq + 1, None)

    async def _read(self, branch: str | None, first: int, last: int | None) -> list[Message]:
        known = self._branch.setdefault(branch, {})
        found: list[Message] = []
        place = Message("user", "", conversation_id=self._id, seq=first - 1).cursor
        # If the branch was deleted, so were its messages.
        with suppress(NotFound):
            async for row in self._store.iter_messages(self._id, after=place, branch=branch):
                if last is not None and row.seq > last:
                    break
                known[row.seq] = row
                found.append(row)
        for seq in range(first, last + 1 if last is not None else first):
            known.setdefault(seq, None)
        return found

    async def messages(self, branch: str | None, wanted: dict[int, str]) -> dict[int, list[Version]]:
        """Returns the messages of rows, given by seq and id. Most are on the branch. Deleted rows are left out."""
        rows = await self.runs(branch, [(seq, seq) for seq in wanted])
        found = {row.seq: self.versions(row) for row in rows}
        for seq in wanted.keys() - found.keys():
            with suppress(NotFound):
                found[seq] = self.versions(await self._store.get_message(self._id, wanted[seq]))
        return found


def _merged(runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Returns ranges that cover these sorted runs, including small gaps."""
    first = last = None
    for begin, end in runs:
        if first is None or last is None:
            first, last = begin, end
        elif begin - last > _GAP:
            yield first, last
            first, last = begin, end
        else:
            last = max(last, end)
    if first is not None and last is not None:
        yield first, last
