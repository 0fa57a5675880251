"""Which keys there are: all of a conversation in one slot, nothing of anybody in another's, nothing left behind."""

from __future__ import annotations

import asyncio
import base64
import re
import threading
from collections import defaultdict
from typing import Any

import pytest
from redis.crc import key_slot
from tests.servers import redis as redis_servers
from tests.transfer import rich

import hansard
from hansard import Limits, sync
from hansard.backends.redis import batch, rows, tenant_data, transaction
from hansard.backends.redis.keys import RedisKeys, list_member, place, record_member, record_prefix
from hansard.backends.redis.maintenance import RedisMaintenance
from hansard.backends.redis.nodes import Nodes
from hansard.model import Message, Participant, Usage

ODD = ["a}b", "{a}", "a:b", "a%3Ab", "%", "{", "}", ":", "ü😀", "a b", "\t"]


def keys_of(url: str) -> list[bytes]:
    number = int(url.partition("db=")[2])
    return sorted(redis_servers.shared().client(number).keys("*"))


def test_all_keys_of_a_conversation_are_in_one_slot(url: str) -> None:
    async def fill() -> None:
        async with hansard.connect(url) as store:
            await rich.fill(store)

    asyncio.run(fill())
    slots: dict[bytes, set[int]] = defaultdict(set)
    parts: dict[bytes, set[bytes]] = defaultdict(set)
    for key in keys_of(url):
        found = re.match(rb"hansard:(\{[^}]*\}):(.*)", key)
        assert found or key == b"hansard:format", key
        if found:
            slots[found[1]].add(key_slot(key))
            parts[found[1]].add(found[2])
    assert {len(each) for each in slots.values()} == {1}
    assert parts[b"{default:branched}"] == {
        b"head",
        b"ids",
        b"messages:1",
        b"messages:2",
        b"messages:3",
        b"records",
        b"summaries",
    }
    assert len({slot for each in slots.values() for slot in each}) > 10, "and conversations are spread"


@pytest.mark.parametrize("id", ODD)
def test_any_name_keeps_to_its_place(url: str, id: str) -> None:
    with sync.connect(url) as store:
        for tenant in (id, "plain"):
            view = store.tenant(tenant)
            view.append(id, Message("user", tenant, id=id), user_id=id, agent_id=id)
            view.user(id).records.put([id], id, tenant)
            assert [message.content for message in view.get_messages(id)] == [tenant]
            assert [each.id for each in view.list_conversations(user_id=id, agent_id=id).items] == [id]
            assert view.check() == []
        assert store.admin.tenants() == sorted([id, "plain"])


def test_names_do_not_run_together(url: str) -> None:
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", "b%3Ac"), ("a", "b"), ("a:b:c", "d")]
    with sync.connect(url) as store:
        for tenant, id in pairs:
            store.tenant(tenant).append_message(id, "user", f"{tenant} {id}")
        for tenant, id in pairs:
            assert [message.content for message in store.tenant(tenant).get_messages(id)] == [f"{tenant} {id}"]


def test_places_are_told_apart() -> None:
    names = [("t",), ("t", "c"), ("t", "user", "c"), ("t", "user:c"), ("t:user", "c"), ("t", "agent", "c"), ("t}", "c")]
    assert len({place(*parts) for parts in names}) == len(names)
    keys = RedisKeys("p")
    assert key_slot(keys.conversation("t", "c}x").encode()) == key_slot(f"{keys.conversation('t', 'c}x')}:ids".encode())


def test_stands_sort_by_time_then_id() -> None:
    ordered = [(-(1 << 60), "z"), (-1, "a"), (0, ""), (0, "a"), (0, "b"), (0, "ü"), (1, "a"), (1 << 60, "a")]
    assert sorted(ordered) == ordered
    assert sorted(list_member(*each) for each in ordered) == [list_member(*each) for each in ordered]


def test_records_sort_by_namespace_then_key() -> None:
    names = [
        ((), "z"),
        (("",), "a"),
        (("", ""), "a"),
        (("\0",), "a"),
        (("a",), ""),
        (("a",), "\0"),
        (("a",), "z"),
        (("a", ""), "a"),
        (("a", "\0"), "b"),
        (("a", "b"), "a"),
        (("a\0",), "a"),
        (("ab",), "a"),
        (("ü",), "a"),
    ]
    assert sorted(names) == names
    assert sorted(record_member(*each) for each in names) == [record_member(*each) for each in names]
    low = record_prefix(("a",))
    below = [each for each in names if low <= record_member(*each) < low + b"\xff"]
    assert below == [each for each in names if each[0][:1] == ("a",)]


