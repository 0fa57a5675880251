"""Charts as SVG: columns per day, and horizontal bars. The style sheet sets their colours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from html import escape

from markupsafe import Markup
from msgspec import Struct

from hansard.server.web.markup import short

_FLOOR, _STEP = 100, 20


class Bar(Struct, frozen=True):
    label: str
    value: float


def days_between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def columns(bars: Sequence[Bar], title: str, unit: str) -> Markup:
    """Returns a column chart. Each column has a tooltip; screen readers get the highest value."""
    most = max(bar.value for bar in bars) or 1
    width = len(bars) * _STEP
    drawn = "".join(_column(bar, at * _STEP, _tall(bar.value, most), unit) for at, bar in enumerate(bars))
    highest = max(bars, key=lambda bar: bar.value)
    caption = f"most: {short(highest.value)} on {highest.label}" if highest.value else "none in these days"
    first, last = bars[0].label, bars[-1].label
    ends = "".join(f"<span>{escape(each)}</span>" for each in (first, caption, last))
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {_FLOOR}" role="img" '
        f'aria-label="{escape(f"{title}, {first} to {last}: {caption}")}" '
        f'preserveAspectRatio="none">{drawn}</svg><p class="axis" aria-hidden="true">{ends}</p>'
    )


def _column(bar: Bar, x: int, tall: float, unit: str) -> str:
    return (
        f"<g><title>{escape(bar.label)}: {short(bar.value)} {escape(unit)}</title>"
        f'<rect class="hit" x="{x}" y="0" width="{_STEP}" height="{_FLOOR}"/>'
        f'<rect class="bar" x="{x + 3}" y="{_FLOOR - tall:.1f}" width="{_STEP - 6}" height="{tall:.1f}" rx="2"/></g>'
    )


def _tall(value: float, most: float) -> float:
    return max(1.5, value / most * (_FLOOR - 4)) if value > 0 else 0.0


def share(value: float, most: float) -> Markup:
    """Returns a horizontal bar for the share of `value` in `most`."""
    part = 0.0 if most <= 0 else min(100.0, max(0.5, value / most * 100)) if value > 0 else 0.0
    return Markup(
        '<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="rest" width="100" height="4"/><rect class="bar" width="{part:.1f}" height="4"/></svg>'
    )
