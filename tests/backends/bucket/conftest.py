"""A bucket on a real S3 server, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers import s3

NO_S3 = pytest.mark.skipif(s3.why_absent() is not None, reason=f"no S3: {s3.why_absent()}")


class Prefixes:
    """Prefixes of one bucket, each for one test, and their folders on disk."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self.endpoint = endpoint
        self._folder = folder
        self._count = 0

    def new(self) -> tuple[str, Path]:
        """Returns the URL of a new prefix, and its folder."""
        self._count += 1
        prefix = f"p{self._count}"
        return f"s3://bucket/{prefix}?endpoint={self.endpoint}&region=us-east-1", self._folder / prefix


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefixes]:
    folder = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as patch, s3.running(folder, "bucket") as endpoint:
        patch.setenv("AWS_ACCESS_KEY_ID", s3.KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.SECRET)
        yield Prefixes(endpoint, folder / "bucket")
