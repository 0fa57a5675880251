"""A batch that happens after its writer has looked for it: it counts once, or cannot happen any longer."""

from __future__ import annotations

import asyncio

import pytest
from tests.backends.cassandra.counted import backend_of
from tests.backends.cassandra.late_link import LateLink
from tests.backends.cassandra.raw import rows_with

import hansard
from hansard.backends.shared import settling
from hansard.errors import Unavailable

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 40_000}}
LARGE = "large " * 20_000
MOST = 60
"""Requests after which every write has ended."""


async def _open(url: str) -> tuple[hansard.Store, LateLink]:
    backend = backend_of(url)
    link = backend.storage.link
    link.__class__ = LateLink
    assert isinstance(link, LateLink)
    await backend.storage.open(upgrade=False)
    return hansard.Store(backend), link


def _messages(number: int) -> list[hansard.Message]:
    """With a blob, with an upload, and with neither."""
    contents = [[PICTURE], LARGE, "small"]
    formats = ["anthropic", "text", "text"]
    return [
        hansard.Message("user", content, format=format, id=f"m{number}-{at}")
        for at, (content, format) in enumerate(zip(contents, formats, strict=True))
    ]


async def _verify(url: str, stored: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds so many messages in each conversation, whole, and nothing else."""
    with monkeypatch.context() as patch:
        # Long after the deadline of every write.
        patch.setattr(settling, "GRACE", -60)
        async with hansard.connect(url) as other:
            listed = {each.id: each.message_count for each in (await other.list_conversations(limit=100)).items}
            assert listed == {id: count for id, count in stored.items() if count}
            for id, count in listed.items():
                found = [each.id for each in await other.get_messages(id, last=100)]
                assert len(set(found)) == len(found) == count
            assert (await other.stats()).blobs == any(count > 2 for count in stored.values())
            assert await other.check() == []


@pytest.mark.parametrize("is_first", [True, False])
def test_a_late_batch_counts_once(url: str, is_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it happens: before the writer looks, between that and the fence, or after."""

    async def run() -> None:
        store, link = await _open(url)
        outcomes: set[bool | None] = set()
        stored: dict[str, int] = {}
        async with store:
            for number in range(MOST):
                id = f"c{number}"
                if not is_first:
                    await store.append_message(id, "user", "before", id="before")
                link.row, link.wait = "create_head" if is_first else "swap_head", number
                link.has_landed = None
                appended = await store.append(id, _messages(number))
                assert link.row == ""
                has_ended = link.late is not None
                await link.land()
                outcomes.add(link.has_landed)
                found = await store.get_messages(id, last=10)
                assert [each.id for each in found][-3:] == [each.id for each in appended.messages]
                stored[id] = len(found)
                assert stored[id] == 3 if is_first else 4
                if has_ended:
                    break
            else:
                raise AssertionError("it has no end")
        assert outcomes == {True, False}
        await _verify(url, stored, monkeypatch)

    asyncio.run(run())


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_failed_writer_says_of_a_late_batch_is_true(
    url: str, is_first: bool, lands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster cannot be reached some requests after the answer was lost. Then the batch happens, or never does."""

    async def run() -> None:
        store, link = await _open(url)
        said: set[str] = set()
        stored: dict[str, int] = {}
        async with store:
            for number in range(MOST):
                id = f"c{number}"
                if not is_first:
                    await store.append_message(id, "user", "before", id="before")
                link.row, link.wait, link.fails = "create_head" if is_first else "swap_head", number, True
                link.has_landed = None
                failed = None
                try:
                    await store.append(id, _messages(number))
                except Unavailable as error:
                    failed = error
                    said.add(error.outcome)
                link.fails = False
                late, link.late = link.late, link.late if lands else None
                assert late is not None
                await link.land()
                found = await store.get_messages(id, last=10)
                stored[id] = len(found)
                has_happened = "small" in [each.text for each in found]
                if failed is None:
                    assert has_happened
                elif failed.outcome == "not_applied":
                    assert not has_happened, f"it said not_applied after {number} requests"
                    assert not link.has_landed
                if failed is None:
                    break
            else:
                raise AssertionError("it has no end")
        assert said == {"unknown", "not_applied"}
        await _verify(url, stored, monkeypatch)

    asyncio.run(run())


def test_a_late_batch_of_a_blob_counts_once(url: str) -> None:
    async def run() -> None:
        store, link = await _open(url)
        async with store:
            for number in range(MOST):
                link.row, link.wait = "swap_blob", number
                await store.append(f"c{number}", _messages(number))
                has_ended = link.late is not None
                await link.land()
                assert await store.check() == []
                link.row, link.wait = "end_blob", number
                receipt = await store.delete_conversation(f"c{number}")
                assert receipt.blobs == 1
                has_ended = has_ended and link.late is not None
                await link.land()
                assert (await store.stats()).blobs == 0
                assert await rows_with(link, "ABCABC") == await rows_with(link, "large large") == []
                if has_ended:
                    break
            else:
                raise AssertionError("it has no end")

    asyncio.run(run())


def test_a_late_deletion_leaves_a_name_that_was_added_again(url: str) -> None:
    async def run() -> None:
        store, link = await _open(url)
        outcomes: set[bool | None] = set()
        async with store:
            catalog = store.backend.storage.catalog  # type: ignore[attr-defined]
            for number in range(MOST):
                await catalog.add("owner", "t", f"u{number}")
                link.row, link.wait, link.has_landed = "delete_name", number, None
                await catalog.remove("owner", "t", f"u{number}")
                await catalog.add("owner", "t", f"u{number}")
                has_ended = link.late is not None
                await link.land()
                outcomes.add(link.has_landed)
                assert f"u{number}" in await catalog.names("owner", "t"), f"lost {number} requests later"
                if has_ended:
                    break
            else:
                raise AssertionError("it has no end")
        assert outcomes == {True, False}

    asyncio.run(run())


@pytest.mark.parametrize("row", ["leave_name", "delete_name"])
def test_a_name_that_is_added_while_it_leaves_stays(url: str, row: str) -> None:
    """A removal fails, and what it has asked for happens after another process has added the name."""

    async def run() -> None:
        store, link = await _open(url)
        other = backend_of(url)
        await other.storage.open(upgrade=False)
        async with store, hansard.Store(other):
            ours, theirs = store.backend.storage.catalog, other.storage.catalog  # type: ignore[attr-defined]
            await ours.add("owner", "t", "ann")
            link.row, link.fails = row, True
            with pytest.raises(Unavailable):
                await ours.remove("owner", "t", "ann")
            await theirs.add("owner", "t", "ann")
            link.fails = False
            await link.land()
            assert link.has_landed is (row == "leave_name")
            assert await theirs.names("owner", "t") == ["ann"]
            await ours.remove("owner", "t", "ann")
            assert await theirs.names("owner", "t") == []

    asyncio.run(run())
