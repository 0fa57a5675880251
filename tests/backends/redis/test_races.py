"""What another process does between two steps of a call: nothing of it is lost, and nothing is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.backends.redis.killed_writer import PICTURE
from tests.servers import redis as redis_servers

import hansard
from hansard import rules
from hansard.backends.redis import RedisBackend, RedisStorage, transaction
from hansard.backends.redis.batch import WriteBatch
from hansard.backends.redis.keys import pair_member
from hansard.backends.redis.partitions import RedisPartitions
from hansard.backends.shared import settling
from hansard.contract.types import Append, Context, Draft, NewConversation
from hansard.errors import Conflict, Unavailable
from hansard.model import Message, Participant

Act = Callable[[], Awaitable[Any]]
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)

both = pytest.mark.parametrize("make", [redis_servers.fresh_database, redis_servers.fresh_cluster], ids=["one", "many"])
Make = Callable[[], str]


def storage_of(store: hansard.Store) -> RedisStorage:
    backend = store.backend
    assert isinstance(backend, RedisBackend)
    return backend.storage


def partitions_of(store: hansard.Store) -> RedisPartitions:
    partitions = storage_of(store)._writer._settling._partitions
    assert isinstance(partitions, RedisPartitions)
    return partitions


def at(now: datetime) -> Context:
    return Context("default", now)


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[hansard.Store, hansard.Store]]:
    async with hansard.connect(url) as one, hansard.connect(url) as other:
        yield one, other


def play(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 60)

    asyncio.run(bounded())


def between(target: Any, method: str, act: Act, *, after: bool = False, when: str = "") -> list[str]:
    """Runs `act` once, before or after the first call of a method of an object whose arguments mention a text."""
    original = getattr(target, method)
    done: list[str] = []

    async def call(*given: Any, **options: Any) -> Any:
        if done or when not in str(given):
            return await original(*given, **options)
        done.append(method)
        if not after:
            await act()
        answer = await original(*given, **options)
        if after:
            await act()
        return answer

    setattr(target, method, call)
    return done


# Writes that build on others


@both
def test_a_write_does_not_build_on_another_store_s_write_of_the_same_moment(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps come from the clock: two stores may give the same one."""

    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.append_message("c", "user", "first")
            await other.get_conversation("c")
            monkeypatch.setattr(transaction, "time", _StoppedClock)
            for number in range(2):
                await one.append("c", [Message("user", "x", id=f"one{number}.{part}") for part in range(3)])
            # The first two are refused and sent again. The third one must be, too, for it was decided on these.
            await asyncio.gather(*(other.append("c", Message("user", "x", id=f"other{number}")) for number in range(3)))
            messages = await one.get_messages("c")
            assert [message.seq for message in messages] == list(range(1, 11))
            assert await one.check() == []

    play(scenario())


