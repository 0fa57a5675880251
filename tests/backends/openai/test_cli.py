"""The command line on both APIs: copied there and back, checked and exported, by the real command and a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.backends.openai.test_mirror import Side, every_kind, url_of
from tests.cli.shell import Shell
from tests.cli.test_transfer import filled, held
from tests.server.kit import Served, serving

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def at_the_api(api: Served, kind: str, mirrored: str) -> list[str]:
    """What the API holds of a conversation, by the SDK itself."""

    async def go() -> list[str]:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client:
            listed: Any = await client.get("/conversations?limit=100", cast_to=object)
            (id,) = [each["id"] for each in listed["data"] if each["metadata"].get("hansard_id") == mirrored]
            return await Side(client, api, kind).texts(id)

    return asyncio.run(go())


def forget(api: Served) -> None:
    """Deletes everything there, as somebody else would."""

    async def go() -> None:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client:
            listed: Any = await client.get("/conversations?limit=100", cast_to=object)
            for each in listed["data"]:
                await client.conversations.delete(each["id"])

    asyncio.run(go())


@pytest.mark.parametrize(("kind", "mode"), [("conversations", "delta"), ("threads", "snapshot")])
def test_there_and_back(shell: Shell, api: Served, kind: str, mode: str) -> None:
    forget(api)
    filled(shell.folder)
    mirror = url_of(kind, api.address, "sqlite:///index.db", mode=mode)
    there = shell("copy", "sqlite:///hansard.db", mirror, "--all-tenants", "--json").json
    assert (there["conversations"], there["messages"], there["conflicts"], there["losses"]) == (7, 38, [], [])
    assert there["verified"]
    assert (
        at_the_api(api, kind, "mine")[-1]
        == shell("show", "mine", "--last", "1", "--json").json["messages"][0]["content"]
    )
    again = shell("copy", "sqlite:///hansard.db", mirror, "--all-tenants", "--json").json
    assert (again["conversations"], again["messages"], again["skipped"]) == (0, 0, 7), "it goes on where it ended"
    back = shell("copy", mirror, "sqlite:///back.db", "--all-tenants", "--json").json
    assert (back["conversations"], back["messages"], back["losses"], back["verified"]) == (7, 38, [], True)
    for tenant in ("default", "acme"):
        assert held(shell.folder, "back.db", tenant) == held(shell.folder, "hansard.db", tenant)


@every_kind
def test_what_others_added_comes_back_too(shell: Shell, api: Served, kind: str) -> None:
    forget(api)
    mirror = url_of(kind, api.address, "sqlite:///index.db")
    shell("append", "c", "user", "ours", "--url", mirror)

    async def say() -> None:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client:
            side = Side(client, api, kind)
            await side.say((await side.ids())[0], "theirs")

    asyncio.run(say())
    shell("copy", mirror, "sqlite:///back.db")
    lines = [json.loads(line) for line in shell("export", "--url", mirror).out.splitlines()]
    assert sum("theirs" in json.dumps(line) for line in lines) == 1
    assert "theirs" in shell("show", "c", "--url", "sqlite:///back.db").out


@every_kind
def test_check_says_where_the_sides_differ(shell: Shell, api: Served, kind: str) -> None:
    forget(api)
    mirror = url_of(kind, api.address, "sqlite:///index.db")
    for text in ("one", "two"):
        shell("append", "c", "user", text, "--url", mirror)
    assert shell("check", "--url", mirror).out == "nothing is wrong\n"

    async def delete_one() -> None:
        async with openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client:
            (id,) = await Side(client, api, kind).ids()
            listed: Any = await client.get(f"/conversations/{id}/items", cast_to=object)
            await client.conversations.items.delete(listed["data"][0]["id"], conversation_id=id)

    asyncio.run(delete_one())
    found = shell.run("check", "--url", mirror)
    assert (found.code, found.out) == (6, "default/c: 1 of its messages were deleted at the API: a read will notice\n")
    assert "two" not in shell("show", "c", "--url", mirror).out
    assert shell("check", "--url", mirror).out == "nothing is wrong\n"
    assert "cannot back up" in shell.fails(8, "backup", "copy.db", "--url", mirror)
