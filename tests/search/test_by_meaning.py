"""Search by meaning: what is found, what never is, and what embedding survives."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import BACKENDS, BY_URL, quick_folder
from tests.wait import PATIENCE, coming

import hansard
from hansard import Message, Store, rules, sync
from hansard.errors import FormatMismatch, Unavailable, Unsupported, ValidationError
from hansard.search import Embedding, Hits, Spelling, vectors
from hansard.store import embedder_task, nearest_messages, vector_records

MEANINGS = {
    "car": 0,
    "automobile": 0,
    "vehicle": 0,
    "doctor": 1,
    "physician": 1,
    "money": 2,
    "cash": 2,
    "refund": 2,
}


class Model:
    """A model that knows a few words, and fails or hangs on demand."""

    dimensions = 4

    def __init__(self, name: str = "few-words", version: str = "1") -> None:
        self.name = name
        self.version = version
        self.asked: list[list[str]] = []
        self.kinds: list[str] = []
        self.does: Callable[[], Any] | None = None

    async def __call__(self, texts: Sequence[str], kind: str = "passage") -> Sequence[Sequence[float]]:
        self.asked.append(list(texts))
        self.kinds.append(kind)
        if self.does is not None:
            given = self.does()
            if isinstance(given, Awaitable):
                given = await given
            if given is not None:
                return given  # type: ignore[no-any-return]
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0, 0.0, 0.0, 0.05]
        for word in text.lower().replace("?", "").replace(".", "").split():
            if word in MEANINGS:
                vector[MEANINGS[word]] += 1.0
        return vector

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.asked for text in batch]


@pytest.fixture(params=BY_URL)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with quick_folder() as folder:
        target = BACKENDS[request.param](folder)
        assert target.url is not None
        yield target.url
        target.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder that fails is tried again soon. A search waits until all is embedded, however busy the machine is."""
    monkeypatch.setattr(nearest_messages, "_WAIT_SECONDS", PATIENCE)
    monkeypatch.setattr(embedder_task, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(embedder_task, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(embedder_task, "PATIENCE", 0.2)


def texts(hits: Hits) -> list[str]:
    return [hit.message.text for hit in hits]


async def found(store: Store, query: str, **options: Any) -> list[str]:
    return texts(await store.search(query, mode="meaning", **options))


async def rows_of(store: Store, id: str) -> list[str]:
    """The ids of all messages that have a vector, of any embedder, as they lie in the records."""
    held: list[str] = []
    page = await store.records.scan((*vector_records.VECTORS, id), limit=100)
    while True:
        chunks = [record for record in page.items if record.key != vector_records.STATE]
        held += [row.id for chunk in chunks for row in vectors.unpack(chunk.value, "")]
        if page.next_cursor is None:
            return sorted(held)
        page = await store.records.scan((*vector_records.VECTORS, id), limit=100, after=page.next_cursor)


TALK = ["My car is broken.", "The physician was kind.", "I want my cash back.", "Good morning."]


def test_what_means_the_same_is_found(url: str) -> None:
    async def play() -> None:
        async with hansard.connect(url, embedder=Model()) as store:
            await store.append("c", [Message("user", text) for text in TALK], user_id="ann")
            assert (await found(store, "vehicle"))[0] == TALK[0]
            assert (await found(store, "doctor?", conversation_id="c", limit=1)) == [TALK[1]]
            assert texts(await store.search("automobile", mode="words")) == [], "by words it is not"
            assert texts(await store.search("automobile"))[0] == TALK[0], "with an embedder, both is the default"
            assert texts(await store.search("automobile", order="newest")) == [], "sorted by time: by words"
            assert texts(await store.search("automobile car", match="all")) == []
            both = await store.search("refund morning", mode="hybrid")
            assert set(texts(both)[:2]) == {TALK[2], TALK[3]}
            assert both[0].score > both[1].score or both[0].score == both[1].score > 0
            assert both.complete
            assert await found(store, "  ") == []

    asyncio.run(play())


def test_what_was_changed_or_deleted_is_never_found_by_an_old_vector(url: str) -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect(url, embedder=model) as store:
            await store.append("c", [Message("user", text, id=f"m{at}") for at, text in enumerate(TALK)])
            await store.embed()
            assert await rows_of(store, "c") == ["m0", "m1", "m2", "m3"]
            model.does = lambda: asyncio.sleep(60)  # from now on, nothing new is embedded
            await store.update_message("c", "m0", content="My doctor is away.")
            await store.delete_message("c", "m1")
            await store.pop_message("c")
            assert await rows_of(store, "c") == ["m2"], "gone with the messages, not later"
            model.does = None
            assert (await found(store, "physician"))[0] == "My doctor is away."
            assert TALK[0] not in await found(store, "car")
            await store.clear_messages("c")
            assert await rows_of(store, "c") == []
            assert await found(store, "car") == []
            await store.append("d", Message("user", "A car."))
            await store.embed()
            await store.delete_conversation("d")
            assert (await store.records.scan((*vector_records.VECTORS, "d"))).items == []

    asyncio.run(play())


def test_whoever_deletes_needs_no_embedder(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("memory:// is nobody else's")

    async def play() -> None:
        ann = hansard.Participant("user", "ann")
        async with hansard.connect(url, embedder=Model()) as store:
            await store.append("c", [Message("user", text, id=f"m{at}") for at, text in enumerate(TALK)])
            await store.append("c", Message("user", "A car of mine.", id="hers", participant=ann))
            await store.branch("c", at="m3", branch_id="side")
            await store.append("c", Message("user", "A car aside.", id="aside"))
            await store.embed()
        async with hansard.connect(url) as plain:
            await plain.erase_user("ann")
            await plain.switch_branch("c", "main")
            await plain.delete_branch("c", "side")
            assert await rows_of(plain, "c") == ["m0", "m1", "m2", "m3"]
            kept = await plain.get_messages("c", last=10)
            await plain.replace_messages("c", [*kept[:2], Message("user", "A vehicle.", id="new")])
            assert await rows_of(plain, "c") == ["m0", "m1"]
            await plain.update_message("c", "m1", content="Nothing.")
            assert await rows_of(plain, "c") == ["m0"]
        model = Model()
        async with hansard.connect(url, embedder=model) as store:
            assert set(await found(store, "automobile")) >= {"My car is broken.", "A vehicle."}
            assert sorted(model.texts) == ["A vehicle.", "Nothing.", "automobile"], "the rest had its vectors"

    asyncio.run(play())


def test_it_goes_on_where_a_process_ended(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("memory:// does not outlast its process")

    async def play() -> None:
        hanging = Model()
        async with hansard.connect(url, embedder=hanging) as store:
            await store.append("a", [Message("user", f"car {number}") for number in range(130)])
            await store.embed()
            hanging.does = lambda: asyncio.sleep(3600)
            await store.append("a", Message("user", "cash"))
            await store.append("b", Message("user", "doctor"))
            await store.update_message("a", (await store.get_messages("a", limit=1))[0].id, content="physician")
            await coming(lambda: len(hanging.asked) > 3)
        model = Model()
        async with hansard.connect(url, embedder=model) as store:
            assert await store.embed() == 3
            assert sorted(model.texts) == ["cash", "doctor", "physician"]
        again = Model()
        async with hansard.connect(url, embedder=again) as store:
            assert await store.embed() == 0
            assert again.asked == []
            assert (await found(store, "money", limit=1)) == ["cash"]

    asyncio.run(play())


def test_an_embedder_knows_queries_from_passages() -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            await store.append("c", Message("user", "My car."))
            await store.embed()
            assert await found(store, "vehicle") == ["My car."]
            assert model.kinds == ["passage", "query"]
        prefixed = Embedding(model, name="m", dimensions=4, query_prefix="Q: ", passage_prefix="P: ")
        await prefixed(["car"], "query")
        await prefixed(["car"], "passage")
        assert model.asked[-2:] == [["Q: car"], ["P: car"]]

    asyncio.run(play())


def test_vectors_of_two_versions_are_never_mixed(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("memory:// does not outlast its process")

    async def play() -> None:
        async with hansard.connect(url, embedder=Model()) as store:
            await store.append("c", Message("user", "My car."))
            await store.embed()
        newer = Model(version="2")
        async with hansard.connect(url, embedder=newer) as store:
            await store.append("c", Message("user", "My cash."))
            for mode in ("meaning", "hybrid"):
                with pytest.raises(FormatMismatch, match=r"few-words@1.*few-words@2.*hansard reindex"):
                    await store.search("vehicle", mode=mode)
            with pytest.raises(FormatMismatch):
                await store.embed()
            assert newer.asked == [], "nothing was embedded"
            assert len(await store.search("cash", mode="words")) == 1
            assert [done async for done in store.admin.reindex()]
            assert (await found(store, "vehicle"))[0] == "My car."
        async with hansard.connect(url, embedder=Model()) as store:
            with pytest.raises(FormatMismatch):
                await found(store, "vehicle")

    asyncio.run(play())


def cancelled() -> Any:
    raise asyncio.CancelledError


FAILURES: dict[str, Callable[[], Any]] = {
    "raises": lambda: 1 / 0,
    "hangs": lambda: asyncio.sleep(3600),
    "gives too few": list,
    "gives wrong dimensions": lambda: [[1.0]],
    "gives what is no number": lambda: [["a", "b", "c", "d"]],
    "gives what is not finite": lambda: [[float("nan")] * 4],
    "gives none": lambda: 7,
    "is cancelled": cancelled,
}


@pytest.mark.parametrize("how", FAILURES)
def test_an_embedder_that_fails_is_logged_and_tried_again(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        model = Model()
        model.does = FAILURES[how]
        async with hansard.connect("memory://", embedder=model) as store:
            with caplog.at_level(logging.WARNING, "hansard.embeddings"):
                await store.append("c", Message("user", "My car."))
                assert len(await store.get_messages("c")) == 1, "the append is done"
                await coming(lambda: len(model.asked) > 2)
            assert "the embedder" in caplog.text
            with pytest.raises(Unavailable):
                await store.embed()
            model.does = None
            assert await found(store, "vehicle") == ["My car."]

    asyncio.run(play())


def test_search_by_both_does_without_a_failing_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            await store.append("c", [Message("user", text) for text in TALK])
            await store.embed()
            model.does = lambda: 1 / 0
            hits = await store.search("cash", mode="hybrid")
            assert (texts(hits), hits.complete) == ([TALK[2]], False)
            with pytest.raises(Unavailable, match="the embedder failed: ZeroDivisionError"):
                await store.search("cash", mode="meaning")

    asyncio.run(play())


def test_a_search_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            await store.append("c", Message("user", "An old car."))
            await store.embed()
            monkeypatch.setattr(nearest_messages, "_WAIT_SECONDS", 0.05)

            async def slowly(texts: Sequence[str]) -> Sequence[Sequence[float]]:
                if texts != ["vehicle"]:
                    await asyncio.sleep(3600)
                return await model(texts)

            store._view.embeddings.embedder = Embedding(slowly, name=model.name, dimensions=4)  # type: ignore[union-attr]
            await store.append("c", Message("user", "A new car."))
            hits = await store.search("vehicle", mode="meaning")
            assert (texts(hits), hits.complete) == (["An old car."], False)

    asyncio.run(play())


def test_embedding_is_behind_the_append_and_in_batches() -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            for number in range(200):
                await store.append_message(f"c{number % 7}", "user", f"car {number}")
            assert model.asked == [], "nobody waited for it"
            await coming(lambda: len(model.texts) == 200)
            assert len(model.asked) < 12
            assert max(map(len, model.asked)) <= embedder_task.BATCH

    asyncio.run(play())


def test_batches_of_long_texts_are_small() -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            lengths = [3000, 9000, 100, 7000, 5000, 5000, 5000, *[100] * 100]
            said = [Message("user", f"{at} car ".ljust(length, ".")) for at, length in enumerate(lengths)]
            await store.append("c", said)
            await store.embed()
        batches = [[len(text) for text in batch] for batch in model.asked]
        assert [size for batch in batches for size in batch] == [min(length, 8000) for length in lengths]
        assert batches[:2] == [[3000, 8000, 100], [7000, 5000]]
        assert all(sum(batch) <= 16_000 and len(batch) <= embedder_task.BATCH for batch in batches)

    asyncio.run(play())


def test_a_text_that_cannot_be_embedded_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        model = Model()

        async def picky(texts: Sequence[str]) -> Sequence[Sequence[float]]:
            if "poison" in texts:
                raise RuntimeError("no")
            return await model(texts)

        async with hansard.connect("memory://", embedder=Embedding(picky, name=model.name, dimensions=4)) as store:
            said = [
                Message("user", "poison" if number == 7 else f"car {number}", id=f"m{number:02}")
                for number in range(20)
            ]
            await store.append("c", said)
            await store.append("d", Message("user", "cash"))
            await coming(lambda: len(set(model.texts)) == 20)

            async def all_held() -> list[str]:
                held = await rows_of(store, "c")
                return held if len(held) == 19 else []

            assert await coming(all_held) == [f"m{number:02}" for number in range(20) if number != 7]
            with pytest.raises(Unavailable, match="no"):
                await store.embed()
            await store.delete_message("c", "m07")
            await store.embed()

    asyncio.run(play())


@pytest.mark.parametrize("most", [1, 3])
def test_however_much_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int) -> None:
    monkeypatch.setattr(embedder_task, "_MOST_WAITING", most)
    monkeypatch.setattr(embedder_task, "_PAGE", 2)

    async def play() -> None:
        url = f"sqlite:///{tmp_path}/a.db"
        async with hansard.connect(url) as plain:
            for number in range(12):
                await plain.append_message(f"c{number}", "user", f"car {number}")
        async with hansard.connect(url, embedder=Model()) as store:
            for number in range(6, 18):
                await store.append_message(f"c{number}", "user", f"cash {number}")
            await store.embed()
            assert sorted([len(await rows_of(store, f"c{number}")) for number in range(18)]) == [1] * 12 + [2] * 6

    asyncio.run(play())


def test_what_changes_no_text_makes_nobody_read_it_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    original = embedder_task.Embeddings._missing_vectors

    async def watched(self: embedder_task.Embeddings, key: embedder_task.Key, number: int) -> embedder_task.Refresh:
        looked.append(number)
        return await original(self, key, number)

    async def play() -> None:
        async with hansard.connect("memory://", embedder=Model()) as store:
            await store.append("c", [Message("user", f"car {number}", id=f"m{number}") for number in range(400)])
            await store.embed()
            monkeypatch.setattr(embedder_task.Embeddings, "_missing_vectors", watched)
            await store.update_conversation("c", title="Cars")
            await found(store, "car")
            assert looked == []
            await store.delete_message("c", "m70")
            await store.append("c", Message("user", "cash"))
            await found(store, "car")
            assert sorted(looked) == [1, 6]

    asyncio.run(play())


def test_another_name_begins_anew(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("memory:// is nobody else's")

    async def play() -> None:
        async with hansard.connect(url, embedder=Model()) as store:
            await store.append("c", [Message("user", text, id=f"m{at}") for at, text in enumerate(TALK)])
            await store.embed()
        other = Model("other")
        async with hansard.connect(url, embedder=other) as store:
            assert (await found(store, "vehicle"))[0] == TALK[0]
            assert sorted(other.texts) == sorted([*TALK, "vehicle"])
            await store.delete_message("c", "m0")
            assert await rows_of(store, "c") == ["m1", "m1", "m2", "m2", "m3", "m3"], "from both"

    asyncio.run(play())


def test_reindex_embeds_anew(url: str) -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect(url, embedder=model) as store:
            await store.append("c", [Message("user", text) for text in TALK])
            await store.tenant("acme").append("c", Message("user", "cash"))
            await store.embed()
            await store.tenant("acme").embed()
            model.asked.clear()
            done = [number async for number in store.admin.reindex()]
            assert done
            assert sorted(model.texts) == sorted([*TALK, "cash"])
            assert (await found(store, "vehicle"))[0] == TALK[0]

    asyncio.run(play())


def test_two_at_once_leave_the_embedding_of_what_comes_alone() -> None:
    async def run() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            await store.append_message("c", "user", "a car")
            both = [aiter(store.admin.reindex()) for _ in range(2)]
            for each in both:
                await anext(each)
            for each in both:
                async for _ in each:
                    pass
            await store.append_message("c", "user", "some cash")
            await coming(lambda: "some cash" in model.texts)

    asyncio.run(run())


def test_reindex_leaves_the_vectors_of_others_unless_it_is_told_to(url: str) -> None:
    if url.startswith("memory"):
        pytest.skip("memory:// is nobody else's")

    async def play() -> None:
        model, other = Model(), Model("other")
        for each in (other, model):
            async with hansard.connect(url, embedder=each) as store:
                await store.append("c", [Message("user", text, id=f"m{at}") for at, text in enumerate(TALK)])
                await store.append("d", Message("user", "cash", id="d0"))
                await store.embed()
        async with hansard.connect(url, embedder=model) as store:
            model.asked.clear()
            assert [done async for done in store.admin.reindex()]
            assert sorted(model.texts) == sorted([*TALK, "cash"])
            assert await rows_of(store, "c") == sorted([f"m{at}" for at in range(4)] * 2), "from both"
            assert await rows_of(store, "d") == ["d0", "d0"]
            assert [done async for done in store.admin.reindex(forget_others=True)]
            assert await rows_of(store, "c") == [f"m{at}" for at in range(4)]
            assert await rows_of(store, "d") == ["d0"]
            assert (await found(store, "vehicle"))[0] == TALK[0]
        async with hansard.connect(url, embedder=other) as store:
            other.asked.clear()
            assert (await found(store, "vehicle"))[0] == TALK[0]
            assert len(other.texts) == 6, "everything anew, and the query"

    asyncio.run(play())


def test_forgetting_others_needs_an_embedder() -> None:
    with sync.connect("memory://") as store, pytest.raises(ValidationError, match="forget_others"):
        list(store.admin.reindex(forget_others=True))


def test_filters_branches_and_walls(url: str) -> None:
    async def play() -> None:
        async with hansard.connect(url, embedder=Model()) as store:
            old = datetime(2026, 1, 1, tzinfo=UTC)
            await store.append("c", Message("user", "car one", id="m1", created_at=old), user_id="ann", agent_id="g")
            await store.append("c", Message("assistant", "car two", id="m2"))
            await store.append("d", Message("user", "car three"), user_id="ben")
            await store.tenant("acme").append("c", Message("user", "car four"))
            assert sorted(await found(store, "car")) == ["car one", "car three", "car two"]
            assert await found(store, "car", roles=["assistant"]) == ["car two"]
            assert await found(store, "car", since=old + timedelta(1), conversation_id="c") == ["car two"]
            assert await found(store, "car", agent_id="g", until=old + timedelta(1)) == ["car one"]
            assert await found(store, "car", user_id="ben") == ["car three"]
            assert await found(store.user("ben"), "car") == ["car three"]
            assert await found(store.user("eve"), "car") == []
            with pytest.raises(hansard.Denied, match="whole tenant"):
                await store.user("eve").embed()
            assert await found(store.tenant("acme"), "car") == ["car four"]
            assert await found(store, "car -three") != await found(store, "car")
            assert "car three" not in await found(store, "car -three")
            await store.branch("c", at="m1")
            await store.append("c", Message("assistant", "car five"))
            assert sorted(await found(store, "car", conversation_id="c")) == ["car five", "car one"]
            assert sorted(await found(store, "car", conversation_id="c", branch="main")) == ["car one", "car two"]
            assert len(await found(store, "car", conversation_id="c", all_branches=True)) == 3
            page = await store.search("car", mode="meaning", limit=2)
            rest = await store.search("car", mode="meaning", limit=2, cursor=page.next_cursor)
            assert len({hit.message.id for hit in (*page, *rest)}) == 3
            with pytest.raises(ValidationError, match="cursor"):
                await store.search("car", mode="hybrid", cursor=page.next_cursor)

    asyncio.run(play())


def test_a_message_in_progress_is_embedded_when_it_has_ended() -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect("memory://", embedder=model) as store:
            await store.append("c", Message("assistant", "My ca", id="m", status="in_progress"))
            assert await found(store, "vehicle") == []
            await store.update_message("c", "m", content="My car.", status="complete")
            assert await found(store, "vehicle") == ["My car."]
            assert "My ca" not in model.texts

    asyncio.run(play())


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def growing(clock: Clock, text: str, **fields: Any) -> Message:
    until = rules.leased(None, clock.now + timedelta(seconds=60))
    return Message("assistant", text, status="in_progress", metadata=until, **fields)


def test_a_message_whose_lease_ran_out_is_embedded_in_the_end(url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with hansard.connect(url, embedder=Model(), clock=clock) as store:
            await store.append("c", [Message("user", "Hello."), growing(clock, "My car", id="m")])
            assert "My car" not in await found(store, "vehicle")
            clock.now += timedelta(seconds=50)
            # Whoever writes it still lives, and moves the lease on.
            until = rules.leased(None, clock.now + timedelta(seconds=60))
            await store.update_message("c", "m", content="My car is", metadata=until)
            clock.now += timedelta(seconds=50)
            assert "My car is" not in await found(store, "vehicle")
            clock.now += timedelta(seconds=50)
            hits = await store.search("vehicle", mode="meaning", limit=1)
            assert texts(hits) == ["My car is"]
            assert hits[0].message.status == "interrupted"
            # It was only slow: what it says in the end is what is found.
            await store.update_message("c", "m", content="My car is green.", status="complete", metadata={})
            assert (await found(store, "vehicle"))[0] == "My car is green."
            assert await rows_of(store, "c") == sorted([message.id for message in await store.get_messages("c")])

    asyncio.run(play())


def test_a_lease_that_runs_out_while_no_process_runs(tmp_path: Path) -> None:
    async def play() -> None:
        url, clock = f"sqlite:///{tmp_path / 'a.db'}", Clock()
        async with hansard.connect(url, embedder=Model(), clock=clock) as store:
            await store.append("c", [growing(clock, "My car", id="m")])
            await store.embed()
            for number in range(3):
                # Much is written after it, and embedded.
                clock.now += timedelta(seconds=10)
                await store.append(f"d{number}", Message("user", "Good morning."))
                await store.embed()
        clock.now += timedelta(hours=3)
        model = Model()
        async with hansard.connect(url, embedder=model, clock=clock) as store:
            await store.append("e", Message("user", "Good evening."))
            assert (await found(store, "vehicle"))[0] == "My car"
            assert sorted(model.texts) == ["Good evening.", "My car", "vehicle"]
        clock.now += timedelta(hours=3)
        model = Model()
        async with hansard.connect(url, embedder=model, clock=clock) as store:
            assert (await found(store, "vehicle"))[0] == "My car"
            assert model.texts == ["vehicle"], "nothing is embedded twice"

    asyncio.run(play())


def test_without_a_lease_it_is_in_progress_for_ever(tmp_path: Path) -> None:
    async def play() -> None:
        url, clock = f"sqlite:///{tmp_path / 'a.db'}", Clock()
        async with hansard.connect(url, embedder=Model(), clock=clock) as store:
            await store.append("c", Message("assistant", "My car", status="in_progress"))
            clock.now += timedelta(days=3)
            await store.append("d", Message("user", "Good morning."))
            assert "My car" not in await found(store, "vehicle")

    asyncio.run(play())


def test_forks_and_copies(url: str, tmp_path: Path) -> None:
    async def play() -> None:
        model = Model()
        async with hansard.connect(url, embedder=model) as store:
            await store.append("c", [Message("user", text) for text in TALK])
            await store.fork("c", new_id="twin")
            assert (await found(store, "vehicle", conversation_id="twin"))[0] == TALK[0]
            other = Model()
            async with hansard.connect(f"sqlite:///{tmp_path}/copy.db", embedder=other) as target:
                report = await store.copy_to(target)
                assert report.conflicts == []
                assert (await found(target, "vehicle"))[0] == TALK[0]
                assert other.texts == ["vehicle"], "the vectors came along"
                await store.append("c", Message("user", "The bus."))
                await store.embed()
                report = await store.copy_to(target)
                assert report.conflicts == []
                assert "The bus." in await found(target, "the", limit=20)
            lines = [line async for line in store.export()]
            async with hansard.connect(f"sqlite:///{tmp_path}/imported.db", embedder=Model()) as target:
                await target.import_(lines)
                assert (await found(target, "vehicle"))[0] == TALK[0]

    asyncio.run(play())


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_without_await(url: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db" if url == "sqlite" else url
    model = Model()
    with sync.connect(url, embedder=model) as store:
        store.append("c", [Message("user", text) for text in TALK])
        assert model.asked == [], "no event loop runs between the calls"
        assert texts(store.search("vehicle", mode="meaning"))[0] == TALK[0]
        store.append("c", Message("user", "Another automobile."))
        assert store.embed() == 1
        assert "Another automobile." in texts(store.search("car", mode="hybrid"))
        assert list(store.admin.reindex())
        assert store.search("automobile")[0].message.text == "Another automobile."


def test_what_cannot_be_asked_for() -> None:
    async def play() -> None:
        async with hansard.connect("memory://") as store:
            for mode in ("meaning", "hybrid"):
                with pytest.raises(Unsupported, match="embedder="):
                    await store.search("x", mode=mode)
            with pytest.raises(Unsupported, match="embedder="):
                await store.embed()
            with pytest.raises(ValidationError, match="mode is 'vague'"):
                await store.search("x", mode="vague")  # type: ignore[arg-type]
        async with hansard.connect("memory://", embedder=Model()) as store:
            with pytest.raises(ValidationError, match="newest"):
                await store.search("x", mode="meaning", order="newest")
        wrongs: list[Any] = [7, lambda texts: [], Embedding(Model(), name="", dimensions=4)]
        for wrong in wrongs:
            with pytest.raises(ValidationError, match="async callable with a name"):
                await hansard.connect("memory://", embedder=wrong)
        with pytest.raises(ValidationError, match="version is '1@2'"):
            await hansard.connect("memory://", embedder=Model(version="1@2"))
        with pytest.raises(ValidationError, match="dimensions are 0"):
            await hansard.connect("memory://", embedder=Embedding(Model(), name="m", dimensions=0))
        async with hansard.connect("none://", embedder=Model()) as store:
            await store.append("c", Message("user", "x"))
            assert await found(store, "x") == []

    asyncio.run(play())


def test_damaged_vectors_are_reported() -> None:
    async def play() -> None:
        async with hansard.connect("memory://", embedder=Model()) as store:
            await store.append("c", Message("user", "My car."))
            await store.embed()
            await store.records.put((*vector_records.VECTORS, "c", "few-words@1"), vector_records.key_of(0), b"odd")
            with pytest.raises(hansard.Corrupt, match="hansard reindex"):
                await found(store, "vehicle")
            assert [done async for done in store.admin.reindex()]
            assert await found(store, "vehicle") == ["My car."]

    asyncio.run(play())


def test_two_processes_embed_one_conversation(tmp_path: Path) -> None:
    async def play() -> None:
        url = f"sqlite:///{tmp_path}/a.db"
        async with hansard.connect(url, embedder=Model()) as one, hansard.connect(url, embedder=Model()) as other:
            for number in range(40):
                await asyncio.gather(
                    one.append_message("c", "user", f"car {number}"),
                    other.append_message("c", "user", f"cash {number}"),
                )
            await one.embed()
            await other.embed()
            held = await rows_of(one, "c")
            assert len(held) == len(set(held)) == 80

    asyncio.run(play())


KILLED = """
import asyncio, sys
import hansard
from hansard import Message
from hansard.search import Spelling

class Slow(Spelling):
    async def __call__(self, texts, kind):
        print("asked", flush=True)
        await asyncio.sleep(0.02)
        return await super().__call__(texts, kind)

async def main():
    async with hansard.connect(sys.argv[1], embedder=Slow()) as store:
        number = 0
        while True:
            await store.append(f"c{number % 5}", [Message("user", f"word {number}.{part}") for part in range(30)])
            number += 1

asyncio.run(main())
"""


def test_a_killed_process_loses_no_vector(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    for asked in (1, 3, 7):
        writer = subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        with writer.stdout:
            for _ in range(asked):
                assert writer.stdout.readline() == "asked\n"
            writer.kill()
            writer.wait()

    async def play() -> None:
        async with hansard.connect(url, embedder=Spelling()) as store:
            await store.embed()
            for number in range(5):
                said = [message.id async for message in store.iter_messages(f"c{number}")]
                assert await rows_of(store, f"c{number}") == sorted(said)
            assert await store.check() == []

    asyncio.run(play())
