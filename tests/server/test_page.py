"""The examples of docs/reference/server.md run unchanged, in their order, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.docs import pages
from tests.server.kit import Served

BLOCKS = [block for block in pages.blocks(pages.DOCS / "reference" / "server.md") if block.language == "curl"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_example_succeeds(api: Served, tmp_path: Path) -> None:
    # With this, curl ends with an error when the server answers with one.
    (tmp_path / ".curlrc").write_text("fail-with-body\nshow-error\n")
    environment = os.environ | {"HANSARD": api.address, "CURL_HOME": str(tmp_path)}
    assert len(BLOCKS) > 5
    for block in BLOCKS:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", block.text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
        assert done.stdout or "-o " in block.text
