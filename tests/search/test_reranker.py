"""A reranker orders the best candidates again, and its failures are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import hansard
from hansard import Message, sync
from hansard.errors import TimedOut, Unavailable, ValidationError
from hansard.search import Spelling, reranker

TEXTS = [f"word {'filler ' * number}" for number in range(60)]


async def longest_first(query: str, passages: Sequence[str]) -> list[float]:
    assert query == "word"
    return [float(len(passage)) for passage in passages]


def test_the_best_candidates_are_ranked_again_and_the_others_follow() -> None:
    with sync.connect("memory://") as plain, sync.connect("memory://", reranker=longest_first) as store:
        for each in (plain, store):
            each.append("c", [Message("user", text, id=f"m{number}") for number, text in enumerate(TEXTS)])
        before = plain.search("word", limit=100, token_cap=None)
        after = store.search("word", limit=100, token_cap=None)
        again = sorted(before[: reranker.CANDIDATES], key=lambda hit: -len(hit.text))
        expected = [hit.message.id for hit in (*again, *before[reranker.CANDIDATES :])]
        assert [hit.message.id for hit in after] == expected
        assert after[0].score == len(after[0].text)
        newest = store.search("word", order="newest", limit=1)
        assert newest[0].message.id == "m59"


def test_pages_continue_the_same_ranking() -> None:
    with sync.connect("memory://", reranker=longest_first) as store:
        store.append("c", [Message("user", text) for text in TEXTS])
        whole = [hit.message.id for hit in store.search("word", limit=100, token_cap=None)]
        paged: list[str] = []
        cursor = None
        while True:
            page = store.search("word", limit=7, token_cap=None, cursor=cursor)
            paged += [hit.message.id for hit in page]
            if (cursor := page.next_cursor) is None:
                break
        assert paged == whole


def test_it_is_asked_once_for_the_best_conversations_and_not_behind_its_candidates() -> None:
    asked: list[int] = []

    async def counted(query: str, passages: Sequence[str]) -> list[float]:
        asked.append(len(passages))
        return [float(len(passage)) for passage in passages]

    with sync.connect("memory://", reranker=counted, limits=hansard.Limits(page=10)) as store:
        store.append("c", [Message("user", text) for text in TEXTS])
        for number in range(3):
            store.append(f"d{number}", Message("user", "a word of " + "another kind " * 30))
        assert len(store.search("word", group_by="conversation", limit=4)) == 4
        assert asked == [reranker.CANDIDATES]
        asked.clear()
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            cursor, pages = store.search("word", limit=10, token_cap=None, cursor=cursor).next_cursor, pages + 1
        assert (pages, len(asked)) == (7, 5)


def test_views_tools_and_both_modes_use_it() -> None:
    async def play() -> None:
        async with hansard.connect("memory://", embedder=Spelling(), reranker=longest_first) as store:
            await store.append("c", [Message("user", "a word"), Message("user", "a much longer word")], user_id="ann")
            for mode in ("words", "meaning", "hybrid"):
                assert (await store.user("ann").search("word", mode=mode))[0].text == "a much longer word"
            assert (await store.search_tool("c")("word", 1)).endswith("a much longer word")
            assert store.reranker is longest_first

    asyncio.run(play())


async def raising(query: str, passages: Sequence[str]) -> list[float]:
    raise RuntimeError("no model")


async def too_few(query: str, passages: Sequence[str]) -> list[float]:
    return [1.0]


async def not_a_number(query: str, passages: Sequence[str]) -> list[float]:
    return [float("nan") for _ in passages]


async def nothing(query: str, passages: Sequence[str]) -> Any:
    return None


def not_async(query: str, passages: Sequence[str]) -> list[float]:
    return [1.0 for _ in passages]


def not_async_and_raising(query: str, passages: Sequence[str]) -> list[float]:
    raise RuntimeError("no model")


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (raising, "the reranker failed: RuntimeError: no model"),
        (too_few, "it returned 1 scores for 2 passages"),
        (not_a_number, "not a finite number"),
        (nothing, "the reranker failed: TypeError"),
        (not_async, "the reranker failed: TypeError"),
        (not_async_and_raising, "the reranker failed: RuntimeError: no model"),
    ],
)
def test_a_broken_reranker_is_reported(broken: Any, complaint: str) -> None:
    with sync.connect("memory://", reranker=broken) as store:
        store.append("c", [Message("user", "a word"), Message("user", "word")])
        with pytest.raises(Unavailable, match=complaint):
            store.search("word")
        assert store.search("missing") == []


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ValidationError, match="reranker must be an async callable"):
        sync.connect("memory://", reranker=5)  # type: ignore[arg-type]


def test_a_reranker_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(query: str, passages: Sequence[str]) -> list[float]:
        await asyncio.Event().wait()
        raise AssertionError("it never ends")

    monkeypatch.setattr(reranker, "_PATIENCE", 0.01)
    with sync.connect("memory://", reranker=hanging) as store:
        store.append_message("c", "user", "a word")
        with pytest.raises(TimedOut, match="did not answer"):
            store.search("word")
