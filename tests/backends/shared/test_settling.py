"""Writes that cross partitions: whoever dies at whatever step, all places agree, and nothing is left over for ever."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Coroutine
from typing import Any

import pytest
from tests.backends.shared.partitioned import TENANT, Dead, Process, World, Write

from hansard.backends.shared.settling import DEADLINE, GRACE, RemovedCounts, WriteMark
from hansard.errors import Unavailable

both_kinds = pytest.mark.parametrize("knows_time", [True, False], ids=["deadline", "fence"])
OVERDUE = DEADLINE + GRACE + 1


async def survives(work: Awaitable[Any]) -> bool:
    try:
        await work
    except Dead:
        return False
    return True


async def settle_at_once(world: World, knows_time: bool, *dying_at: int) -> None:
    """Three settlers beside each other, and others that die."""
    dying = [Process(world, knows_time=knows_time, dies_at=step) for step in dying_at]
    whole = [Process(world, knows_time=knows_time) for _ in range(3)]
    done = await asyncio.gather(*(survives(each.settle()) for each in [*dying, *whole]))
    assert all(done[len(dying) :])


def run(play: Coroutine[Any, Any, None]) -> None:
    asyncio.run(play)


@both_kinds
def test_a_writer_that_dies_at_any_step(knows_time: bool) -> None:
    async def play(step: int) -> bool:
        world = World()
        assert await Process(world, knows_time=knows_time).write("c", 1, ("old",), "list", "usage")
        writer = Process(world, knows_time=knows_time, dies_at=step)
        done = await survives(writer.write("c", 2, ("new", "old"), "list", "usage"))
        await settle_at_once(world, knows_time)
        assert world.problems() == [], f"step {step}"
        assert world.conversations["c"].written in ([1], [1, 2])
        world.now += OVERDUE
        await settle_at_once(world, knows_time)
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {}), f"step {step}"
        assert await Process(world, knows_time=knows_time).write("c", 3, ("new",), "usage", "list")
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {}), f"step {step}"
        return done

    steps = next(step for step in itertools.count(1) if asyncio.run(play(step)))
    assert steps > 8, "it has several steps to die before"


@both_kinds
def test_settlers_that_die_at_any_step(knows_time: bool) -> None:
    async def play(step: int, settler_step: int, wait: int) -> int:
        world = World()
        await survives(Process(world, knows_time=knows_time, dies_at=step).write("c", 1, ("blob",), "list", "usage"))
        world.now += wait
        alone = Process(world, knows_time=knows_time, dies_at=settler_step)
        done = await survives(alone.settle())
        await settle_at_once(world, knows_time, settler_step, settler_step + 1)
        assert world.problems() == [], f"steps {step} and {settler_step}"
        world.now += OVERDUE
        await settle_at_once(world, knows_time, settler_step)
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {}), f"steps {step} and {settler_step}"
        return done

    for step, wait in itertools.product(range(2, 9), (0, OVERDUE)):
        last = next(settler for settler in itertools.count(1) if asyncio.run(play(step, settler, wait)))
        assert last > 3


@both_kinds
def test_an_overdue_writer_does_not_commit(knows_time: bool) -> None:
    """Its mark is gone, so nobody would look for its outbox."""

    async def play() -> None:
        world = World()
        slow = Process(world, knows_time=knows_time, pauses_at="commit")
        writing = asyncio.create_task(slow.write("c", 1, ("blob",), "list", "usage"))
        await slow.paused.wait()
        await settle_at_once(world, knows_time)
        assert len(world.marks) == 1, "it may still be alive"
        world.now += OVERDUE
        await settle_at_once(world, knows_time)
        assert world.marks == {}
        slow.goes_on.set()
        assert await writing is False
        assert world.conversations["c"].written == []
        assert (world.problems(), world.left_over()) == ([], [])
        assert await slow.write("c", 1, ("blob",), "list", "usage"), "and then it may try again"
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {})

    run(play())


@both_kinds
def test_a_writer_that_commits_before_it_is_overdue(knows_time: bool) -> None:
    """The fence comes too late for it: its outbox is emptied before its mark is cleared."""

    async def play() -> None:
        world = World()
        slow = Process(world, knows_time=knows_time, pauses_at="outbox")
        writing = asyncio.create_task(slow.write("c", 1, ("blob",), "list", "usage"))
        await slow.paused.wait()
        world.now += OVERDUE
        await settle_at_once(world, knows_time)
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {})
        slow.goes_on.set()
        assert await writing is True
        assert world.conversations["c"].written == [1]
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {})

    run(play())


def test_without_a_fence_an_overdue_write_would_be_lost() -> None:
    """What the fence is for: the storage does not know the time, and the writer dies right after its commit."""

    async def play() -> None:
        world = World()
        slow = Process(world, knows_time=False, pauses_at="commit", dies_at=4)
        writing = asyncio.create_task(survives(slow.write("c", 1, ("blob",), "list")))
        await slow.paused.wait()
        world.now += OVERDUE
        unfenced = Process(world, knows_time=False)
        unfenced.settling._fence = None
        await unfenced.settle()
        slow.goes_on.set()
        assert await writing is False
        await settle_at_once(world, False)
        assert world.conversations["c"].written == [1]
        assert world.left_over() == ["an outbox of c"]

    run(play())


@both_kinds
def test_a_lost_write_takes_nothing_from_one_that_is_about_to_commit(knows_time: bool) -> None:
    async def play() -> None:
        world = World()
        loser = Process(world, knows_time=knows_time, pauses_at="prepare")
        losing = asyncio.create_task(loser.write("c", 1, ("blob",), "list", "usage"))
        await loser.paused.wait()
        assert await Process(world, knows_time=knows_time).write("c", 2, (), "list", "usage")
        winner = Process(world, knows_time=knows_time, pauses_at="commit")
        winning = asyncio.create_task(winner.write("c", 3, ("blob",), "list", "usage"))
        await winner.paused.wait()
        loser.goes_on.set()
        assert await losing is False
        winner.goes_on.set()
        assert await winning is True
        assert world.problems() == []
        world.now += OVERDUE
        await settle_at_once(world, knows_time)
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {})

    run(play())


def test_an_overdue_writer_does_not_prepare() -> None:
    """Its mark is gone, so nothing would take back what it prepares."""

    async def play() -> None:
        world = World()
        slow = Process(world, knows_time=True, pauses_at="prepare")
        writing = asyncio.create_task(slow.write("c", 1, ("blob",), "list"))
        await slow.paused.wait()
        world.now += OVERDUE
        await settle_at_once(world, True)
        slow.goes_on.set()
        assert await writing is False
        assert (world.problems(), world.left_over(), world.marks) == ([], [], {})

    run(play())


@both_kinds
@pytest.mark.parametrize("pauses_at", ["outbox", "apply", "remove"])
def test_what_went_is_counted_when_others_were_faster(knows_time: bool, pauses_at: str) -> None:
    async def play() -> None:
        world = World()
        slow = Process(world, knows_time=knows_time, pauses_at=pauses_at)
        mark = WriteMark("c", next(world.stamps), 0)
        writing = asyncio.create_task(slow.settling.commit(Write(TENANT, mark, (("list", 1), ("usage", 1)))))
        await slow.paused.wait()
        await settle_at_once(world, knows_time)
        slow.goes_on.set()
        assert await writing == RemovedCounts(blobs=2)
        assert (world.problems(), world.left_over()) == ([], [])

    run(play())


@both_kinds
def test_the_older_write_comes_first(knows_time: bool) -> None:
    """A place passes over what is older than what it has seen."""

    async def play(step: int) -> bool:
        world = World()
        done = await survives(Process(world, knows_time=knows_time, dies_at=step).write("c", 1, (), "list", "usage"))
        assert await Process(world, knows_time=knows_time).write("c", 2, (), "usage", "list")
        assert world.problems() == [], f"step {step}"
        return done

    assert next(step for step in itertools.count(1) if asyncio.run(play(step))) > 5


@both_kinds
def test_many_writers_and_settlers(knows_time: bool) -> None:
    async def play(seed: int) -> None:
        chance = random.Random(seed)
        world = World()

        async def writes(amount: int) -> None:
            dies_at = chance.randint(1, 12) if chance.random() < 0.5 else None
            process = Process(world, knows_time=knows_time, dies_at=dies_at)
            id, blob = chance.choice("cd"), chance.choice(["x", "y"])
            while not await process.write(id, amount, (blob,), "list", "usage"):
                continue

        async def settles() -> None:
            world.now += chance.choice([0, 1, OVERDUE])
            await Process(world, knows_time=knows_time, dies_at=chance.choice([None, 5, 9])).settle()

        for amounts in (range(1, 6), range(6, 11)):
            await asyncio.gather(*(survives(each) for n in amounts for each in (writes(n), settles())))
        await settle_at_once(world, knows_time)
        assert world.problems() == [], f"seed {seed}"
        world.now += OVERDUE
        await settle_at_once(world, knows_time)
        assert (world.problems(), world.marks) == ([], {}), f"seed {seed}"

    for seed in range(60):
        asyncio.run(play(seed))


def test_a_committed_write_whose_effects_fail_may_have_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        world = World()
        writer = Process(world, knows_time=True)

        async def refused(*_: Any) -> None:
            raise Unavailable("a partition is down", outcome="not_applied")

        monkeypatch.setattr(writer, "apply", refused)
        with pytest.raises(Unavailable) as told:
            await writer.write("c", 1, (), "list")
        assert told.value.outcome == "unknown"
        await settle_at_once(world, True)
        assert (world.problems(), world.conversations["c"].written) == ([], [1])

    run(play())
