"""A search leaves the event loop alone: what computes runs on a thread, and a query has a bounded number of words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Limits, Message, sync
from hansard.analysis import formula, one_word
from hansard.errors import ValidationError
from hansard.search import Spelling, scan
from hansard.store import nearest_messages

URLS = ("memory://", "file:///{}/store", "sqlite:///{}/store.db")
MESSAGES = [Message("user", f"word{number} common text") for number in range(300)]


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where: str = request.param
    return where.format(tmp_path)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[threading.Thread]]:
    """The threads on which the parts of a search ran."""
    ran: dict[str, set[threading.Thread]] = {}
    for place, name in (
        (formula.Scorer, "scores"),
        (one_word, "best"),
        (scan._Scanned, "add"),
        (nearest_messages._Compared, "_take"),
        (nearest_messages, "_still_embedded"),
    ):
        monkeypatch.setattr(place, name, _noting(getattr(place, name), ran.setdefault(name, set())))
    return ran


def _noting(function: Callable[..., Any], ran: set[threading.Thread]) -> Callable[..., Any]:
    def noting(*args: Any) -> Any:
        ran.add(threading.current_thread())
        return function(*args)

    return noting


def test_no_part_of_a_search_runs_on_the_event_loop(url: str, threads: dict[str, set[threading.Thread]]) -> None:
    async def play() -> None:
        async with hansard.connect(url, embedder=Spelling()) as store:
            await store.append("c", MESSAGES)
            assert len(await store.search("wor* OR common", mode="words")) == 10
            assert len(await store.search("common", mode="words")) == 10
            assert len(await store.search("common text -word7", mode="hybrid")) == 10
            assert store.capabilities.search == "index" or threads["add"]

    asyncio.run(play())
    assert threads["scores"]
    assert threads["best"]
    assert threads["_take"]
    assert threads["_still_embedded"]
    assert threading.main_thread() not in set.union(*threads.values())


def test_the_event_loop_gets_turns_during_a_search() -> None:
    """`memory` never waits for anything, so every turn of another task is one that the search left to it."""
    turns = 0

    async def play() -> None:
        nonlocal turns
        async with hansard.connect("memory://") as store:
            await store.append("c", MESSAGES)
            search = asyncio.ensure_future(store.search("common*"))
            while not search.done():
                turns += 1
                await asyncio.sleep(0)
            assert len(search.result()) == 10

    asyncio.run(play())
    assert turns > 300 // 100


def test_a_blocking_search_stays_in_its_thread(url: str, threads: dict[str, set[threading.Thread]]) -> None:
    def search() -> None:
        with sync.connect(url) as store:
            store.append("c", MESSAGES)
            assert len(store.search("wor* OR common")) == 10

    search()

    async def inside_a_loop() -> None:
        search()

    asyncio.run(inside_a_loop())
    assert set.union(*threads.values()) == {threading.main_thread()}


@pytest.mark.parametrize("query", ["w{}*", "w{}", '"a phrase{}"', "-w{}", "OR w{}"])
def test_a_query_has_so_many_words(query: str) -> None:
    with sync.connect("memory://") as store:
        store.append("c", [Message("user", "w1 w2 w63")])
        terms = [query.format(number) for number in range(65)]
        store.search(" ".join(terms[:64]))
        for order in ("relevance", "newest"):
            with pytest.raises(ValidationError, match=r"65 words and phrases; the limit is 64 \(Limits.query_terms\)"):
                store.search(" ".join(terms), order=order)
        with pytest.raises(ValidationError, match="10,001 characters; the limit is 10,000"):
            store.search("x" * 10_001)
        assert store.search("- " * 1000) == []


def test_the_number_of_words_can_be_changed(tmp_path: Path) -> None:
    most = " OR ".join(f"word{number}" for number in range(256))
    with sync.connect(f"sqlite:///{tmp_path}/a.db", limits=Limits(query_terms=256)) as store:
        store.append("c", MESSAGES)
        assert len(store.search(most, limit=100, token_cap=None)) == 100
        assert len(store.search(most.replace(" ", "* ").replace("OR*", "OR"), limit=100, token_cap=None)) == 100
    with (
        sync.connect("memory://", limits=Limits(query_terms=1)) as store,
        pytest.raises(ValidationError, match="2 words and phrases; the limit is 1"),
    ):
        store.search("two words")
    with pytest.raises(ValidationError, match="query_terms is 257: it must be at most 256"):
        Limits(query_terms=257)


def test_a_page_of_text_is_a_question_by_meaning() -> None:
    page = "and so on " * 3000

    async def play() -> None:
        async with hansard.connect("memory://", embedder=Spelling()) as store:
            await store.append_message("c", "user", "so it goes on and on")
            assert len(await store.search(page, mode="meaning")) == 1
            assert len(await store.search(page, mode="hybrid")) == 1

    asyncio.run(play())


def test_a_model_is_told_that_its_query_is_too_long() -> None:
    with sync.connect("memory://") as store:
        answer = store.search_tool("c").run({"query": "word " * 65})
        assert answer == (
            "Error in the arguments: the query has 65 words and phrases; the limit is 64 (Limits.query_terms)"
        )
