"""A read is of one moment: never half of a batch that another process is writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hansard.sync

KEYS = [(["n"], f"k{number}") for number in range(20)]
WRITER = """
import sys, hansard.sync
from hansard import Put
with hansard.sync.connect(sys.argv[1]) as store:
    for turn in range(int(sys.argv[2])):
        store.records.write([Put(["n"], f"k{number}", turn) for number in range(20)])
"""


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db?durability=normal", "file://{}/files?durability=process"])
def test_a_batch_of_another_process_is_seen_whole_or_not(tmp_path: Path, url: str) -> None:
    where = url.format(tmp_path)
    with hansard.sync.connect(where) as store:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, where, "400"])
        torn, reads = [], 0
        while writer.poll() is None:
            found = {record.value if record else None for record in store.records.get_many(KEYS)}
            reads += 1
            if len(found) > 1:
                torn.append(found)
        assert writer.returncode == 0
        assert torn == []
        assert reads > 10
