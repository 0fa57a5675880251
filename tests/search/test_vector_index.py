"""Search by meaning among more vectors than a search reads from the store: by an index in memory."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import BACKENDS, BY_URL, quick_folder
from tests.wait import PATIENCE

import hansard
from hansard import Message, Store, sync
from hansard.search import Hits, vector_index, vectors
from hansard.search.vector_index import VectorIndex
from hansard.search.vectors import VectorRow
from hansard.store import nearest_messages, vector_records, view_indexes

if not vector_index.is_installed():
    pytest.skip("usearch is not installed", allow_module_level=True)

TOPICS = 40
LIMIT = 100


class Topics:
    """A model that reads a topic in each text, `topic 7 …`: its vectors lie in clusters."""

    name, version, dimensions = "topics", "1", 32

    async def __call__(self, texts: Sequence[str], kind: str = "passage") -> Sequence[Sequence[float]]:
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        centre, own = random.Random(text.split()[1]), random.Random(text)
        return [centre.gauss(0, 1) + own.gauss(0, 0.4) for _ in range(self.dimensions)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view with more than a hundred vectors gets an index, and a search waits for it."""
    monkeypatch.setattr(nearest_messages, "MOST", LIMIT)
    monkeypatch.setattr(nearest_messages, "INDEXED", LIMIT)
    monkeypatch.setattr(nearest_messages, "_WAIT_SECONDS", PATIENCE)


@pytest.fixture(params=BY_URL)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with quick_folder() as folder:
        target = BACKENDS[request.param](folder)
        assert target.url is not None
        yield target.url
        target.close()


def index_of(store: Store, user: str | None = None) -> view_indexes.ViewIndex | None:
    assert store._view.embeddings is not None
    return store._view.embeddings.indexes.get((store._view.tenant, store._view.user, user))


async def fill(store: Store, conversations: int, messages: int, user: str = "ann") -> None:
    for at in range(conversations):
        said = [Message("user", f"topic {(at + step) % TOPICS} of {user} {at}-{step}") for step in range(messages)]
        await store.append(f"{user}-{at}", said, user_id=user, agent_id=f"agent-{at % 2}")


async def found(store: Store, query: str, **options: Any) -> Hits:
    return await store.search(query, mode="meaning", **{"limit": 20, "token_cap": None} | options)


def texts(hits: Hits) -> list[str]:
    return [hit.message.text for hit in hits]


def test_an_index_finds_what_comparing_everything_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
            await fill(store, 6, 100)
            questions = [f"topic {at} please" for at in range(TOPICS)]
            by_index = [await found(store, each, limit=50) for each in questions]
            both_ways = await store.search("topic 3 ann", mode="hybrid", limit=50, token_cap=None)
            assert len(index_of(store) or ()) == 600
            monkeypatch.setattr(nearest_messages, "MOST", 100_000)
            monkeypatch.setattr(nearest_messages, "INDEXED", 100_000)
            exact = [await found(store, each, limit=50) for each in questions]
            assert all(hits.complete for hits in (*by_index, *exact))
            shared = sum(len({*texts(one)} & {*texts(other)}) for one, other in zip(by_index, exact, strict=True))
            assert shared / (50 * TOPICS) >= 0.98
            for one, other in zip(by_index, exact, strict=True):
                assert [hit.score for hit in one[:10]] == pytest.approx([hit.score for hit in other[:10]], abs=1e-4)
            hybrid = await store.search("topic 3 ann", mode="hybrid", limit=50, token_cap=None)
            assert len({*texts(hybrid)} & {*texts(both_ways)}) >= 49

    asyncio.run(play())


class Angles(Topics):
    """The last word of a text is the angle between its vector and that of a query, in thousandths."""

    def vector(self, text: str) -> list[float]:
        angle = int(text.rsplit(maxsplit=1)[-1]) / 1000
        return [math.cos(angle), math.sin(angle), *[0.0] * (self.dimensions - 2)]


@pytest.mark.parametrize("is_sure", [True, False])
def test_an_index_of_few_vectors_answers_only_if_it_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_sure: bool
) -> None:
    monkeypatch.setattr(nearest_messages, "MOST", 100_000)
    monkeypatch.setattr(nearest_messages, "CANDIDATES", 250)
    # Each message is about as near as its neighbours; or those are nearest whose neighbours are far.
    said = [f"near {5 * n}" for n in range(300)]
    if not is_sure:
        said = [text for n in range(300) for text in (f"alone {n}", "far 3000", "far 3000")] + ["together 700"] * 9
    read = 0
    chunks_of = vector_records.chunks_of

    def counted(*arguments: Any) -> Any:
        nonlocal read
        read += 1
        return chunks_of(*arguments)

    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Angles()) as store:
            await store.append("c", [Message("user", text) for text in said])
            from_store = await found(store, "query 0", limit=5)
            await found(store, "query 0", limit=5)
            assert len(index_of(store) or ()) == len(said)
            monkeypatch.setattr(vector_records, "chunks_of", counted)
            again = await found(store, "query 0", limit=5)
            assert [hit.message.id for hit in again] == [hit.message.id for hit in from_store]
            assert [hit.score for hit in again] == pytest.approx([hit.score for hit in from_store], abs=1e-4)
            assert {text.split()[0] for text in texts(again)} == {"near" if is_sure else "together"}
            assert read == (0 if is_sure else 1)

    asyncio.run(play())


