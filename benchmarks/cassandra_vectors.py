"""SAI's search for near vectors, against comparing all of them: `python -m benchmarks.cassandra_vectors`.

Starts one node. The table has the user in its partition key, as the search index does. Vectors are drawn around
centres, as those of texts lie; queries are other draws. The nearest that SAI returns are compared with the exact ones:
of the ten nearest, and of ten that were chosen exactly from more candidates.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
from cassandra.cluster import Cluster
from cassandra.concurrent import execute_concurrent_with_args
from tools.cassandra import Node, why_absent

DIMENSIONS = 384
_CENTRES = 300
_QUERIES = 50
_K = 10
_TABLE = (
    "CREATE TABLE IF NOT EXISTS bench.vectors (tenant text, owner text, seq int, v vector<float, {0}>, "
    "PRIMARY KEY ((tenant, owner), seq))"
)
_INDEX = (
    "CREATE CUSTOM INDEX IF NOT EXISTS vectors_v ON bench.vectors (v) USING 'sai' "
    "WITH OPTIONS = {{'similarity_function': 'dot_product'}}"
)
_NEAREST = "SELECT seq FROM bench.vectors WHERE tenant = 't' AND owner = ? ORDER BY v ANN OF ? LIMIT {0}"


def _drawn(chance: numpy.random.Generator, centres: Any, count: int) -> Any:
    noise = chance.normal(size=(count, DIMENSIONS)) * 0.9
    found = centres[chance.integers(len(centres), size=count)] + noise
    return (found / numpy.linalg.norm(found, axis=1, keepdims=True)).astype(numpy.float32)


def _insert(session: Any, owner: str, vectors: Any) -> float:
    insert = session.prepare("INSERT INTO bench.vectors (tenant, owner, seq, v) VALUES ('t', ?, ?, ?)")
    began = time.perf_counter()
    rows = [(owner, seq, each.tolist()) for seq, each in enumerate(vectors)]
    while rows:
        # What times out is put again.
        done = execute_concurrent_with_args(session, insert, rows, concurrency=8, raise_on_first_error=False)
        rows = [row for row, (is_done, _) in zip(rows, done, strict=True) if not is_done]
    return time.perf_counter() - began


def _processor(pid: int) -> float:
    """Returns the milliseconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _recall(session: Any, owner: str, vectors: Any, queries: Any, fetched: int) -> tuple[float, float]:
    """Returns the share of the ten nearest that is found, and the median milliseconds of a query."""
    ask = session.prepare(_NEAREST.format(fetched))
    hits, took = 0, []
    for query in queries:
        exact = numpy.argsort(-(vectors @ query))[:_K]
        began = time.perf_counter()
        found = [row.seq for row in session.execute(ask, (owner, query.tolist()))]
        took.append(1000 * (time.perf_counter() - began))
        best = sorted(found, key=lambda seq: -float(vectors[seq] @ query))[:_K]
        hits += len(set(best) & set(exact.tolist()))
    return hits / (_K * len(queries)), float(numpy.median(took))


def _exact(vectors: Any, queries: Any) -> float:
    """Milliseconds of comparing all vectors, as signed bytes, by the kernel that stores use."""
    from usearch.compiled import MetricKind
    from usearch.index import search

    small = numpy.round(vectors * 127).astype(numpy.int8)
    took = []
    for query in queries:
        began = time.process_time()
        search(small, numpy.round(query * 127).astype(numpy.int8), _K, MetricKind.Cos, exact=True, threads=1)
        took.append(1000 * (time.process_time() - began))
    return float(numpy.median(took))


def measure(session: Any, pid: int, counts: list[int]) -> None:
    chance = numpy.random.default_rng(7)
    centres = chance.normal(size=(_CENTRES, DIMENSIONS))
    queries = _drawn(chance, centres, _QUERIES)
    session.execute("CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute(_TABLE.format(DIMENSIONS))
    session.execute(_INDEX.format())
    _insert(session, "another", _drawn(chance, centres, 2000))
    print(f"{'vectors':>8} {'insert':>10} {'fetched':>8} {'recall':>7} {'SAI':>9} {'its CPU':>9} {'exact':>9}")
    for count in counts:
        vectors = _drawn(chance, centres, count)
        each = 1000 * _insert(session, f"u{count}", vectors) / count
        exact = _exact(vectors, queries)
        for fetched in (_K, 4 * _K, 10 * _K):
            before = _processor(pid)
            recall, took = _recall(session, f"u{count}", vectors, queries, fetched)
            spent = (_processor(pid) - before) / len(queries)
            line = f"{count:>8} {each:>7.2f} ms {fetched:>8} {recall:>7.3f} {took:>6.1f} ms {spent:>6.1f} ms"
            print(f"{line} {exact:>6.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[5_000, 20_000])
    given = parser.parse_args()
    if reason := why_absent():
        raise SystemExit(f"no node can be started: {reason}")
    with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
        node = Node(Path(folder) / "node")
        node.start()
        assert node.process is not None
        try:
            host, _, port = node.url.removeprefix("cassandra://").partition(":")
            with Cluster([host], port=int(port), protocol_version=5) as cluster:
                measure(cluster.connect(), node.process.pid, given.counts)
        finally:
            node.kill()


if __name__ == "__main__":
    main()
