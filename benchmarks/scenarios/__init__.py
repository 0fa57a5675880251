"""One workload per file. Each has a TITLE and `run(arena)`, which yields its comparisons."""

from benchmarks.scenarios.registry import SCENARIOS

__all__ = ["SCENARIOS"]
