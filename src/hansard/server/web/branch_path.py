"""Which messages a branch contains, derived from the list of branches."""

from __future__ import annotations

from collections.abc import Sequence

from hansard.model import Branch, Message


def readable_branches(branches: Sequence[Branch], branch: str) -> dict[str, int | None]:
    """Returns the branches whose messages a branch shares, itself first, with the last shared seq; None for all."""
    by_id = {each.id: each for each in branches}
    found: dict[str, int | None] = {branch: None}
    at, limit = by_id.get(branch), None
    while at is not None and at.parent is not None and at.parent not in found:
        # A branch may start before its parent does, which limits what the parent shares with it.
        left = at.from_seq or 0
        limit = left if limit is None else min(limit, left)
        found[at.parent] = limit
        at = by_id.get(at.parent)
    return found


def contains(branches: Sequence[Branch], branch: str, message: Message) -> bool:
    readable = readable_branches(branches, branch)
    if message.branch not in readable:
        return False
    limit = readable[message.branch]
    return limit is None or message.seq <= limit
