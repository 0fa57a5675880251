"""What the contract says about blobs holds for those in a bucket."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from tests.backends.bucket.conftest import NO_S3, Prefixes

from hansard.testing import Target
from hansard.testing.contract.base import clock, store  # noqa: F401 - fixtures of the contract
from hansard.testing.contract.blobs import TestBlobs  # noqa: F401

pytestmark = NO_S3


@pytest.fixture
def mode() -> str:
    return "async"


@pytest.fixture
def target(tmp_path: Path, bucket: Prefixes) -> Target:
    where, _ = bucket.new()
    return Target(f"sqlite:///{tmp_path}/hansard.db?blobs={quote(where, safe='')}")
