"""Writes that cross places of a cluster: cut off at any step, they are finished by whoever reads, or never happened."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.backends.redis import killed_writer
from tests.servers import redis as redis_servers

import hansard
from hansard import sync
from hansard.backends.redis import RedisBackend
from hansard.backends.redis.partitions import RedisPartitions
from hansard.backends.shared import settling
from hansard.backends.shared.settling import WriteMark
from hansard.errors import Unavailable
from hansard.testing.comparison import facts, state
from hansard.testing.processes import CONTEXT

REPEATED = frozenset({"version", "updated_at", "created_at", "last_message_at", "revision"})


def die(url: str, act: str, step: int) -> bool:
    """Whether the process came to its end before it was done."""
    process = CONTEXT.Process(target=killed_writer.run, args=(url, act, step))
    process.start()
    process.join(60)
    assert process.exitcode in (0, killed_writer.DEAD)
    return bool(process.exitcode == killed_writer.DEAD)


def seen(store: sync.Store) -> Any:
    return [state(store, leave_out=REPEATED), facts([store.stats()]), _participants(store)]


def _participants(store: sync.Store) -> list[str]:
    found = store._runner.call(store.backend.participations(store._inner._view.context(), "bob", 100))
    return sorted(f"{each.conversation_id}/{id}" for each in found for id in each.message_ids)


def run(url: str, *acts: killed_writer.Act) -> None:
    async def play() -> None:
        async with hansard.connect(url) as store:
            for act in acts:
                await act(store)

    asyncio.run(play())


@pytest.mark.parametrize("act", killed_writer.ACTS)
def test_a_writer_that_dies_at_any_step(act: str) -> None:
    before_url, after_url = redis_servers.fresh_cluster(), redis_servers.fresh_cluster()
    run(before_url, killed_writer.prepare)
    run(after_url, killed_writer.prepare, killed_writer.ACTS[act])
    with sync.connect(before_url) as one, sync.connect(after_url) as other:
        before, after = seen(one), seen(other)
    for step in itertools.count(1):
        url = redis_servers.fresh_cluster()
        run(url, killed_writer.prepare)
        died = die(url, act, step)
        with sync.connect(url) as store:
            now = seen(store)
            # All of it or nothing of it, whichever way one looks; not a list that says this and a total that says that.
            assert now in (before, after), f"{act} cut off at step {step}"
            assert store.check() == []
        if not died:
            assert now == after
            assert step > 3, "it crosses places"
            break
        run(url, killed_writer.ACTS[act])
        with sync.connect(url) as store:
            assert seen(store) == after, f"{act} repeated after it was cut off at step {step}"
            assert store.check() == []


def test_a_write_that_took_too_long_does_not_happen(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mark may have been cleared by now: nobody would know what to finish."""
    run(cluster_url, killed_writer.prepare)
    with sync.connect(cluster_url) as store:
        tries = []
        original = RedisPartitions.put_mark

        async def late(self: RedisPartitions, tenant: str, mark: WriteMark, seconds: int) -> int:
            tries.append(mark)
            deadline = await original(self, tenant, mark, seconds)
            return deadline - 60 if len(tries) == 1 else deadline

        monkeypatch.setattr(RedisPartitions, "put_mark", late)
        store.append_message("old", "user", "in the end", id="z")
        assert len(tries) == 2, "the first was refused, the second in time"
        assert [message.id for message in store.get_messages("old")] == ["f", "p", "z"]
        assert store.check() == []


def marks_of(store: sync.Store) -> int:
    """How many writes over several places are marked as begun."""
    backend = store.backend
    assert isinstance(backend, RedisBackend)
    key = f"{backend.storage.keys.tenant('default')}:pending"
    return int(store._runner.call(backend.storage.nodes.ask(key, ("HLEN", key), write=True)))


def test_old_marks_are_cleared(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(cluster_url, killed_writer.prepare)
    assert die(cluster_url, "append", 3), "before its commit"
    with sync.connect(cluster_url) as store:
        store.list_conversations()
        assert marks_of(store) == 1, "its writer may still be alive"
        monkeypatch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
        store.list_conversations()
        assert marks_of(store) == 0
        assert store.check() == []


def test_the_mark_of_a_write_that_happened_is_cleared_at_once(cluster_url: str) -> None:
    run(cluster_url, killed_writer.prepare)
    assert die(cluster_url, "append", 4), "after its commit"
    with sync.connect(cluster_url) as store:
        assert marks_of(store) == 1
        store.list_conversations()
        assert marks_of(store) == 0
        assert "a" in [message.id for message in store.get_messages("old")]
        assert store.check() == []


def test_what_a_dead_writer_left_is_done_before_what_the_next_one_adds() -> None:
    """Places pass over what is older than what they have seen: so the older must come first."""
    for step in itertools.count(1):
        url = redis_servers.fresh_cluster()
        run(url, killed_writer.prepare)
        died = die(url, "append", step)
        run(url, killed_writer.append_more)
        with sync.connect(url) as store:
            landed = "a" in [message.id for message in store.get_messages("old")]
            assert sum(row.input_tokens for row in store.usage()) == (12 if landed else 0) + 11, f"step {step}"
            backend = store.backend
            assert isinstance(backend, RedisBackend)
            key = f"{backend.storage.keys.tenant('default')}:updated_at"
            assert store._runner.call(backend.storage.nodes.ask(key, ("ZCARD", key), write=False)) == 2, f"step {step}"
            assert store.check() == []
        if not died:
            break


def test_a_write_whose_last_step_fails_may_have_landed(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has: whoever reads next finishes it. So nobody may be told that nothing was applied."""
    run(cluster_url, killed_writer.prepare)
    with sync.connect(cluster_url) as store:

        async def refused(*_: Any) -> None:
            raise Unavailable("a node of the cluster is down", outcome="not_applied")

        with monkeypatch.context() as patched:
            patched.setattr(RedisPartitions, "apply", refused)
            with pytest.raises(Unavailable) as told:
                store.append_message("old", "user", "in the end", id="z")
        assert told.value.outcome == "unknown"
        assert store.list_conversations().items[0].id == "old"
        assert [message.id for message in store.get_messages("old")] == ["f", "p", "z"]
        assert store.check() == []
