"""Times in a question: `last week`, `in May`, `on 2026-03-01`. In English, and dates as numbers.

A period is a filter on the times of messages, in UTC. Its words are not searched: messages of last week do not say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from re import Match

from msgspec import Struct

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
_NUMBER = rf"\d{{1,3}}|{'|'.join(_NUMBERS)}"
_DAY = timedelta(days=1)


class Period(Struct, frozen=True, gc=False):
    """A time that a query names, and the words that name it."""

    text: str
    since: datetime
    until: datetime


def find_period(query: str, now: datetime) -> tuple[Period, str] | None:
    """Returns the first period of a query, and the query without it; None if it names none."""
    now = now.astimezone(UTC)
    for pattern, read in _PATTERNS:
        for found in pattern.finditer(query):
            span = read(found, now)
            if span is not None:
                rest = f"{query[: found.start()]} {query[found.end() :]}"
                return Period(found.group().strip(), *span), " ".join(rest.split())
    return None


Span = tuple[datetime, datetime]


def _exact_day(found: Match[str], _: datetime) -> Span | None:
    return _day(int(found["year"]), int(found["month"]), int(found["day"]))


def _named_day(found: Match[str], now: datetime) -> Span | None:
    month = _month_number(found["month"])
    year = found["year"]
    day = _day(int(year) if year else now.year, month, int(found["day"]))
    if day is not None and year is None and day[0] > now:
        return _day(now.year - 1, month, int(found["day"]))
    return day


def _named_month(found: Match[str], now: datetime) -> Span | None:
    month = _month_number(found["month"])
    if found["year"]:
        return _month(int(found["year"]), month)
    # The last one that has begun.
    return _month(now.year if month <= now.month else now.year - 1, month)


def _named_year(found: Match[str], _: datetime) -> Span | None:
    year = int(found["year"])
    return datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)


def _relative(found: Match[str], now: datetime) -> Span | None:
    word = found.group().lower()
    today = _midnight(now)
    if word == "today":
        return today, today + _DAY
    if word == "yesterday":
        return today - _DAY, today
    back = 1 if word.startswith("last") else 0
    if word.endswith("week"):
        monday = today - timedelta(days=today.weekday() + 7 * back)
        return monday, monday + timedelta(days=7)
    if word.endswith("month"):
        month = now.year * 12 + now.month - 1 - back
        return _month(month // 12, month % 12 + 1)
    return datetime(now.year - back, 1, 1, tzinfo=UTC), datetime(now.year - back + 1, 1, 1, tzinfo=UTC)


def _past(found: Match[str], now: datetime) -> Span | None:
    """Reads `the last three days`: up to now."""
    days = _count(found["number"]) * _UNITS[found["unit"].lower()]
    return now - timedelta(days=days), now + _DAY


def _ago(found: Match[str], now: datetime) -> Span | None:
    """Reads `two weeks ago`: the day, week, month or year around that day."""
    unit = _UNITS[found["unit"].lower()]
    middle = _midnight(now) - timedelta(days=_count(found["number"]) * unit)
    return middle - timedelta(days=unit // 2), middle + timedelta(days=unit - unit // 2)


def _count(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text.lower()]


def _day(year: int, month: int, day: int) -> Span | None:
    try:
        start = datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
    return start, start + _DAY


def _month(year: int, month: int) -> Span | None:
    if not 1 <= month <= 12 or not 1 < year < 9999:
        return None
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    return datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


def _month_number(name: str) -> int:
    return next(number for number, each in enumerate(_MONTHS, 1) if each.startswith(name.lower()[:3]))


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){text}(?!\w)", re.IGNORECASE)


# The most exact first. A month needs a preposition or a year: `may` and `march` are words, too.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[Match[str], datetime], Span | None]], ...] = (
    (_pattern(r"(?:on\s+)?(?P<year>[12]\d{3})-(?P<month>\d\d)-(?P<day>\d\d)"), _exact_day),
    (
        _pattern(rf"(?:on\s+)?(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<year>[12]\d{{3}}))?"),
        _named_day,
    ),
    (
        _pattern(
            rf"(?:on\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<month>{_MONTH})(?:,?\s+(?P<year>[12]\d{{3}}))?"
        ),
        _named_day,
    ),
    (_pattern(rf"(?:in\s+)?(?P<month>{_MONTH})\s+(?P<year>[12]\d{{3}})"), _named_month),
    (_pattern(rf"(?:in|since|during|last)\s+(?P<month>{_MONTH})(?P<year>)"), _named_month),
    (_pattern(r"(?:in|during)\s+(?P<year>[12]\d{3})"), _named_year),
    (
        _pattern(
            rf"(?:in|during|over|within)?\s*the\s+(?:last|past)\s+(?P<number>{_NUMBER})\s+(?P<unit>day|week|month|year)s?"
        ),
        _past,
    ),
    (_pattern(rf"(?P<number>{_NUMBER})\s+(?P<unit>day|week|month|year)s?\s+ago"), _ago),
    (_pattern(r"(?:today|yesterday|(?:last|this)\s+(?:week|month|year))"), _relative),
)
