"""A real server that is too old. `make soak` runs it: the server starts for about a minute."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tools import old_cassandra
from tools.old_cassandra import OldNode

import hansard

pytestmark = pytest.mark.skipif("HANSARD_KILLS" not in os.environ, reason="only in make soak")


@pytest.mark.timeout(900)
def test_an_old_server_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    if reason := old_cassandra.why_absent():
        pytest.skip(reason)
    node = OldNode(tmp_path / "node")
    node.start()

    async def run() -> None:
        for _ in range(2):
            with pytest.raises(hansard.FormatMismatch, match=r"is version 4\.1\.9: Hansard needs 5\.0 or newer"):
                await hansard.connect(f"{node.url}/chats").__aenter__()

    try:
        asyncio.run(run())
    finally:
        node.kill()
    assert not list(tmp_path.glob("node/data/chats*"))
