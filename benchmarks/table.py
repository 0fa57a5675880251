"""A result as a table: ratios first, then the costs behind them.

The same rows as text for a terminal and as Markdown for the documentation. `page` is the whole page of results: no
figure in it is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.measure import Spread
from benchmarks.report import Comparison, Report

COLUMNS = ("workload", "measured", "against", "ratio", "quartiles", "at most", "verdict", "costs", "against costs")
RESULTS = Path(__file__).parent / "results"
HEAD = """\
# Benchmark results

Generated from the files in `benchmarks/results/` by
`python -m benchmarks --page docs/reference/benchmark-results.md`: do not edit it. The newest result comes first.
What is measured, and how to read it: [benchmarks](benchmarks.md).
"""

Row = tuple[str, ...]


def row(one: Comparison) -> Row:
    ratio = one.ratio
    return (
        one.workload,
        one.subject,
        one.reference,
        _times(ratio.median) if ratio else "-",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        _times(one.at_most) if one.at_most else "",
        one.verdict,
        _cost(one.subject_cost, one.unit),
        _cost(one.reference_cost, one.unit),
    )


def _times(ratio: float) -> str:
    return f"{ratio:,.2f}x" if ratio < 100 else f"{ratio:,.0f}x"


def _cost(cost: Spread | None, unit: str) -> str:
    if cost is None:
        return ""
    digits = 1 if cost.median < 100 else 0
    return f"{cost.median:,.{digits}f} {unit}"


def text(report: Report) -> str:
    """Returns aligned columns. Each workload is named once."""
    rows = [COLUMNS, *_named_once(map(row, report.comparisons))]
    widths = [max(len(line[column]) for line in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in rows]
    return "\n".join(line.rstrip() for line in [*lines, "", *_footer(report)])


def markdown(report: Report) -> str:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(row, report.comparisons)]
    table = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*table, "", *_footer(report)])


def page(folder: Path = RESULTS) -> str:
    """Every result of a folder, the newest first."""
    reports = {path.stem: Report.read(path) for path in folder.glob("*.json")}
    newest = sorted(reports, key=lambda name: reports[name].where["date"], reverse=True)
    return "\n".join([HEAD, *(f"## {name}\n\n{markdown(reports[name])}\n" for name in newest)])


def _named_once(rows: Iterable[Row]) -> Iterable[Row]:
    for workload, group in groupby(rows, key=lambda line: line[0]):
        for index, line in enumerate(group):
            yield ("" if index else workload, *line[1:])


def _footer(report: Report) -> Sequence[str]:
    where = report.where
    machine = ", ".join(f"{name} {value}" for name, value in where["machine"].items())
    versions = ", ".join(f"{name} {value}" for name, value in where["versions"].items())
    sizes = "quick sizes: not a result to cite" if where["quick"] else "full sizes"
    lines = [f"{where['date']}, commit {where['commit']}, {sizes}", f"Machine: {machine}", f"Packages: {versions}"]
    lines += [f"Absent: {name} ({why})" for name, why in where["absent"].items()]
    # Two spaces are a line break in Markdown, and harmless in a terminal.
    return [f"{line}  " for line in [*lines, *(f"FAILED: {failure}" for failure in report.failures)]]
