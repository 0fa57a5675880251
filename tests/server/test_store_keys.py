"""Keys in the store: shared by all machines, hidden from every caller, and safe to move to from a file."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from tests.cli.shell import Shell
from tests.server.test_auth import bearer
from tests.server.test_server import serving as serving_process
from tests.wait import PATIENCE, until

import hansard
from hansard import Denied, Store, Unavailable
from hansard.backends.memory import MemoryBackend
from hansard.model import SERVER_TENANT
from hansard.server.key_file import KeyFile
from hansard.server.store_keys import StoreKeys

KEYS = ("--keys", "store")


def status(address: str, token: str, path: str = "/api/v1/conversations", **headers: str) -> int:
    return httpx.get(address + path, headers=bearer(token) | headers, timeout=PATIENCE).status_code


def test_servers_of_one_store_share_keys(shell: Shell) -> None:
    url = "sqlite:///made.db"
    token = shell("keys", "create", "ops", "--operator", *KEYS, "--url", url).out.strip()
    assert not (shell.folder / "hansard-keys.json").exists()
    with (
        serving_process(shell.folder, url, *KEYS) as (one, first),
        serving_process(shell.folder, url, *KEYS) as (two, _),
    ):
        assert status(one, token) == status(two, token) == 200
        assert httpx.get(two + "/api/v1/conversations", timeout=PATIENCE).status_code == 401
        made = shell("keys", "create", "new", *KEYS, "--url", url).out.strip()
        until(lambda: status(one, made) == status(two, made) == 200)
        shell("keys", "revoke", "new", *KEYS, "--url", url)
        until(lambda: status(one, made) == status(two, made) == 401)
        assert status(one, token) == 200
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=PATIENCE)


def test_no_caller_reaches_the_tenant_of_the_keys(shell: Shell) -> None:
    url = "sqlite:///made.db"
    create = ("keys", "create", "ops", "--operator", "--scopes", "read,write,admin", *KEYS, "--url", url)
    token = shell(*create).out.strip()
    bound = shell("keys", "create", "odd", "--tenant", SERVER_TENANT, *KEYS, "--url", url).out.strip()
    with serving_process(shell.folder, url, *KEYS) as (address, _):
        there = {"Hansard-Tenant": SERVER_TENANT.replace(":", "%3A")}
        assert status(address, token, "/api/v1/records", **there) == 403
        assert status(address, bound, "/api/v1/records") == 403
        gone = httpx.delete(f"{address}/api/v1/admin/tenants/{SERVER_TENANT}", headers=bearer(token), timeout=PATIENCE)
        assert gone.status_code == 403
        assert SERVER_TENANT not in httpx.get(address + "/api/v1/admin/tenants", headers=bearer(token)).text
    shell("append", "c", "user", "hello", "--url", url)
    shell("copy", url, "sqlite:///copy.db", "--all-tenants")
    assert shell("keys", *KEYS, "--url", "sqlite:///copy.db", "--json").json["items"] == []


def test_keys_of_a_file_are_imported_and_stay_valid(shell: Shell) -> None:
    url = "sqlite:///made.db"
    token = shell("keys", "create", "old").out.strip()
    shell("keys", "revoke", shell("keys", "create", "gone", "--json").json["id"])
    assert shell("keys", "import", "hansard-keys.json", *KEYS, "--url", url, "--json").json == {"imported": 2}
    assert shell("keys", "import", "hansard-keys.json", *KEYS, "--url", url, "--json").json == {"imported": 0}
    with serving_process(shell.folder, url, *KEYS) as (address, _):
        assert status(address, token) == 200
    assert "there is no key file" in shell.fails(4, "keys", "import", "missing.json", *KEYS, "--url", url)
    assert "add --keys store" in shell.fails(2, "keys", "import", "hansard-keys.json")


def test_a_server_that_requires_keys_starts_before_the_first_one(shell: Shell) -> None:
    """As in a cluster, where the first key is created in a container that runs already."""
    options = ("sqlite:///made.db", *KEYS, "--host", "0.0.0.0", "--require-key")
    with serving_process(shell.folder, *options) as (listening, _):
        address = listening.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(address + "/api/v1/conversations", timeout=PATIENCE).status_code == 401
        token = shell("keys", "create", "ops", *KEYS, "--url", "sqlite:///made.db").out.strip()
        until(lambda: status(address, token) == 200)


def test_concurrent_changes_lose_no_key() -> None:
    async def run() -> None:
        store = Store(MemoryBackend())
        several = [StoreKeys(store) for _ in range(8)]
        made = await asyncio.gather(*(keys.create(f"k{n}", ["read"], tenant="t") for n, keys in enumerate(several)))
        keys = StoreKeys(store)
        await keys.refresh()
        assert {key.id for key in keys.list()} == {key.id for key, _ in made}

    asyncio.run(run())


def test_a_store_that_does_not_answer_refuses_and_recovers(tmp_path: Path) -> None:
    async def run() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/a.db") as store:
            keys = StoreKeys(store)
            await keys.create("k", ["read"], tenant="t")
            closed = Store(MemoryBackend())
            away = StoreKeys(closed)
            await closed.close()
            with pytest.raises(Unavailable, match="the keys cannot be read from the store"):
                await away.refresh()
            assert [key.name for key in keys.list()] == ["k"]
            with pytest.raises(Denied, match="holds the keys of servers"):
                await store.admin.delete_tenant(SERVER_TENANT)

    asyncio.run(run())
    assert KeyFile(tmp_path / "none.json").is_empty
