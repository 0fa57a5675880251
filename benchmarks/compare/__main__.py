"""The command: starts the servers and the processes, runs the rounds, prints a table."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.compare.operations import OF_BACKEND
from benchmarks.compare.served import SERVED

BACKENDS = OF_BACKEND | {"served": SERVED}
_ROOT = Path(__file__).parent.parent.parent
_COUNTED = 9
_CALLS = {"w1": 100, "w2": 320, "append-64": 320}


class Worker:
    """A process that runs operations of one tree on one backend."""

    def __init__(self, tree: Path, *arguments: str) -> None:
        environment = os.environ | {"PYTHONPATH": f"{tree.absolute() / 'src'}:{_ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "benchmarks.compare.worker", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, operation: str, count: int) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, "count": count}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(f"{operation}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)


@contextmanager
def server_of(backend: str) -> Iterator[str | None]:
    """Where a fresh server listens: the folder of PostgreSQL's socket, or the socket of Redis."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if backend == "postgres":
            folder.chmod(0o755)
            from tools.postgres import Server

            postgres = Server(folder / "postgres")
            postgres.make()
            postgres.start(fsync="off")
            try:
                yield str(postgres.folder)
            finally:
                postgres.stop()
        elif backend == "redis":
            from tests.servers import redis

            server = redis.Server(folder)
            try:
                yield str(server.socket)
            finally:
                server.kill()
        else:
            yield None


def compare(backend: str, trees: Sequence[Path], operations: Sequence[str], rounds: int, calls: int) -> None:
    with server_of(backend) as server, ExitStack() as stack:

        def workers(kind: str, *arguments: str) -> list[Worker]:
            made = [
                Worker(tree, backend, f"{kind}{number}", *([server] if server else []), *arguments)
                for number, tree in enumerate(trees)
            ]
            for each in made:
                stack.callback(each.close)
            return made

        timed = workers("timed")
        counted = [] if backend == "served" else workers("counted", "--count")
        for operation in operations:
            figures = [_ratio(timed, operation, rounds, _CALLS.get(operation, calls))] if rounds else ["| | |"]
            figures += _counts(counted, operation) if counted else []
            print(f"| {backend} | {operation} | {' | '.join(figures)} |", flush=True)


def _ratio(workers: Sequence[Worker], operation: str, rounds: int, calls: int) -> str:
    """The median of the ratios, its quartiles, and the microseconds of both."""
    ratios, times = [], []
    for number in range(rounds + 1):
        taken = [0.0, 0.0]
        for at in (0, 1) if number % 2 else (1, 0):
            taken[at] = workers[at].run(operation, calls)["cpu"] / calls * 1e6
        if number:  # the first round warms up
            ratios.append(taken[1] / taken[0])
            times.append(taken)
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    before, after = (statistics.median(each) for each in zip(*times, strict=True))
    return f"{median:.3f} | {low:.2f}-{high:.2f} | {before:.0f} | {after:.0f}"


def _counts(workers: Sequence[Worker], operation: str) -> list[str]:
    """Medians of single calls: what runs beside some of them is not counted."""
    count = 64 if operation == "w2" else 1
    found = [[worker.run(operation, count) for _ in range(_COUNTED)] for worker in workers]
    old, new = ({name: statistics.median(each[name] for each in some) / count for name in some[0]} for some in found)
    shown = [f"{new['calls'] / old['calls']:.3f} ({old['calls']:.0f} > {new['calls']:.0f})"]
    return shown + [f"{old[name]:.2f} > {new[name]:.2f}" for name in ("trips", "commits")]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.compare", description="Compare two source trees.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--backend", nargs="*", choices=list(BACKENDS), default=list(BACKENDS))
    parser.add_argument("--operation", nargs="*", help="only these")
    parser.add_argument("--rounds", type=int, default=15, help="0 only counts")
    parser.add_argument("--calls", type=int, default=50, help="in a round")
    given = parser.parse_args()
    print("| backend | operation | CPU | quartiles | old us | new us | calls | round trips | commits |")
    print("|---|---|---|---|---|---|---|---|---|")
    for backend in given.backend:
        operations = [each for each in BACKENDS[backend] if not given.operation or each in given.operation]
        compare(backend, (given.old, given.new), operations, given.rounds, given.calls)


if __name__ == "__main__":
    main()
