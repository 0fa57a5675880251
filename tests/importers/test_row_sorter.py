"""Rows that are sorted into conversations: runs, interleaved rows, and places."""

from __future__ import annotations

import tracemalloc

from hansard.importers.row_sorter import RowSorter


def test_rows_of_a_conversation_keep_their_order_across_runs() -> None:
    """Longer than a run, than what is held until it is written, and with another conversation in between."""
    numbers = range(2_500)
    with RowSorter() as sorter:
        for number in numbers:
            sorter.add("a", {"number": number, "text": "x" * 100})
            if number % 700 == 0:
                sorter.add("b", {"number": number})
        found = dict(sorter.conversations())
    assert [row["number"] for row in found["a"]] == [*numbers]
    assert [row["number"] for row in found["b"]] == [0, 700, 1400, 2100]


def test_long_rows_are_not_held() -> None:
    with RowSorter() as sorter:
        tracemalloc.start()
        try:
            for number in range(100):
                sorter.add_encoded(str(number), b'"%b"' % (b"x" * (1 << 20)))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len([*sorter.places("7")]) == 1
    assert peak < 64 << 20


def test_rows_come_back_by_their_places() -> None:
    with RowSorter() as sorter:
        for place in (2.0, 1.0, 1.0, 2.0, 0.0):
            sorter.add("a", len([*sorter.places("a")]), place)
        found = [*sorter.places("a")]
    assert found == [(0.0, 4), (1.0, 1), (1.0, 2), (2.0, 0), (2.0, 3)]