def test_a_write_does_not_build_on_a_refused_one_after_another_was_cancelled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that forgets what it has sent gives the same stamp again, if the head is ahead of its clock."""

    async def scenario() -> None:
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "first")
            monkeypatch.setattr(transaction, "time", _StoppedClock)

            def append(name: int, count: int) -> asyncio.Task[Any]:
                said = [Message("user", "x", id=f"{name}.{part}") for part in range(count)]
                return asyncio.create_task(store.append("c", said))

            waiting, sent, cancelled = (append(number, 1) for number in range(3))
            await asyncio.sleep(0)
            cancelled.cancel()
            await waiting
            await asyncio.gather(
                sent, cancelled, *(append(4 + number, 5) for number in range(4)), return_exceptions=True
            )
            assert await store.check() == []

    play(scenario())


class _ClockAhead:
    @staticmethod
    def time_ns() -> int:
        return time.time_ns() + 60 * 10**9


class _StoppedClock:
    @staticmethod
    def time_ns() -> int:
        return 0


# Writes that cross places of a cluster


def test_a_lost_write_takes_no_blob_from_one_that_is_about_to_commit(cluster_url: str) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            is_prepared, may_commit = asyncio.Event(), asyncio.Event()
            winning: list[asyncio.Task[Any]] = []

            async def wait() -> None:
                is_prepared.set()
                await may_commit.wait()

            async def win() -> None:
                await other.append_message("c", "user", "first come")
                between(partitions_of(other), "commit", wait)
                winning.append(asyncio.create_task(other.append("c", Message("user", PICTURE, id="p"))))
                await is_prepared.wait()

            between(partitions_of(one), "prepare", win)
            with pytest.raises(Conflict):
                await one.append("c", Message("user", [PICTURE]), expected_version=1)
            may_commit.set()
            await winning[0]
            assert (await one.get_messages("c"))[-1].content == PICTURE
            assert await one.check() == []

    play(scenario())


def test_what_a_lost_write_prepared_goes_when_its_mark_is_overdue(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")

            async def win() -> None:
                await other.append_message("c", "user", "first come")

            between(partitions_of(one), "prepare", win)
            with pytest.raises(Conflict):
                await one.append("c", Message("user", PICTURE), expected_version=1)
            await one.purge()
            assert (await one.stats()).blobs == 1, "another writer may be about to refer to it"
            monkeypatch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
            await one.purge()
            assert (await one.stats()).blobs == 0
            assert await partitions_of(one).marks("default") == []

    play(scenario())


def test_nothing_is_prepared_after_the_deadline(cluster_url: str) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            partitions = partitions_of(one)
            original = partitions.prepare
            answers: list[bool] = []

            async def late(write: WriteBatch, deadline: int) -> bool:
                is_first = not answers
                answers.append(await original(write, deadline - 60 if is_first else deadline))
                if is_first:
                    assert (await other.stats()).blobs == 0
                return answers[-1]

            partitions.prepare = late  # type: ignore[method-assign]
            await one.append("c", Message("user", PICTURE))
            assert answers == [False, True]
            assert await one.check() == []

    play(scenario())


@pytest.mark.parametrize("step", ["outbox", "apply", "remove_outgoing"])
def test_a_receipt_counts_what_another_process_has_settled(cluster_url: str, step: str) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append("c", Message("user", PICTURE))
            await one.records.put(["n"], "k", 1, conversation_id="c")

            async def settle() -> None:
                assert (await other.list_conversations()).items == []

            done = between(partitions_of(one), step, settle)
            receipt = await one.delete_conversation("c")
            assert done
            assert (receipt.blobs, receipt.records) == (1, 1)

    play(scenario())


def test_an_erasure_that_runs_while_a_participant_speaks(cluster_url: str) -> None:
    """What is said meanwhile is found by the next one."""

    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            said: list[Any] = []

            async def look() -> None:
                said.extend(await other.backend.participations(at(NOW), "bob", 10))

            done = between(partitions_of(one), "commit", look)
            await one.append("c", Message("user", "hi", id="m", participant=Participant("user", "bob")))
            assert done
            assert said == []
            found = await other.backend.participations(at(NOW), "bob", 10)
            assert [each.message_ids for each in found] == [["m"]]

    play(scenario())


def test_a_list_that_is_read_while_a_writer_dies(cluster_url: str) -> None:
    """What it has committed is listed, where it stands now."""

    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            for id in ("a", "b"):
                await one.append_message(id, "user", "hello")

            async def die(*_: Any) -> None:
                raise Unavailable("the process has come to its end")

            async def commit_and_die() -> None:
                partitions_of(other).apply = die  # type: ignore[method-assign, assignment]
                with pytest.raises(Unavailable):
                    await other.append_message("a", "user", "the last words")

            done = between(storage_of(one).nodes, "ask_many", commit_and_die)
            assert [each.id for each in (await one.list_conversations()).items] == ["a", "b"]
            assert done

    play(scenario())


def test_a_lost_write_keeps_the_mark_of_another_store_s_write_of_the_same_moment(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would find what a dead writer left to do."""

    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            for id in ("a", "b"):
                await one.append_message(id, "user", "hello")
            await other.get_conversation("a")
            monkeypatch.setattr(transaction, "time", _StoppedClock)

            async def die(*_: Any) -> None:
                raise Unavailable("the process has come to its end")

            async def commit_and_die() -> None:
                partitions_of(other).apply = die  # type: ignore[method-assign, assignment]
                with pytest.raises(Unavailable):
                    await other.append_message("a", "user", "the last words")

            done = between(partitions_of(one), "prepare", commit_and_die)
            with pytest.raises(Conflict):
                await one.append("a", Message("user", "too late"), expected_version=1)
            assert done
            assert [each.id for each in (await one.list_conversations()).items] == ["a", "b"]

    play(scenario())


