"""What fits, group by group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.assembly import window
from hansard.assembly.budget import Candidate, chosen

KEPT = ("newest", "fits", "system", "pinned")


def plain(*costs: int) -> list[Candidate]:
    return [Candidate(cost, group) for group, cost in enumerate(costs)]


@pytest.mark.parametrize(
    ("costs", "budget", "kept"),
    [
        ((10, 10, 10), 30, 3),
        ((10, 10, 10), 29, 2),
        ((10, 10, 10), 10, 1),
        ((10, 10, 10), 1, 1),
        ((1, 50, 10), 20, 1),
        ((), 5, 0),
    ],
)
def test_newest_first_without_holes(costs: tuple[int, ...], budget: int, kept: int) -> None:
    whys = chosen(plain(*costs), budget)
    assert [why in KEPT for why in whys] == [False] * (len(costs) - kept) + [True] * kept


def test_what_must_stay_stays_and_is_paid_first() -> None:
    candidates = [Candidate(20, 0, "system"), *(Candidate(10, group) for group in range(1, 5))]
    assert chosen(candidates, 40) == ["system", "over_budget", "over_budget", "fits", "newest"]
    assert chosen(candidates, 5) == ["system", "over_budget", "over_budget", "over_budget", "newest"]


def test_groups_go_whole() -> None:
    candidates = [Candidate(10, 0), Candidate(10, 1), Candidate(10, 1), Candidate(10, 2)]
    assert chosen(candidates, 29) == ["over_budget", "over_budget", "over_budget", "newest"]
    assert chosen(candidates, 30) == ["over_budget", "fits", "fits", "newest"]


CANDIDATES = st.lists(
    st.builds(Candidate, st.integers(0, 50), st.integers(0, 5), st.sampled_from([None, None, None, "pinned"])),
    max_size=12,
)


@settings(deadline=None)
@given(CANDIDATES, st.integers(1, 200))
def test_always(candidates: list[Candidate], budget: int) -> None:
    whys = chosen(candidates, budget)
    kept = [each for each, why in zip(candidates, whys, strict=True) if why in KEPT]
    assert len({each.group for each in kept} & {each.group for each in candidates if each not in kept}) == 0
    assert all(each in kept for each in candidates if each.must)
    if candidates:
        assert kept, "a prompt is never empty"
    free = [each.tokens for each, why in zip(candidates, whys, strict=True) if why == "fits"]
    bound = [each.tokens for each, why in zip(candidates, whys, strict=True) if why in ("newest", "pinned")]
    assert not free or sum(free) + sum(bound) <= budget


def test_groups_join_what_answers_each_other() -> None:
    assert window.groups(6, [(0, 2), (2, 4), (1, 5)]) == [0, 1, 0, 3, 0, 1]
