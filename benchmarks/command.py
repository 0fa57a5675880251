"""The command line: selects workloads, runs them, prints the table, writes the JSON.

A missed target is printed but is not an error: the machine may be busy. Lost, repeated or reordered messages are
errors.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import table
from benchmarks.arena import DEFAULT_URL, Arena, Options
from benchmarks.contenders import NotAvailable, Roster, engine_of
from benchmarks.machine import describe
from benchmarks.report import Comparison, Report
from benchmarks.scenarios import SCENARIOS


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if arguments.table:
        print(table.markdown(Report.read(arguments.table)))
        return 0
    if arguments.page:
        arguments.page.write_text(table.page(), encoding="utf-8")
        return 0
    options = Options(arguments.quick, arguments.url, arguments.folder, arguments.sizes, arguments.keep)
    roster = Roster(with_peers=arguments.peers, engine=engine_of(options.url))
    report = run(arguments.scenarios or list(SCENARIOS), options, roster)
    print(f"\n{table.text(report)}")
    report.write(arguments.json)
    return 1 if report.failures else 0


def run(names: Sequence[str], options: Options, roster: Roster) -> Report:
    report = Report(describe(options, roster))
    for name in names:
        print(f"{name}: {SCENARIOS[name].title}", file=sys.stderr, flush=True)
        _run_one(name, options, roster, report)
    return report


def _run_one(name: str, options: Options, roster: Roster, report: Report) -> None:
    scenario = SCENARIOS[name]
    arena = Arena(options, roster)
    try:
        with arena:
            report.comparisons.extend(scenario.run(arena))
    except NotAvailable as reason:
        report.comparisons.append(Comparison(scenario.title, "hansard", "", note=str(reason)))
    except Exception as error:  # one broken workload must not hide the others
        traceback.print_exc()
        complaint = str(error).replace(str(arena.folder), "")
        report.failures.append(f"{name}: {type(error).__name__}: {complaint}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Compare Hansard with its peers.")
    add = parser.add_argument
    # No `choices`: argparse rejects the empty list of a positional that takes any number.
    add("scenarios", nargs="*", type=_scenario, metavar="scenario", help=f"any of: {', '.join(SCENARIOS)}")
    add("--quick", action="store_true", help="small sizes, to see that everything works")
    add("--json", type=Path, default=Path("build/benchmarks.json"), metavar="FILE", help="the file for the result")
    add("--peers", action=argparse.BooleanOptionalAction, default=True, help="run the peers that are installed")
    add("--url", default=DEFAULT_URL, help="the store to measure; {path} is a fresh file name (%(default)s)")
    add("--folder", help="the folder for all stores: use a real disk, else syncing costs nothing")
    about_sizes = "the messages in the stores of `growth`, or in the files of `import`, smallest first"
    add("--sizes", type=_sizes, default=(), metavar="N,N", help=about_sizes)
    add("--keep", action="store_true", help="keep the stores of `growth`; the next run continues one that was stopped")
    add("--table", type=Path, metavar="FILE", help="only print the table of that result, as Markdown")
    add("--page", type=Path, metavar="PAGE", help="only write the page of all results that are kept")
    return parser


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(each) for each in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between them") from error
    return tuple(sorted(sizes))


def _scenario(name: str) -> str:
    if name not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of: {', '.join(SCENARIOS)}")
    return name
