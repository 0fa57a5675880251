"""What Redis does of the Storage contract where it has ways of its own."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import hansard
from hansard import sync
from hansard.backends.redis import RedisBackend, read
from hansard.backends.redis.state_cache import RedisStateCache
from hansard.contract.storage import Run, Span, Wants, Without
from hansard.contract.types import Append, Context, Draft, NewConversation, RecordWrite
from hansard.errors import Conflict, Unsupported
from hansard.model import Message, Participant
from hansard.rules import NO_END, operations
from hansard.testing import Clock

PICTURE = base64.b64encode(bytes(range(256)) * 30).decode()


@pytest.mark.parametrize("where", ["url", "cluster_url"])
def test_a_conversation_that_takes_the_place_of_an_expired_one(request: pytest.FixtureRequest, where: str) -> None:
    """It refers to the same blob, and the same person takes part: neither may go with the old one."""
    clock = Clock()
    bob = Participant("user", "bob")
    with sync.connect(request.getfixturevalue(where), clock=clock) as store:
        store.create_conversation("c", expires_at=clock.now + timedelta(hours=1))
        store.append("c", [Message("user", [PICTURE], id="a", participant=bob), Message("user", "old", id="b")])
        clock.now += timedelta(hours=2)
        store.append("c", Message("user", [PICTURE, "again"], id="a", participant=bob))
        (message,) = store.get_messages("c")
        assert message.content == [PICTURE, "again"]
        context = store._inner._view.context()
        (found,) = store._runner.call(store.backend.participations(context, "bob", 10))
        assert found.message_ids == ["a"]
        assert store.check() == []
        assert store.stats().blobs == 1
        assert store.delete_conversation("c").blobs == 1


def append(id: str, *records: RecordWrite) -> Any:
    draft = Draft(Message("user", "x", id=id, format="text"), "x", 1, given_id=True)
    return partial(operations.append, append=Append((draft,), NewConversation(), records=records))


def backend_of(store: hansard.Store) -> RedisBackend:
    assert isinstance(store.backend, RedisBackend)
    return store.backend


def test_records_with_an_append(url: str) -> None:
    context = Context("default", Clock().now)

    async def play() -> None:
        async with hansard.connect(url) as store, hansard.connect(url) as other:
            storage = backend_of(store).storage
            write = RecordWrite(("n",), "k", 1, conversation_id="c")
            await storage.write(context, "c", append("1", write))
            await storage.write(context, "c", append("2", RecordWrite(("n",), "k", 2, conversation_id="c")))
            record = await other.records.get(["n"], "k")
            assert record is not None
            assert (record.value, record.revision, record.conversation_id) == (2, 2, "c")
            with pytest.raises(Conflict):
                await storage.write(context, "c", append("3", RecordWrite(("n",), "k", 3, expected_revision=1)))
            await other.records.put(["n"], "k", "theirs")
            await storage.write(context, "c", append("4", RecordWrite(("n",), "k", 4, conversation_id="c")))
            assert [message.id for message in await store.get_messages("c")] == ["1", "2", "4"]
            assert (await store.delete_conversation("c")).records == 1

    asyncio.run(play())


def test_records_with_an_append_in_a_cluster(cluster_url: str) -> None:
    async def play() -> None:
        async with hansard.connect(cluster_url) as store:
            with pytest.raises(Unsupported, match="write the records by themselves"):
                await backend_of(store).storage.write(
                    Context("default", Clock().now), "c", append("1", RecordWrite(("n",), "k", 1))
                )
            assert await store.get_conversation("c") is None

    asyncio.run(play())


def test_more_ids_than_a_script_can_hand_on(url: str) -> None:
    many = [str(number) for number in range(9000)]
    with sync.connect(url) as store:
        store.append("c", [Message("user", "x", id="first"), *(Message("user", id, id=id) for id in many)])
        store.branch("c", at="5000")
        assert store.delete_messages("c", many).messages == len(many)
        assert [message.id for message in store.get_messages("c")] == ["first"]
        with pytest.raises(Conflict, match="was deleted"):
            store.append("c", [Message("user", id, id=id) for id in many])
        assert store.check() == []


def test_spans_and_the_last_time(url: str) -> None:
    clock = Clock()
    with sync.connect(url, clock=clock) as store:
        for id in "abcde":
            store.append("c", Message("user", id, id=id))
        store.branch("c", at="c")
        store.append("c", Message("user", "f", id="f"))
        times = {
            message.id: message.created_at
            for branch in ("main", None)
            for message in store.get_messages("c", branch=branch)
        }
        backend = store.backend
        assert isinstance(backend, RedisBackend)

        def ask(wants: Wants) -> Any:
            found = store._runner.call(backend.storage.read(Context("default", clock.now), "c", wants))
            assert found is not None
            return found[1]

        runs = [Run(1, 0, NO_END), Run(1, 1, 3), Run(1, 5, NO_END), Run(2, 0, NO_END), Run(9, 0, NO_END)]
        assert ask(Wants(spans=runs)).spans == [Span(5, 1, 5), Span(2, 2, 3), Span(), Span(1, 6, 6), Span()]
        for without, left in [
            (Without(), "f"),
            (Without(ids=["f", "none"]), "e"),
            (Without(ids=["f", "e", "c"]), "d"),
            (Without(runs=[Run(2, 0, NO_END), Run(1, 2, NO_END)]), "b"),
            (Without(ids=["e"], runs=[Run(2, 0, NO_END), Run(1, 2, 4)]), "b"),
        ]:
            assert ask(Wants(last_time_without=without)).last_time == times[left]
        assert ask(Wants(last_time_without=Without(runs=[Run(1, 0, NO_END), Run(2, 0, NO_END)]))).last_time is None


def test_a_read_is_of_one_moment_while_others_write(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its pieces never are, it asks for all of it at once."""
    ids = [str(number) for number in range(1200)]

    async def play() -> None:
        async with hansard.connect(url) as store, hansard.connect(url) as other:
            await store.append("c", [Message("user", id, id=id) for id in ids])
            undisturbed = RedisStateCache.read
            reads = []

            async def disturbed(self: RedisStateCache, name: Any, asks: Any = (), *, write: bool = False) -> Any:
                if not write:
                    reads.append(len(asks))
                    await other.append_message("c", "user", "meanwhile")
                return await undisturbed(self, name, asks, write=write)

            monkeypatch.setattr(RedisStateCache, "read", disturbed)
            found = await backend_of(store).find_messages(Context("default", Clock().now), "c", ids)
            assert [message.id for message in found] == ids
            assert len(reads) == 2 * (read._TRIES - 1) + 1

    asyncio.run(play())
