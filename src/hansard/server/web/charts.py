"""Charts as SVG: columns per day with axes and values to read, and horizontal bars. The style sheet sets their colours.

Columns are stretched to the width of the page, which would distort text, so the labels of the axes are HTML beside
them. Every value is in the tooltip of its column, which the script shows at once, and in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from html import escape

from markupsafe import Markup
from msgspec import Struct

from hansard.server.web.quantities import short
from hansard.server.web.words import say

_FLOOR, _STEP = 100, 20
"""The height of a chart and the distance of its columns. The style sheet has the width of a column, too."""
_SMALLEST = 1e-300
"""Less is drawn as nothing: powers of ten end there."""
_LABELS = 5
"""Days that are named below a chart."""


class Bar(Struct, frozen=True):
    label: str
    value: float


def days_between(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def columns(bars: Sequence[Bar], title: str, show: Callable[[float], str] = short) -> Markup:
    """Returns a column chart. `show` formats a value."""
    highest = max(bars, key=lambda bar: bar.value)
    top = nice_limit(highest.value)
    # An empty axis has no scale, and the half of a single one would read as 0.
    scale = [show(top), show(top / 2)] if highest.value else ["", ""]
    scale = [each if each != show(0) else "" for each in scale]
    width = len(bars) * _STEP
    drawn = "".join(_column(bar, at * _STEP, bar.value / top * _FLOOR, show) for at, bar in enumerate(bars))
    lines = "".join(f'<path class="line" d="M0 {y}H{width}"/>' for y in (0, _FLOOR // 2))
    most = say("Peak: {value} on {day}").format(value=show(highest.value), day=highest.label)
    caption = most if highest.value else say("None in this period")
    label = f"{title}, {bars[0].label} – {bars[-1].label}: {caption}"
    return Markup(
        '<div class="plot" data-plot>'
        f'<p class="scale" aria-hidden="true"><span>{scale[0]}</span><span>{scale[1]}</span><span>0</span></p>'
        f'<svg class="chart" viewBox="0 0 {width} {_FLOOR}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="none">{lines}{drawn}</svg>'
        f'<p class="axis" aria-hidden="true">{_named_days(bars)}</p>'
        f'<p class="reading" aria-hidden="true">{escape(caption)}</p></div>{_table(bars, title, show)}'
    )


def nice_limit(value: float) -> float:
    """Returns the end of an axis: the next of 1, 2, 4, 6 or 10 times a power of ten, so that its half is readable."""
    if value <= _SMALLEST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 4, 6, 10) if step * power >= value * (1 - 1e-9)))


def _column(bar: Bar, x: int, tall: float, show: Callable[[float], str]) -> str:
    """Returns the area of a day, which answers the pointer, and its column. A page has many: they have no classes."""
    tall = max(1.5, tall)
    column = f'<rect x="{x + 3}" y="{_FLOOR - tall:.0f}" height="{tall:.0f}"/>' if bar.value > 0 else ""
    return f'<g><title>{escape(bar.label)}: {show(bar.value)}</title><rect x="{x}"/>{column}</g>'


def _named_days(bars: Sequence[Bar]) -> str:
    """Returns labels at equal distances, the first and the last day among them."""
    count = min(_LABELS, len(bars))
    places = [round(at * (len(bars) - 1) / max(1, count - 1)) for at in range(count)]
    return "".join(f"<span>{escape(bars[place].label)}</span>" for place in places)


def _table(bars: Sequence[Bar], title: str, show: Callable[[float], str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(bar.label)}</th><td>{show(bar.value)}</td></tr>' for bar in bars if bar.value
    )
    if not rows:
        return ""
    table = f'<table><caption class="unseen">{escape(title)}</caption>{rows}</table>'
    return f'<details class="values"><summary>{escape(say("Show values"))}</summary>{table}</details>'


def share(value: float, most: float) -> Markup:
    """Returns a horizontal bar for the share of `value` in `most`."""
    part = 0.0 if most <= 0 else min(100.0, max(0.5, value / most * 100)) if value > 0 else 0.0
    return Markup(
        '<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="rest" width="100" height="4"/><rect class="bar" width="{part:.1f}" height="4"/></svg>'
    )