def test_walls_filters_and_changes(url: str) -> None:
    async def play() -> None:
        async with hansard.connect(url, embedder=Topics()) as store:
            await fill(store, 4, 40)
            await fill(store, 4, 40, "ben")
            await fill(store.tenant("acme"), 4, 40, "cleo")
            ann, ben = store.user("ann"), store.user("ben")
            for view, own in ((ann, "ann"), (ben, "ben"), (store.tenant("acme"), "cleo")):
                hits = await found(view, "topic 5", limit=100)
                assert hits.complete
                assert len(hits) > 30
                assert all(f"of {own}" in text for text in texts(hits)), "nothing of others"
                assert index_of(view, own if view._view.user else None) is not None
            assert {hit.conversation.user_id for hit in await found(store, "topic 5", limit=100)} == {"ann", "ben"}
            assert {hit.conversation.user_id for hit in await found(store, "topic 5", user_id="ben")} == {"ben"}
            assert not await found(store.user("eve"), "topic 5")

            # Filters: by conversation and by message.
            hits = await found(store, "topic 5", agent_id="agent-1", limit=100)
            assert hits.complete
            assert {hit.conversation.agent_id for hit in hits} == {"agent-1"}
            assert not await found(store, "topic 5", since=datetime.now(UTC) + timedelta(hours=1))
            assert all("of ben" not in text for text in texts(await found(store, "topic 5 -ben", limit=100)))

            # What is changed, deleted or erased does not come back; what is new is found.
            first, second = (await found(ann, "topic 5", limit=2))[:2]
            await store.update_message(first.conversation.id, first.message.id, content="topic 31 changed")
            await store.delete_message(second.conversation.id, second.message.id)
            after = texts(await found(ann, "topic 5", limit=100))
            assert first.message.text not in after
            assert second.message.text not in after
            assert "topic 31 changed" in texts(await found(ann, "topic 31 changed", limit=3))
            await store.append("ann-0", Message("user", "topic 99 new"))
            assert texts(await found(ann, "topic 99 new", limit=1)) == ["topic 99 new"]
            await store.delete_conversation("ann-1")
            assert "ann-1" not in {hit.conversation.id for hit in await found(store, "topic 5", limit=100)}
            index = index_of(store)
            assert index is not None
            assert "ann-1" not in index.vectors.conversations()
            await store.erase_user("ben")
            assert index_of(ben, "ben") is None, "nothing of it stays in memory"
            assert not await found(ben, "topic 5")
            assert all("of ben" not in text for text in texts(await found(store, "topic 5", limit=100)))

    asyncio.run(play())


def test_another_process_changes_what_an_index_has(tmp_path: Path) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path}/s.db"
        async with (
            hansard.connect(url, embedder=Topics()) as reader,
            hansard.connect(url, embedder=Topics()) as writer,
            hansard.connect(url) as plain,
        ):
            await fill(writer, 3, 50)
            best = (await found(reader, "topic 5", limit=1))[0]
            await writer.append("new", Message("user", "topic 77 from elsewhere"), user_id="ann")
            assert texts(await found(reader, "topic 77 from elsewhere", limit=1)) == ["topic 77 from elsewhere"]
            await plain.delete_message(best.conversation.id, best.message.id)
            assert best.message.text not in texts(await found(reader, "topic 5", limit=100))
            await plain.append("plain", Message("user", "topic 78 without an embedder"), user_id="ann")
            hits = await found(reader, "topic 78 without an embedder", limit=1)
            assert texts(hits) == ["topic 78 without an embedder"], "the reader embeds it"

    asyncio.run(play())


def test_too_few_that_pass_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_messages, "CANDIDATES", 10)
    monkeypatch.setattr(nearest_messages, "MORE_CANDIDATES", 20)

    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
            await fill(store, 3, 100)
            await store.append("ann-0", Message("assistant", "topic 1 rare"))
            hits = await found(store, "topic 30", roles=["assistant"])
            assert not hits.complete
            hits = await found(store, "topic 1 rare", roles=["assistant"])
            assert texts(hits) == ["topic 1 rare"], "it is near, so it is among the candidates"

    asyncio.run(play())


