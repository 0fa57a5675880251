"""The workloads by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.arena import Arena
from benchmarks.report import Comparison
from benchmarks.scenarios import (
    busy,
    capture,
    claude,
    file_size,
    foreign_import,
    graph,
    growth,
    http_server,
    indexing,
    processes,
    redis,
    search_busy,
    w1_sequential,
    w2_concurrent,
    w3_last,
    w4_turn,
    w5_listing,
    w6_search,
    w7_bulk,
    w8_start,
    w9_assembly,
    w10_formats,
    wire,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    title: str
    run: Callable[[Arena], Iterable[Comparison]]


SCENARIOS = {
    "w1": Scenario(w1_sequential.TITLE, w1_sequential.run),
    "w2": Scenario(w2_concurrent.TITLE, w2_concurrent.run),
    "w3": Scenario(w3_last.TITLE, w3_last.run),
    "w4": Scenario(w4_turn.TITLE, w4_turn.run),
    "w5": Scenario(w5_listing.TITLE, w5_listing.run),
    "w6": Scenario(w6_search.TITLE, w6_search.run),
    "searching": Scenario(search_busy.TITLE, search_busy.run),
    "indexing": Scenario(indexing.TITLE, indexing.run),
    "w7": Scenario(w7_bulk.TITLE, w7_bulk.run),
    "import": Scenario(foreign_import.TITLE, foreign_import.run),
    "w8": Scenario(w8_start.TITLE, w8_start.run),
    "w9": Scenario(w9_assembly.TITLE, w9_assembly.run),
    "w10": Scenario(w10_formats.TITLE, w10_formats.run),
    "capture": Scenario(capture.TITLE, capture.run),
    "size": Scenario(file_size.TITLE, file_size.run),
    "busy": Scenario(busy.TITLE, busy.run),
    "processes": Scenario(processes.TITLE, processes.run),
    "claude": Scenario(claude.TITLE, claude.run),
    "graph": Scenario(graph.TITLE, graph.run),
    "growth": Scenario(growth.TITLE, growth.run),
    "maintenance": Scenario(growth.WHOLE_TITLE, growth.run_whole),
    "redis": Scenario(redis.TITLE, redis.run),
    "served": Scenario(http_server.TITLE, http_server.run),
    "wire": Scenario(wire.TITLE, wire.run),
}
