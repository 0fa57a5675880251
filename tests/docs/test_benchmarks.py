"""Figures of benchmarks are generated from their results, and the prose has none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks import table
from benchmarks.report import Report
from tests.docs import pages

PAGE = pages.DOCS / "reference" / "benchmark-results.md"


def test_the_page_of_results_is_generated() -> None:
    assert PAGE.read_text("utf-8") == table.page(), f"run: python -m benchmarks --page {pages.name(PAGE)}"


def test_every_comparison_of_every_result_is_there() -> None:
    text = PAGE.read_text("utf-8")
    for path in table.RESULTS.glob("*.json"):
        report = Report.read(path)
        assert f"## {path.stem}" in text
        assert report.where["commit"] in text
        for one in report.comparisons:
            assert f"| {' | '.join(table.row(one))} |" in text


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True, check=True).stdout


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    _run("--page", str(page))
    assert page.read_text("utf-8") == table.page()


def test_the_prose_has_no_figures() -> None:
    """No ratio and no time: these are in the results."""
    prose = pages.read("docs/reference/benchmarks.md")
    assert not re.findall(r"\b\d+(?:\.\d+)? (?:us|µs|ms|kB|MB|s)\b|\b\d+\.\d+ of\b|\b\d+\.\d+x", prose)


def test_every_workload_is_described() -> None:
    section = pages.sections(pages.read("docs/reference/benchmarks.md"), 2)["The workloads"]
    _, _, names = " ".join(_run("--help").split()).partition("any of: ")
    known = re.match(r"[\w, ]+?(?= options:)", names)
    assert known is not None
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(known[0].split(", "))


def test_the_ratios_of_growth_are_those_of_the_results() -> None:
    section = pages.sections(pages.read("docs/explanation/scale.md"), 2)["What grows with the store, and what does not"]
    begin = "| call, against 10,000 messages |"
    (ratios_table,) = (each for each in section.split("\n\n") if each.startswith(begin))
    head, _, *lines = [line.strip("| ").split(" | ") for line in ratios_table.splitlines()]
    measured = [column.replace("`", "").partition(", ")[::2] for column in head[1:]]
    found = {}
    for path in table.RESULTS.glob("*-growth-*.json"):
        report = Report.read(path)
        for one in report.comparisons:
            if one.ratio is not None:
                place = (report.where["backend"], one.subject, one.workload.removeprefix("growth, "))
                found[place] = f"{one.ratio.median:.2f}"
    for name, *ratios in lines:
        expected = [found[storage, f"{size} messages", name] for storage, size in measured]
        assert ratios == expected, name