def test_a_deleted_tenant_leaves_nothing(url: str) -> None:
    async def play() -> None:
        async with hansard.connect(url) as store:
            await rich.fill(store)
            await store.delete_conversation("pictures")
            await store.admin.delete_tenant("default")

    asyncio.run(play())
    assert keys_of(url) == [b"hansard:format"]


@pytest.mark.parametrize("where", ["url", "cluster_url"])
def test_what_is_appended_while_a_tenant_goes_stays_whole(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    url = request.getfixturevalue(where)
    picture = {"image": "QUJD" * 40}

    async def play() -> None:
        limits = Limits(blob_bytes=64)
        async with hansard.connect(url, limits=limits) as store, hansard.connect(url, limits=limits) as other:
            await store.append("before", Message("user", picture))
            await store.blobs.put(base64.b64decode(picture["image"]))
            run, holds = tenant_data.run_operations, RedisMaintenance._holds_anything

            async def late(nodes: Nodes, operations: batch.Operations) -> list[int]:
                """Which blobs there are is known, and all are about to go."""
                monkeypatch.setattr(tenant_data, "run_operations", run)
                await other.append("meanwhile", Message("user", picture))
                return await run(nodes, operations)

            monkeypatch.setattr(tenant_data, "run_operations", late)
            receipt = await store.admin.delete_tenant("default")
            assert (receipt.conversations, receipt.messages, receipt.blobs) == (1, 1, 0)
            (message,) = await store.get_messages("meanwhile")
            assert message.content == picture
            assert await store.check() == []
            assert (await store.admin.delete_tenant("default")).blobs == 1

            async def later(self: RedisMaintenance, tenant: str) -> bool:
                """That it holds nothing is known, and it is about to be forgotten."""
                monkeypatch.setattr(RedisMaintenance, "_holds_anything", holds)
                found = await holds(self, tenant)
                await other.append("meanwhile", Message("user", picture))
                return found

            monkeypatch.setattr(RedisMaintenance, "_holds_anything", later)
            await store.admin.delete_tenant("default")
            assert await store.admin.tenants() == ["default"]

    asyncio.run(play())


def test_an_erased_user_leaves_no_name(url: str) -> None:
    with sync.connect(url) as store:
        store.append("hers", Message("user", "x", participant=Participant("user", "zoe-9")), user_id="zoe-9")
        store.append("shared", [Message("user", "x", participant=Participant("user", "zoe-9")), Message("user", "y")])
        store.user("zoe-9").records.put(["n"], "k", 1)
        store.erase_user("zoe-9")
        number = int(url.partition("db=")[2])
        client = redis_servers.shared().client(number)
        assert [key for key in client.keys("*") if b"zoe-9" in key] == []
        assert client.smembers("hansard:{default:shared}:participants") <= {b"zoe-9"}
        assert store.check() == []


def test_the_largest_batch_fits_into_a_command(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its messages have: ids of their own, a participant and usage each, after a deletion."""
    many, sizes = 1000, []
    monkeypatch.setattr(transaction, "_HOPEFUL", many - 1)
    original = batch.Operations.arguments

    def measured(self: batch.Operations, deadline: str = "") -> list[Any]:
        values = original(self, deadline)
        sizes.append(len(values))
        return values

    with sync.connect(url) as store:
        store.append("c", [Message("user", "x", id="x"), Message("user", "y", id="y")])
        store.delete_message("c", "x")
        messages = [
            Message(
                "user", "z", id=f"{number}", participant=Participant("user", f"{number}"), usage=Usage(1, cost=0.25)
            )
            for number in range(many)
        ]
        monkeypatch.setattr(batch.Operations, "arguments", measured)
        assert store.append("c", messages).stored == many
        assert store.append("c", messages).stored == 0
        (row,) = store.usage()
        assert (row.messages, row.input_tokens, row.cost) == (many, many, many / 4)
        largest = store.capabilities.atomic_batch
    assert largest is not None
    assert len(sizes) == 1
    assert sizes[0] * largest / many < batch._MOST


def test_large_bodies_are_decoded_beside_the_event_loop(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    original = rows.messages_from

    def watched(found: Any, id: str) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return original(found, id)

    async def play() -> None:
        async with hansard.connect(url) as store:
            await store.append("c", Message("user", {"text": "a b " * 500_000}, id="m"))
            monkeypatch.setattr(rows, "messages_from", watched)
            assert len(await store.get_messages("c", last=1)) == 1
            assert len(await store.get_messages("c", roles=["user"])) == 1
            assert len(await store.get_messages("c", sort="time")) == 1
            await store.get_message("c", "m")

    asyncio.run(play())
    assert threads
    assert not any(threads)
