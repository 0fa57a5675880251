"""Times that a question names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hansard.search.periods import find_period

NOW = datetime(2026, 5, 20, 15, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("query", "since", "until", "rest"),
    [
        ("what did Ann say yesterday", "2026-05-19", "2026-05-20", "what did Ann say"),
        ("orders today", "2026-05-20", "2026-05-21", "orders"),
        ("what broke last week?", "2026-05-11", "2026-05-18", "what broke ?"),
        ("this week", "2026-05-18", "2026-05-25", ""),
        ("refunds last month", "2026-04-01", "2026-05-01", "refunds"),
        ("this year", "2026-01-01", "2027-01-01", ""),
        ("in May", "2026-05-01", "2026-06-01", ""),
        ("the trip in June", "2025-06-01", "2025-07-01", "the trip"),
        ("the trip in December 2024", "2024-12-01", "2025-01-01", "the trip"),
        ("Jan 2025 report", "2025-01-01", "2025-02-01", "report"),
        ("what happened on 7 May 2023", "2023-05-07", "2023-05-08", "what happened"),
        ("on May 7th, 2023", "2023-05-07", "2023-05-08", ""),
        ("the meeting of June 3", "2025-06-03", "2025-06-04", "the meeting of"),
        ("log of 2026-03-01", "2026-03-01", "2026-03-02", "log of"),
        ("in 2024", "2024-01-01", "2025-01-01", ""),
        ("two days ago", "2026-05-18", "2026-05-19", ""),
    ],
)
def test_a_period_is_read(query: str, since: str, until: str, rest: str) -> None:
    found = find_period(query, NOW)
    assert found is not None
    period, left = found
    assert (f"{period.since:%Y-%m-%d}", f"{period.until:%Y-%m-%d}", left) == (since, until, rest)


def test_the_last_days_end_now() -> None:
    found = find_period("errors in the last three days", NOW)
    assert found is not None
    assert found[0].since == datetime(2026, 5, 17, 15, 30, tzinfo=UTC)
    assert found[0].until > NOW
    assert found[0].text == "in the last three days"


@pytest.mark.parametrize(
    "query",
    ["may I ask", "march on", "the last word", "2026-13-45", "order 2024", "", "month", "week 7"],
)
def test_other_words_are_no_period(query: str) -> None:
    assert find_period(query, NOW) is None
