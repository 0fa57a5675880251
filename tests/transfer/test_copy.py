"""A copy goes on where it was cut off, follows a source that grows, and overwrites nothing."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.transfer.odd import Lossy, Odd, OwnIds, Suspending
from tests.transfer.rich import contents, fill

import hansard
from hansard import Conflict, Corrupt, Message, Report, Store, Unavailable, ValidationError, sync
from hansard.backends.memory import MemoryBackend
from hansard.backends.none import NoneBackend
from hansard.contract.backend import Backend


def memory() -> Store:
    return Store(MemoryBackend())


async def rich() -> Store:
    store = memory()
    await fill(store)
    return store


async def long(count: int) -> Store:
    store = memory()
    for start in range(0, count, 1000):
        batch = [Message("user", str(number), id=f"m{number}") for number in range(start, start + 1000)]
        await store.append("long", batch)
    return store


# Cut off, and gone on


def test_cut_off_at_any_call() -> None:
    """Whichever write to the target is the last one that works, the next run finishes what was begun."""

    async def check() -> None:
        store = await rich()
        wanted = await contents(store)
        cuts = 0
        for last in itertools.count():
            odd = Odd()
            calls = itertools.count()

            async def fail(*_: Any, last: int = last, calls: Any = calls) -> None:
                if next(calls) >= last:
                    raise Unavailable("the cable was pulled")

            odd.after = {"restore": fail, "put_summary": fail, "write_records": fail}
            try:
                await store.copy_to(odd.store())
                break
            except Unavailable:
                cuts += 1
            odd.after = {}
            report = await store.copy_to(odd.store())
            assert not report.conflicts
            assert report.verified
            assert await contents(odd.store()) == wanted
        assert cuts == 13

    asyncio.run(check())


def test_a_half_copied_conversation_goes_on_from_its_last_seq() -> None:
    async def check() -> None:
        store = await long(7000)
        odd = Odd()

        async def fail(*_: Any) -> None:
            if odd.calls["restore"] == 2:
                raise Unavailable("the cable was pulled")

        odd.after["restore"] = fail
        with pytest.raises(Unavailable):
            await store.copy_to(odd.store())
        half = await odd.store().get_conversation("long")
        assert half is not None
        assert half.message_count == 4000
        odd.after = {}
        report = await store.copy_to(odd.store())
        assert (report.conversations, report.messages) == (1, 3000)
        assert await contents(odd.store()) == await contents(store)

    asyncio.run(check())


def test_a_source_that_has_grown() -> None:
    async def check() -> None:
        store, other = await rich(), memory()
        await store.copy_to(other)
        await store.append("branched", [Message("user", "More", id="new1")])
        await store.append("branched", [Message("user", "More", id="new2")], branch="main")
        await store.update_conversation("empty", title="Still nothing")
        await store.append_message("brand new", "user", "Hello")
        await store.add_summary("mine", "They count.", from_seq=1, to_seq=3)
        report = await store.copy_to(other)
        assert (report.conversations, report.messages, report.summaries, report.skipped) == (3, 3, 1, 4)
        assert not report.conflicts
        assert await contents(other) == await contents(store)

    asyncio.run(check())


def test_a_summary_of_messages_that_do_not_exist_is_reported_and_left_out(tmp_path: Path) -> None:
    """Older versions stored one without a word; it would hide what is said next from every prompt."""
    file = tmp_path / "old.db"

    async def check() -> None:
        async with hansard.connect(f"sqlite:///{file}") as store:
            await store.append("c", [Message("user", "One"), Message("user", "Two")])
            await store.add_summary("c", "Both", from_seq=1, to_seq=2)
            await store.add_summary("c", "Wrong", from_seq=1, to_seq=2)
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE summaries SET to_seq = 1000000 WHERE text = 'Wrong'")
        other = memory()
        async with hansard.connect(f"sqlite:///{file}") as store:
            for _ in range(2):
                report = await store.copy_to(other)
                assert [loss.what for loss in report.losses] == [
                    "a summary to seq 1000000 covers messages that do not exist: the last is 2"
                ]
                assert not report.conflicts
        assert [summary.text for summary in await other.list_summaries("c")] == ["Both"]

    asyncio.run(check())


# Conflicts


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("target goes on", "written to since: it is at version"),
        ("target is edited", "written to since: it is at version"),
        ("source is edited", "the target holds other messages: message 'n0'"),
        ("source loses one", "the target holds other messages"),
        ("source loses its last", "holds a message 'n24' that the source does not"),
        ("source branches", "the target's has other branches"),
        ("another", "the target holds another one, made at"),
        ("summaries", "the target holds other summaries"),
    ],
)
def test_other_content_is_a_conflict_and_stays(what: str, why: str) -> None:
    async def check() -> None:
        store, other = await rich(), memory()
        await store.copy_to(other)
        match what:
            case "target goes on":
                await other.append_message("mine", "user", "Here")
            case "target is edited":
                await other.update_message("mine", "n3", content="Changed")
            case "source is edited":
                await store.update_message("mine", "n0", content="Changed")
            case "source loses one":
                await store.delete_message("mine", "n5")
            case "source loses its last":
                await store.delete_message("mine", "n24")
            case "source branches":
                await store.branch("mine", at="n3")
            case "another":
                await other.delete_conversation("mine")
                await other.append_message("mine", "user", "Another one")
            case "summaries":
                await other.add_summary("mine", "Theirs", from_seq=1, to_seq=2)
        before = await contents(other)
        report = await store.copy_to(other)
        assert [conflict.where for conflict in report.conflicts][:1] == ["conversation 'mine'"]
        assert why in report.conflicts[0].what
        assert report.skipped == 5
        after = await contents(other)
        assert after["mine"] == before["mine"]
        with pytest.raises(Conflict, match="conversation 'mine'"):
            await store.copy_to(other, on_conflict="error")

    asyncio.run(check())


def test_records_that_differ() -> None:
    async def check() -> None:
        store, other = await rich(), memory()
        await store.copy_to(other)
        await store.records.put(("state", "agent"), "step", {"n": 9})
        await other.user("u_1").records.put(("own",), "k", "theirs")
        report = await store.copy_to(other)
        assert [conflict.where for conflict in report.conflicts] == [
            "record 'step' in ('state', 'agent')",
            "record 'k' in ('own',) of user 'u_1'",
        ]
        assert report.skipped_records == 5
        kept = await other.records.get(("state", "agent"), "step")
        assert kept is not None
        assert kept.value == {"n": 2}

    asyncio.run(check())


def test_the_same_store_twice() -> None:
    async def check() -> None:
        store = await rich()
        with pytest.raises(ValidationError, match="the same store"):
            await store.copy_to(store)
        await store.copy_to(store.tenant("second"))
        assert await contents(store.tenant("second")) == await contents(store)
        with pytest.raises(ValidationError, match=r"must be a hansard\.Store"):
            await store.copy_to("memory://")  # type: ignore[arg-type]
        with pytest.raises(hansard.ConversationNotFound):
            await store.copy_to(memory(), conversation_ids=["nowhere"])

    asyncio.run(check())


# A source that changes while it is copied


async def changing(change: Any, *, times: int = 1) -> tuple[Store, Store, Report]:
    """A copy during which the source changes, after its messages were read."""
    odd, other = Odd(), memory()
    await fill(Store(odd.inner))
    left = itertools.count()

    async def hook(context: Any, id: str, *_: Any) -> None:
        if id == "mine" and next(left) < times:
            await change(Store(odd.inner))

    odd.after["read_rows"] = hook
    report = await odd.store().copy_to(other)
    return Store(odd.inner), other, report


def test_appends_meanwhile_come_along() -> None:
    async def check() -> None:
        async def change(store: Store) -> None:
            await store.append_message("mine", "user", "Late")

        store, other, report = await changing(change)
        assert (report.conversations, report.messages, report.losses) == (6, 38, [])
        assert await contents(other) == await contents(store)

    asyncio.run(check())


def test_edits_and_branches_meanwhile_come_along() -> None:
    async def check() -> None:
        async def edit(store: Store) -> None:
            await store.update_message("mine", "n0", content="Edited")

        async def branch(store: Store) -> None:
            await store.branch("mine", at="n7", branch_id="late")
            await store.delete_message("mine", "n3")

        for change, messages in ((edit, 37), (branch, 36)):
            store, other, report = await changing(change)
            assert (report.conversations, report.messages) == (6, messages)
            assert not report.conflicts
            assert not report.losses
            assert await contents(other) == await contents(store)

    asyncio.run(check())


def test_a_conversation_that_does_not_stop_changing() -> None:
    async def check() -> None:
        async def change(store: Store) -> None:
            await store.append_message("mine", "user", "Late")

        store, other, report = await changing(change, times=1000)
        assert [loss.what for loss in report.losses] == ["it was still being written to: copy again to get the rest"]
        assert report.verified
        assert (await store.copy_to(other)).conflicts == []
        assert await contents(other) == await contents(store)

    asyncio.run(check())


def test_a_conversation_deleted_meanwhile_is_taken_back() -> None:
    async def check() -> None:
        async def change(store: Store) -> None:
            await store.delete_conversation("mine")

        _, other, report = await changing(change)
        assert await other.get_conversation("mine") is None
        assert (report.conversations, report.messages) == (5, 12)

    asyncio.run(check())


# Targets that cannot keep everything


def test_none_keeps_nothing_and_says_so() -> None:
    async def check() -> None:
        report = await (await rich()).copy_to(Store(NoneBackend()))
        assert [loss.what for loss in report.losses] == ["none stores nothing: nothing was stored"]
        assert not report.verified
        assert (report.conversations, report.messages) == (6, 37)

    asyncio.run(check())


def test_a_full_memory_says_what_it_dropped() -> None:
    async def check() -> None:
        report = await (await rich()).copy_to(Store(MemoryBackend(max_conversations=2)))
        assert not report.verified
        assert any("memory is full, and dropped 4 conversations" in loss.what for loss in report.losses)
        assert any("is not in the target" in loss.what for loss in report.losses)

    asyncio.run(check())


def test_no_branches() -> None:
    async def check() -> None:
        store, odd = await rich(), Odd(branches=False)
        report = await store.copy_to(odd.store())
        assert [loss.what for loss in report.losses] == [
            "only the active branch 'second' was kept, without 'main', 'third'"
        ]
        assert report.verified
        kept = await odd.store().get_messages("branched")
        assert [message.id for message in kept] == [each.id for each in await store.get_messages("branched")]
        assert {message.branch for message in kept} == {"main"}
        assert (await store.copy_to(odd.store())).skipped == 6

    asyncio.run(check())


def test_no_blobs_and_no_records() -> None:
    async def check() -> None:
        store, odd = await rich(), Odd(blobs=False, records=False)
        report = await store.copy_to(odd.store())
        assert report.verified
        assert report.blobs == 0
        assert {loss.what for loss in report.losses} == {"memory cannot store records"}
        assert not odd.inner.storage.tenants["default"].blobs
        for id in ("pictures", "pictures-too"):
            mine, theirs = await store.get_messages(id), await odd.store().get_messages(id)
            assert [message.content for message in mine] == [message.content for message in theirs]
        assert (await store.copy_to(odd.store())).skipped == 6

    asyncio.run(check())


def test_own_ids_and_times_give_a_map() -> None:
    async def check() -> None:
        store = memory()
        await store.append("c", [Message("user", "One", id="a"), Message("assistant", "Two", id="b")])
        report = await store.copy_to(OwnIds().store())
        assert report.id_map == {"c": {"a": "own-1", "b": "own-2"}}
        assert report.verified

    asyncio.run(check())


def test_what_was_not_kept_is_found() -> None:
    async def check() -> None:
        store = memory()
        await store.append("c", [Message("user", "One", id="a", metadata={"n": 1})])
        report = await store.copy_to(Lossy().store())
        assert not report.verified
        assert [loss.what for loss in report.losses] == ["what was stored differs: message 'a' (seq 1) is not the same"]
        lines = [line async for line in store.export()]
        assert not (await Lossy().store().import_(lines, verify=True)).verified
        assert (await Lossy().store().import_(lines)).verified

        async def forget(*_: Any) -> None:
            await Store(odd.inner).delete_message("c", "a")

        odd = Odd()
        odd.after["restore"] = forget
        assert not (await odd.store().import_(lines)).verified

    asyncio.run(check())


def test_a_source_that_lost_a_blob() -> None:
    async def check() -> None:
        store = await rich()
        cast(MemoryBackend, store.backend).storage.tenants["default"].blobs.clear()
        with pytest.raises(Corrupt, match="is missing"):
            await store.copy_to(memory())

    asyncio.run(check())


# Blocking stores, whatever drives them


@pytest.mark.parametrize("to", [MemoryBackend, Suspending])
@pytest.mark.parametrize("kind", [MemoryBackend, Suspending])
def test_blocking_stores_of_any_two_kinds(kind: type[Any], to: type[Any]) -> None:
    with sync.Store.over(cast(Backend, kind())) as store, sync.Store.over(cast(Backend, to())) as other:
        for number in range(3):
            store.append_message("c", "user", f"Message {number}")
        report = store.copy_to(other)
        assert (report.conversations, report.messages, report.verified) == (1, 3, True)
        assert [message.content for message in other.get_messages("c")] == [f"Message {number}" for number in range(3)]
        assert store.tenant("default").copy_to(other.tenant("default")).skipped == 1
