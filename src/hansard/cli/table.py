"""Tables that fit the terminal: one column is shortened first, then columns are left out; ids are never cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hansard.cli import output

_GAP = 2
_SHORTEST = 16
"""Cells that a shortened column keeps, before a column is left out."""


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    numbers: Sequence[str] = (),
    shorten: str | None = None,
    wrap: str | None = None,
    leave_out: Sequence[str] = (),
) -> None:
    """Prints a table without borders.

    - `numbers`: columns that are right-aligned.
    - `shorten`: the column that is cut in a narrow terminal.
    - `wrap`: the column that is wrapped in a narrow terminal.
    - `leave_out`: columns that a narrow terminal does not show, the first one first.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[output.cell(value) for value in row] for row in rows]
    screen = output.console()
    widths = _fit(_natural_widths(columns, cells), screen.width, shorten or wrap, leave_out)
    drawn = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for name, width in widths.items():
        justify = "right" if name in numbers else "left"
        overflow = "fold" if name == wrap else "ellipsis"
        drawn.add_column(name, justify=justify, overflow=overflow, no_wrap=name != wrap, width=width)  # type: ignore[arg-type]
    shown = [columns.index(name) for name in widths]
    for row in cells:
        drawn.add_row(*(Text(row[column]) for column in shown))
    output.draw(drawn, width=_total(widths))
    missing = [name for at, name in enumerate(columns) if name not in widths and any(row[at] for row in cells)]
    if missing:
        output.print_note(f"not shown in this narrow terminal: {', '.join(missing)}")


def _natural_widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> dict[str, int]:
    from rich.cells import cell_len

    widths = [max(cell_len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    return dict(zip(columns, widths, strict=True))


def _fit(natural: dict[str, int], width: int, shorten: str | None, leave_out: Sequence[str]) -> dict[str, int]:
    """Returns the columns to show, with their widths."""
    widths = dict(natural)
    for name in (None, *leave_out):
        if name is not None:
            del widths[name]
        if _total(widths) <= width:
            return widths
        if shorten in widths:
            room = width - (_total(widths) - widths[shorten])
            if room >= min(_SHORTEST, natural[shorten]):
                return widths | {shorten: room}
    return widths


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)
