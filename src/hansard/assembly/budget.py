"""Which messages fit: required ones first, then the newest, group by group."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hansard.assembly.explanation import Why


class Candidate(Struct, frozen=True):
    """A message that may be included in a prompt."""

    tokens: int
    group: int
    """Messages of one group are kept or dropped together."""
    must: Why | None = None
    """Why it stays whatever it costs."""


def chosen(candidates: Sequence[Candidate], budget: int) -> list[Why]:
    """Returns why each candidate (oldest first) is kept or dropped.

    Required ones are kept. The newest group is kept even if it alone exceeds the budget. Then groups are taken newest
    first while they fit, and the first that does not fit ends the selection: a prompt has no gaps.
    """
    costs: dict[int, int] = {}
    musts: dict[int, Why] = {}
    for each in candidates:
        costs[each.group] = costs.get(each.group, 0) + each.tokens
        if each.must is not None:
            musts[each.group] = each.must
    left = budget - sum(costs[group] for group in musts)
    kept: dict[int, Why] = dict(musts)
    for group in dict.fromkeys(each.group for each in reversed(candidates)):
        if group in musts:
            continue
        is_newest = len(kept) == len(musts)
        if costs[group] > left and not is_newest:
            break
        left -= costs[group]
        kept[group] = "newest" if is_newest else "fits"
    return [kept.get(each.group, "over_budget") for each in candidates]
