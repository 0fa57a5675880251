"""Charts as SVG, drawn here: bars over days, and bars beside names. Colours come from the style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from markupsafe import Markup
from msgspec import Struct

from hansard.web.rendering import short

_HEIGHT, _FLOOR, _STEP = 120, 100, 20


class Bar(Struct, frozen=True):
    label: str
    value: float
    note: str = ""


def days_between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def columns(bars: Sequence[Bar], title: str, unit: str) -> Markup:
    """A column for each bar, each with its words for those who point at it or hear it."""
    most = max((bar.value for bar in bars), default=0) or 1
    width = len(bars) * _STEP
    drawn = Markup("").join(
        Markup(
            '<g><title>{}: {} {}</title><rect class="hit" x="{}" y="0" width="{}" height="{}"/>'
            '<rect class="bar" x="{}" y="{:.1f}" width="{}" height="{:.1f}" rx="2"/></g>'
        ).format(
            bar.label,
            bar.note or short(bar.value),
            unit,
            at * _STEP,
            _STEP,
            _FLOOR,
            at * _STEP + 3,
            _FLOOR - _tall(bar.value, most),
            _STEP - 6,
            _tall(bar.value, most),
        )
        for at, bar in enumerate(bars)
    )
    ends = Markup("")
    if bars:
        ends = Markup('<text x="0" y="116">{}</text><text x="{}" y="116" text-anchor="end">{}</text>').format(
            bars[0].label, width, bars[-1].label
        )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none meet">'
        '<line class="floor" x1="0" x2="{}" y1="{}" y2="{}"/>{}{}</svg>'
    ).format(width, _HEIGHT, title, width, _FLOOR + 0.5, _FLOOR + 0.5, drawn, ends)


def _tall(value: float, most: float) -> float:
    return max(1.5, value / most * (_FLOOR - 4)) if value > 0 else 0.0


def share(value: float, most: float) -> Markup:
    """A bar as long as its share."""
    part = 0.0 if most <= 0 else min(100.0, max(0.5, value / most * 100)) if value > 0 else 0.0
    return Markup(
        '<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="rest" width="100" height="4"/><rect class="bar" width="{:.1f}" height="4"/></svg>'
    ).format(part)
