"""Numbers, money, time spans, sizes and days as the page shows them, in the reader's language."""

from __future__ import annotations

from datetime import date
from functools import cache

from hansard.server.web.words import language, number, say, say_html

DOT = " &#183; "
"""Separates facts on one line."""


def money(amount: float) -> str:
    """Returns an amount in dollars, the currency in which providers of models bill."""
    decimals = 2
    if amount and abs(amount) < 0.01:
        decimals = max(2, len(f"{amount:.4f}".rstrip("0").partition(".")[2]))
    return say_html("${amount}").replace("{amount}", number(amount, decimals))


def duration(seconds: float) -> str:
    """Returns a time span in two units at most: 40 ms, 1.2 s, 3 min, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 1:
        return f"{number(seconds * 1000)} ms"
    if seconds < 60:
        return f"{number(seconds, 0 if round(seconds, 1) == round(seconds) else 1)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return _units(f"{number(days)} {say_html('d')}", hours % 24, "h")
    return _units(f"{hours} h", minutes % 60, "min") if hours else _units(f"{minutes} min", rest, "s")


def _units(large: str, small: int, unit: str) -> str:
    return f"{large} {small} {unit}" if small else large


def short(value: float) -> str:
    """Returns a number in few characters: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            whole = len(f"{abs(scaled):.0f}")
            text = number(scaled, max(0, 3 - whole))
            return (text.rstrip("0").rstrip(".,") if whole < 3 else text) + unit
    return number(value)


def size(count: float) -> str:
    """Returns a number of bytes: 12 bytes, 3.4 MB."""
    if count < 1000:
        return f"{number(count)} {say_html('bytes')}"
    for unit in ("KB", "MB"):
        count /= 1000
        if count < 1000:
            return f"{number(count, 1)} {unit}"
    return f"{number(count / 1000, 1)} GB"


def long_day(day: date) -> str:
    """Returns a day as a heading: 5 November 2026."""
    return say("{day} {month} {year}", day=day.day, month=_month(day), year=day.year)


def short_day(day: date) -> str:
    """Returns a day in few characters: 5 Nov."""
    return say("{day} {month}", day=day.day, month=_month(day)[:3])


def _month(day: date) -> str:
    return _months(language())[day.month - 1]


@cache
def _months(language: str) -> tuple[str, ...]:
    return (
        *(say("January"), say("February"), say("March"), say("April"), say("May"), say("June")),
        *(say("July"), say("August"), say("September"), say("October"), say("November"), say("December")),
    )