def test_without_its_package_the_first_vectors_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vector_index, "is_installed", lambda: False)

    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
            await fill(store, 3, 100)
            for _ in range(2):
                hits = await found(store, "topic 5")
                assert hits
                assert not hits.complete

    with caplog.at_level(logging.WARNING, "hansard.embeddings"):
        asyncio.run(play())
    assert caplog.text.count("pip install 'hansard[vectors]'") == 1


def test_indexes_together_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_indexes, "MOST", 350)

    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
            await fill(store, 2, 100)
            await fill(store, 2, 100, "ben")
            assert (await found(store, "topic 5", user_id="ann")).complete
            assert (await found(store, "topic 5", user_id="ben")).complete
            await fill(store, 3, 100, "ben")
            hits = await found(store, "topic 5", user_id="ben")
            assert index_of(store, "ann") is None, "the index that was not used for the longest time"
            assert hits
            await fill(store, 9, 100, "ben")
            assert not (await found(store, "topic 5", user_id="ben")).complete, "there are more than fit"
            assert (await found(store, "topic 5", user_id="ann")).complete

    asyncio.run(play())


def test_a_search_does_not_wait_until_an_index_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = VectorIndex.replace

    async def play() -> None:
        async with hansard.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
            await fill(store, 3, 100)
            await store.embed()
            opened = asyncio.Event()
            loop = asyncio.get_running_loop()

            def slow(self: VectorIndex, id: str, rows: Any) -> None:
                asyncio.run_coroutine_threadsafe(opened.wait(), loop).result()
                real(self, id, rows)

            monkeypatch.setattr(VectorIndex, "replace", slow)
            monkeypatch.setattr(nearest_messages, "_WAIT_SECONDS", 0.2)
            hits = await found(store, "topic 5")
            assert hits
            assert not hits.complete, "so far the first vectors were compared"
            opened.set()
            monkeypatch.setattr(nearest_messages, "_WAIT_SECONDS", PATIENCE)
            assert (await found(store, "topic 5")).complete

    asyncio.run(play())


def test_without_an_event_loop(tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path}/s.db", embedder=Topics()) as store:
        for at in range(3):
            store.append(f"c{at}", [Message("user", f"topic {step % TOPICS} {at}-{step}") for step in range(60)])
        hits = store.search("topic 5", mode="meaning", limit=4)
        assert hits.complete
        assert {hit.message.text.split()[1] for hit in hits} == {"5"}
        store.append("c1", Message("user", "topic 88 later"))
        assert store.search("topic 88 later", mode="meaning", limit=1)[0].message.text == "topic 88 later"


def row(seq: int, *vector: float) -> VectorRow:
    return VectorRow(seq, f"m{seq}", b"d", vectors.stored(vectors.unit(vector, len(vector))), 10)


def test_the_vectors_of_a_conversation_are_replaced() -> None:
    index = VectorIndex(2)
    query = vectors.unit([1.0, 0.0], 2)

    def seqs(count: int = 10) -> dict[str, set[int]]:
        return index.near(query, count, ("c", "d"), {}).scored

    assert seqs() == {}
    index.replace("c", [row(1, 1.0, 0.0), row(200, 0.0, 1.0), row(300, -1.0, 0.0), row(400, 0.0, 0.0)])
    index.replace("d", [VectorRow(5, "m5", b"d", array("f", [1.0, 0.0]).tobytes()), VectorRow(6, "m6", b"d", b"odd")])
    assert (len(index), index.count(["c"]), index.count(["c", "d"])) == (5, 4, 5)
    assert seqs() == {"c": {1}, "d": {5}}, "only what is near at all"
    assert index.near(query, 10, ("d",), {"c": [300]}).rows["c"][300].own == pytest.approx(-1.0)
    index.replace("c", [row(2, 1.0, 0.0), row(200, 1.0, 0.0)])
    assert seqs() == {"c": {2}, "d": {5}}, "an unchanged digest: the same text, so the same vector"
    index.replace("c", [])
    index.replace("d", [])
    assert len(index) == 0
    assert seqs() == {}
    assert index.conversations() == set()


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
def test_a_model_can_be_loaded_after_the_index_has_searched() -> None:
    """In this order the libraries of usearch and onnxruntime crash, unless the second one is loaded first."""
    code = (
        "from array import array\n"
        "from hansard.search.vector_index import VectorIndex\n"
        "VectorIndex(2)._nearest(array('f', [1.0, 0.0]), 1)\n"
        "import onnxruntime\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
