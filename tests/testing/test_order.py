"""The order of our own test run, in the shares that pytest-xdist makes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.order import longest_first
from xdist.scheduler.worksteal import WorkStealingScheduling  # type: ignore[import-untyped]


def item(file: str, name: str, timeout: int | None = None) -> Any:
    marker = None if timeout is None else pytest.mark.timeout(timeout).mark
    return SimpleNamespace(path=Path(file), name=name, get_closest_marker=lambda _: marker)


LONG = [
    *(item("ring.py", f"ring {number}", 900) for number in range(5)),
    *(item("machine.py", f"machine {number}", 1200) for number in range(8)),
    item("suite.py", "suite", 1200),
    item("sizes.py", "sizes", 1200),
]
SHORT = [item("short.py", f"short {number}") for number in range(85)]


class Worker:
    """A process of pytest-xdist, which notes what it is sent."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices


def shares(ordered: list[Any], processes: int) -> list[list[str]]:
    """Returns the names of the tests that pytest-xdist gives each process at first."""
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * processes)
    scheduler = WorkStealingScheduling(config)
    workers = [Worker(number) for number in range(processes)]
    names = [each.name for each in ordered]
    for worker in workers:
        scheduler.add_node(worker)
    for worker in workers:
        scheduler.add_node_collection(worker, names)
    scheduler.schedule()
    return [[names[index] for index in worker.sent] for worker in workers]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_process_begins_with_long_tests(processes: int) -> None:
    ordered = longest_first([*SHORT[:40], *LONG, *SHORT[40:]], processes)
    assert sorted(each.name for each in ordered) == sorted(each.name for each in [*LONG, *SHORT])
    found = shares(ordered, processes)
    assert len(found) == processes
    for share in found:
        kinds = [name.startswith("short") for name in share]
        assert not kinds[0]
        assert kinds == sorted(kinds), "a long test comes last"


def test_the_long_tests_of_a_file_stay_together_and_all_are_spread() -> None:
    found = shares(longest_first([*LONG, *SHORT], 3), 3)
    long = [{name.split()[0] for name in share if not name.startswith("short")} for share in found]
    assert long == [{"machine"}, {"ring"}, {"suite", "sizes"}]


def test_fewer_tests_than_processes_are_all_run() -> None:
    assert [each.name for each in longest_first([SHORT[0], LONG[-1]], 3)] == ["sizes", "short 0"]
    assert longest_first([], 3) == []
