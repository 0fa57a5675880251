from __future__ import annotations

import pytest
from msgspec import Struct

from hansard.backends.shared.migrations import lacking
from hansard.errors import Corrupt, FormatMismatch


class Step(Struct, frozen=True):
    name: str
    checksum: str


KNOWN = [Step("0001_first", "a"), Step("0002_second", "b")]


def test_what_a_store_has_not_had_is_lacking() -> None:
    assert lacking("here", KNOWN, {}) == KNOWN
    assert lacking("here", KNOWN, {"0001_first": "a"}) == KNOWN[1:]
    assert lacking("here", KNOWN, {"0001_first": "a", "0002_second": "b"}) == []


def test_a_store_of_a_newer_version_is_refused() -> None:
    with pytest.raises(FormatMismatch, match="here was written by a newer version of Hansard") as caught:
        lacking("here", KNOWN, {"0001_first": "a", "9999_future": "x"})
    assert (caught.value.found, caught.value.wanted) == ("9999_future", "0002_second")


def test_a_migration_that_was_changed_is_refused() -> None:
    with pytest.raises(Corrupt, match="'0001_first' of here has another checksum than expected"):
        lacking("here", KNOWN, {"0001_first": "another"})