def test_what_a_lost_write_prepared_goes_though_another_of_the_same_moment_was_stored(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            await other.get_conversation("c")
            monkeypatch.setattr(transaction, "time", _StoppedClock)

            async def die(*_: Any) -> None:
                raise Unavailable("the process has come to its end")

            async def commit_and_die() -> None:
                partitions_of(other).apply = die  # type: ignore[method-assign, assignment]
                with pytest.raises(Unavailable):
                    await other.append_message("c", "user", "the last words")

            between(partitions_of(one), "prepare", commit_and_die, after=True)
            with pytest.raises(Conflict):
                await one.append("c", Message("user", PICTURE), expected_version=1)
            await one.list_conversations()  # finishes what the other has left
            monkeypatch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
            await one.purge()
            assert (await one.stats()).blobs == 0
            assert await partitions_of(one).marks("default") == []

    play(scenario())


def test_a_lost_write_whose_clock_is_ahead_does_not_keep_a_blob(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stamp is higher than those of the writes that follow, until its mark is overdue."""

    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            await other.get_conversation("c")

            async def win() -> None:
                monkeypatch.setattr(transaction, "time", time)
                await other.append("c", Message("user", PICTURE, id="p"))

            between(partitions_of(one), "prepare", win, after=True)
            monkeypatch.setattr(transaction, "time", _ClockAhead)
            with pytest.raises(Conflict):
                await one.append("c", Message("user", PICTURE), expected_version=1)
            monkeypatch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
            await other.purge()
            assert await partitions_of(one).marks("default") == []
            assert (await other.get_message("c", "p")).content == PICTURE
            assert (await other.delete_conversation("c")).blobs == 1
            assert (await other.stats()).blobs == 0
            assert await other.check() == []

    play(scenario())


def test_a_write_that_created_nothing_and_whose_clock_is_ahead_leaves_nothing(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):

            async def die(*_: Any) -> None:
                raise Unavailable("the process has come to its end")

            partitions_of(one).commit = die  # type: ignore[method-assign, assignment]
            monkeypatch.setattr(transaction, "time", _ClockAhead)
            with pytest.raises(Unavailable):
                await one.append("c", Message("user", PICTURE))
            monkeypatch.setattr(transaction, "time", time)
            monkeypatch.setattr(settling, "GRACE", -settling.DEADLINE - 5)
            await other.purge()
            await other.append("c", Message("user", PICTURE, id="p"))
            assert (await other.delete_conversation("c")).blobs == 1
            # Years later, even what kept the order of the writes is gone.
            await other.backend.sweep(at(NOW + rules.TOMBSTONE_LIFE + HOUR), 100)
            storage = storage_of(other)
            root = storage.keys.conversation("default", "c")
            assert await storage.nodes.ask(root, ("EXISTS", f"{root}:head", f"{root}:graves"), write=True) == 0

    play(scenario())


def test_a_slow_write_does_not_take_the_blob_of_a_later_one(cluster_url: str) -> None:
    """It announces its use of the blob after the later one, and the release of an earlier use comes between the two."""

    async def scenario() -> None:
        async with two(cluster_url) as (slow, deleter), hansard.connect(cluster_url) as later:
            version = (await slow.append("c", Message("user", PICTURE, id="p"))).version
            goes_on, is_held, is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                is_held.set()
                await goes_on.wait()

            async def lose() -> None:
                with pytest.raises(Conflict):
                    await slow.append("c", Message("user", PICTURE), expected_version=version)
                is_done.set()

            between(partitions_of(slow), "prepare", hold)
            losing = asyncio.create_task(lose())
            await is_held.wait()

            async def die(*_: Any) -> None:
                raise Unavailable("the process has come to its end")

            partitions_of(deleter).apply = die  # type: ignore[method-assign, assignment]
            with pytest.raises(Unavailable):
                await deleter.delete_message("c", "p")

            async def let_go() -> None:
                goes_on.set()
                await is_done.wait()

            between(partitions_of(later), "commit", let_go)
            await later.append("c", Message("user", PICTURE, id="q"))
            await losing
            assert (await later.get_message("c", "q")).content == PICTURE
            assert await later.check() == []

    play(scenario())


@both
def test_a_record_goes_with_a_conversation_that_is_deleted_while_it_is_put(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.append_message("c", "user", "hello")

            async def put() -> None:
                await other.records.put(["n"], "k", "secret", conversation_id="c")

            done = between(storage_of(one)._writer, "commit", put)
            receipt = await one.delete_conversation("c")
            assert done
            assert receipt.records == 1
            assert (await one.stats()).records == 0

    play(scenario())


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
def test_a_record_that_is_stored_after_its_conversation_was_deleted_is_removed(cluster_url: str, anew: bool) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.append_message("c", "user", "hello")
            await one.records.put(["n"], "kept", 1)

            async def delete() -> None:
                await other.delete_conversation("c")
                if anew:
                    await other.append_message("c", "user", "hello again")

            # In a cluster a put is several steps: it has told the conversation of the record, which is not there yet.
            done = between(storage_of(one).nodes, "ask", delete, when=":records:}:data'")
            of_the_conversation = hansard.Put(["n"], "k", "secret", conversation_id="c")
            await one.records.write([of_the_conversation, hansard.Put(["n"], "l", 2)])
            assert done
            assert (await one.stats()).records == 2
            assert [each.key for each in (await one.records.scan()).items] == ["kept", "l"]
            assert await one.check() == []

    play(scenario())


@both
def test_a_record_that_an_older_version_left_behind_is_removed_when_it_is_read(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, _):
            await one.append_message("c", "user", "hello")
            await one.records.put(["n"], "k", "secret", conversation_id="c")
            storage = storage_of(one)
            root = storage.keys.conversation("default", "c")
            await storage.nodes.ask(root, ("DEL", f"{root}:records"), write=True)
            await one.delete_conversation("c")
            assert (await one.stats()).records == 1
            assert await one.records.get(["n"], "k") is None
            assert (await one.stats()).records == 0

    play(scenario())


# Sweeps


@both
def test_a_tombstone_that_is_renewed_while_old_ones_are_swept(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.backend.append(at(NOW - rules.TOMBSTONE_LIFE - HOUR), "c", _new("x"))
            await one.backend.delete_conversation(at(NOW - rules.TOMBSTONE_LIFE - HOUR), "c")
            await one.append_message("c", "user", "anew")

            async def delete() -> None:
                await other.delete_conversation("c")

            done = between(storage_of(one).nodes, "ask", delete, after=True, when=":graves'")
            await one.purge()
            assert done
            with pytest.raises(Conflict, match="was deleted"):
                await one.append("c", Message("user", "replayed", created_at=NOW - HOUR))
            later = NOW + rules.TOMBSTONE_LIFE + HOUR
            assert (await one.backend.sweep(at(later), 100)).tombstones == 1, "it is found when its time is over"

    play(scenario())


def _new(text: str) -> Append:
    return Append((Draft(Message("user", text, format="text"), text, len(text), given_id=False),), NewConversation())


@both
def test_a_conversation_that_gets_a_time_while_its_old_one_is_corrected(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.append_message("c", "user", "hello")
            storage = storage_of(one)
            key = storage.keys.expiring
            # What a failover may leave: the index is of another moment than the conversation.
            await storage.nodes.ask(key, ("ZADD", key, 1, pair_member("default", "c")), write=True)

            async def expire() -> None:
                await other.update_conversation("c", expires_at=datetime.now(UTC) + HOUR)

            done = between(_Corrections(storage.nodes, key), "ask", expire)
            await one.purge()
            assert done
            swept = await one.backend.sweep(at(datetime.now(UTC) + 2 * HOUR), 100)
            assert swept.receipt.conversations == 1

    play(scenario())


class _Corrections:
    """The commands of a store that change one index."""

    def __init__(self, nodes: Any, key: str) -> None:
        original = nodes.ask
        self.ask = original

        async def ask(asked: str, command: Any, **options: Any) -> Any:
            is_correction = key in str(command) and command[0] in ("ZREM", "ZADD", "EVALSHA", "EVAL")
            return await (self.ask if is_correction else original)(asked, command, **options)

        nodes.ask = ask


@both
def test_a_correction_ends(make: Make) -> None:
    """What does not expire leaves the index, so that it is not looked at again."""

    async def scenario() -> None:
        async with hansard.connect(make()) as store:
            await store.append_message("never", "user", "hello")
            await store.create_conversation("later", expires_at=NOW + 10 * HOUR)
            nodes, key = storage_of(store).nodes, storage_of(store).keys.expiring
            for id in ("never", "later", "missing"):
                await nodes.ask(key, ("ZADD", key, 1, pair_member("default", id)), write=True)
            await store.purge()
            assert await nodes.ask(key, ("ZRANGE", key, 0, -1), write=True) == [
                pair_member("default", "later").encode()
            ]
            assert not (await store.backend.sweep(at(NOW + HOUR), 1)).more

    play(scenario())


@both
def test_records_that_expire_are_swept_whoever_forgot_their_space(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.records.put(["n"], "old", 1, expires_at=NOW - HOUR)

            async def put() -> None:
                await other.records.put(["n"], "new", 1, expires_at=NOW + HOUR)

            done = between(storage_of(one).nodes, "ask", put, after=True, when="'EXISTS'")
            await one.purge()
            assert done
            assert (await one.backend.sweep(at(NOW + 2 * HOUR), 100)).receipt.records == 1

    play(scenario())


@pytest.mark.parametrize("sweeps", [True, False], ids=["sweep", "erase"])
def test_records_of_a_space_that_is_forgotten_while_they_are_put(cluster_url: str, sweeps: bool) -> None:
    async def scenario() -> None:
        async with two(cluster_url) as (one, other):
            await one.user("u").records.put(["n"], "old", 1, expires_at=NOW - HOUR)

            async def discard() -> None:
                await (other.purge() if sweeps else other.erase_user("u"))

            done = between(storage_of(one).nodes, "ask", discard, when=":records:u}:data'")
            await one.user("u").records.put(["n"], "new", 1, expires_at=NOW + HOUR)
            assert done
            assert await one.backend.record_owners(at(NOW)) == ["u"]
            assert (await one.backend.sweep(at(NOW + 2 * HOUR), 100)).receipt.records == 1

    play(scenario())


@both
def test_a_tenant_that_is_deleted_while_a_blob_is_put(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.append_message("c", "user", "hello")

            async def delete() -> None:
                await other.admin.delete_tenant("default")

            done = between(storage_of(one).nodes, "ask", delete, when="'keep'")
            await one.blobs.put(b"bytes")
            assert done
            assert await one.admin.tenants() == ["default"]

    play(scenario())


@both
def test_usage_that_is_added_while_all_of_it_is_erased(make: Make) -> None:
    async def scenario() -> None:
        async with two(make()) as (one, other):
            await one.append("c", Message("user", "a", usage=hansard.Usage(input_tokens=3, model="m")))

            async def say() -> None:
                await other.append("d", Message("user", "b", usage=hansard.Usage(input_tokens=5, model="other")))

            done = between(storage_of(one).nodes, "ask", say, after=True, when=":usage:}:20")
            await one.admin.delete_tenant("default")
            assert done
            assert [row.input_tokens for row in await one.usage()] == [5]

    play(scenario())


# Segments


@both
def test_the_segment_of_a_deleted_branch_is_not_given_again(make: Make) -> None:
    async def scenario() -> None:
        async with hansard.connect(make()) as store:
            await store.append_message("c", "user", "hello")
            segments = []
            for name in ("a", "b"):
                await store.branch("c", branch_id=name, activate=False)
                image = await store.backend.read_image(at(NOW), "c")
                assert image is not None
                segments += [branch.segment for branch in image.branches if branch.id == name]
                await store.delete_branch("c", name)
            assert len(set(segments)) == 2

    play(scenario())
