"""The command line on a server: copies there and back, byte for byte, and errors without secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cli.shell import Shell
from tests.servers import postgres
from tests.transfer.rich import fill

import hansard

pytestmark = pytest.mark.skipif(postgres.why_absent() is not None, reason=f"no PostgreSQL: {postgres.why_absent()}")


@pytest.fixture
def url() -> str:
    return postgres.with_schema(postgres.new_schema())


def fill_store(url: str) -> None:
    async def run() -> None:
        async with hansard.connect(url) as store:
            await fill(store)
            await fill(store.tenant("acme"))

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["sqlite:///{0}/{1}.db", "file:{0}/{1}"])
def test_copying_to_a_server_and_back_is_exact(kind: str, url: str, shell: Shell, tmp_path: Path) -> None:
    first, last = (kind.format(tmp_path, name) for name in ("first", "last"))
    fill_store(first)
    shell("copy", first, url, "--all-tenants")
    shell("copy", url, last, "--all-tenants")
    for tenant in ("default", "acme"):
        exports = [shell("export", "--url", each, "--tenant", tenant).out for each in (first, url, last)]
        # The first line contains the source and the time of the export.
        lines = {export.partition("\n")[2] for export in exports}
        assert len(lines) == 1
        assert len(lines.pop().splitlines()) > 40


def test_check_and_upgrade_work_on_a_server(url: str, shell: Shell) -> None:
    fill_store(url)
    assert "no problems" in shell("check", "--url", url).out.lower() or shell("check", "--url", url).code == 0
    shell("upgrade", "--url", url)
    shell("stats", "--url", url)


def test_a_password_is_never_shown(shell: Shell) -> None:
    for url in ("postgresql://me:very-secret@127.0.0.1:1/db", "postgresql://me:very-secret@127.0.0.1:1/db?sise=1"):
        done = shell.run("check", "--url", url)
        assert done.code != 0
        assert "very-secret" not in done.out + done.err
