"""Ids: unique in threads and forked children, sortable in the order in which one process made them."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hansard import ids


def test_they_sort_in_the_order_of_their_making() -> None:
    made = [ids.message_id() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_an_id_is_a_prefix_and_32_hex_digits() -> None:
    for prefix, make in (("msg_", ids.message_id), ("conv_", ids.conversation_id), ("branch_", ids.branch_id)):
        id = make()
        assert id.startswith(prefix)
        assert len(id) == len(prefix) + 32
        int(id.removeprefix(prefix), 16)


def test_ids_made_in_threads_are_unique_and_in_order() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [ids.message_id() for _ in range(2000)], range(8)))
    made = [id for batch in batches for id in batch]
    assert len(set(made)) == len(made)
    assert all(batch == sorted(batch) for batch in batches)


def test_ids_stay_in_order_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids.message_id()
    monkeypatch.setattr("hansard.ids.time.time_ns", lambda: 1_000_000_000)
    after = [ids.message_id() for _ in range(5)]
    assert [before, *after] == sorted({before, *after})


FORK = """
import os
from hansard import ids
ids.message_id()
children = []
for _ in range(4):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, "\\n".join(ids.message_id() for _ in range(50)).encode())
        os._exit(0)
    os.wait()
    children.append(os.read(reading, 65536).decode().split())
children.append([ids.message_id() for _ in range(50)])
made = [id for child in children for id in child]
print(len(made), len(set(made)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_children_make_their_own() -> None:
    # In a process of its own: forking the one that runs the tests would fork its threads' locks as well.
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["250", "250"]
