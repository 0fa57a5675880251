"""The tool in a model's hands: three shapes, and no way out of what it is fixed to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hansard
import hansard.sync
from hansard.errors import ValidationError
from hansard.model import Message, Participant
from hansard.search import Embedding


@pytest.fixture
def store() -> Iterator[hansard.sync.Store]:
    with hansard.sync.connect("memory://") as store:
        who = Participant("user", "ann", "Ann")
        store.append("c1", [Message("user", "My locker code is 4711", participant=who)], user_id="ann")
        store.append("c1", [Message("assistant", "Noted.")])
        store.append("c2", [Message("user", "The garden gate code is 1234")], user_id="ann")
        store.append("c3", [Message("user", "The safe code is 9999")], user_id="ben")
        yield store


def test_it_answers_in_plain_text(store: hansard.sync.Store) -> None:
    tool = store.search_tool("c1")
    answer = tool("locker")
    assert answer.startswith("[20")
    assert answer.endswith("UTC] Ann: My locker code is 4711")
    assert tool("noted").endswith("assistant: Noted.")
    assert tool("submarine") == "Nothing found."
    assert "some" in tool("locker submarine")
    assert "4711" in tool("locker submarine")


def test_the_shapes(store: hansard.sync.Store) -> None:
    tool = store.search_tool("c1")
    chat, responses, anthropic = tool.openai(), tool.openai_responses(), tool.anthropic()
    assert chat["type"] == responses["type"] == "function"
    assert chat["function"]["name"] == responses["name"] == anthropic["name"] == tool.__name__ == "conversation_search"
    assert chat["function"]["parameters"] == responses["parameters"] == anthropic["input_schema"]
    assert set(anthropic["input_schema"]["properties"]) == {"query", "limit"}
    assert anthropic["input_schema"]["required"] == ["query"]


def test_what_a_model_writes(store: hansard.sync.Store) -> None:
    tool = store.search_tool("c1")
    assert "4711" in tool.run('{"query": "code"}')
    assert "4711" in tool.run({"query": "code", "limit": "3"})
    assert "4711" in tool.run({"query": "code", "limit": 100_000})
    assert "4711" in tool.run({"query": "code", "limit": -1})
    assert "4711" in tool.run('{"query": "code", "limit": null}')
    for wrong in ("", "{", "[]", "{}", '{"query": 5, "limit": []}', "\ud800"):
        assert tool.run(wrong).startswith("Error in the arguments"), wrong


def test_it_shows_the_messages_around(store: hansard.sync.Store) -> None:
    lines = store.search_tool("c1", around=1)("locker").splitlines()
    assert [line.partition("UTC] ")[2] for line in lines] == ["Ann: My locker code is 4711", "assistant: Noted."]
    found = store.search_tool(user_id="ann", group_by="conversation")("code", 1)
    assert found.count("UTC]") == 1
    for wrong in ({"around": 51}, {"around": -1}, {"group_by": "user"}):
        with pytest.raises(ValidationError):
            store.search_tool("c1", **wrong)


def test_nothing_names_another_conversation(store: hansard.sync.Store) -> None:
    tool = store.search_tool("c1")
    for arguments in (
        {"query": "code", "conversation_id": "c3"},
        {"query": "code", "user_id": "ben", "all_branches": True},
        {"query": "code conversation_id:c3", "tenant": "other"},
    ):
        assert "9999" not in tool.run(arguments)
        assert "1234" not in tool.run(arguments)
    everywhere = store.search_tool(user_id="ann")
    assert "4711" in everywhere("code")
    assert "1234" in everywhere("code")
    assert "9999" not in everywhere.run({"query": "code", "user_id": "ben"})
    mine = store.user("ben").search_tool()
    assert "9999" in mine("code")
    assert "4711" not in mine("code")
    assert store.user("ben").search_tool("c1")("code") == "Nothing found."


def test_it_must_be_fixed_to_something(store: hansard.sync.Store) -> None:
    with pytest.raises(hansard.ValidationError, match="fixed to"):
        store.search_tool()
    with pytest.raises(hansard.ValidationError):
        store.user("ann").search_tool(user_id="ben")


def test_the_limit_and_the_cap(store: hansard.sync.Store) -> None:
    store.append("c4", [Message("user", f"word {number} " + "x" * 4000) for number in range(9)], user_id="ann")
    assert store.search_tool("c4", token_cap=100_000)("word").count("UTC]") == 5
    assert store.search_tool("c4", token_cap=100_000)("word", 2).count("UTC]") == 2
    assert store.search_tool("c4")("word").count("UTC]") == 1


async def meaning_of(texts: Sequence[str]) -> list[list[float]]:
    """A model that knows one thing."""
    return [[1.0, 0.0] if "code" in text or "cipher" in text else [0.01, 1.0] for text in texts]


def modal() -> hansard.sync.Store:
    store = hansard.sync.connect("memory://", embedder=Embedding(meaning_of, name="one-thing", dimensions=2))
    store.append("c1", [Message("user", "My locker code is 4711"), Message("user", "Good morning")], user_id="ann")
    store.append("c2", Message("user", "The garden gate code is 1234"), user_id="ann")
    store.append("c3", Message("user", "The safe code is 9999"), user_id="ben")
    return store


def test_with_an_embedder_it_searches_by_meaning_too() -> None:
    with modal() as store:
        tool = store.search_tool("c1")
        assert tool.mode == "hybrid"
        assert tool("cipher", 1).endswith("My locker code is 4711")
        assert tool.run({"query": "cipher", "limit": 1, "mode": "words"}).endswith("4711"), "the model has no say in it"
        assert tool("morning", 1).endswith("Good morning")
        assert tool("") == "Nothing found."
        by_words = store.search_tool("c1", mode="words")
        assert by_words("cipher") == "Nothing found."
        assert "some" in by_words("morning cipher")
        by_meaning = store.search_tool("c1", mode="meaning")
        assert by_meaning("cipher", 1).endswith("4711")
        for each in (tool, by_words, by_meaning):
            chat, responses, anthropic = each.openai(), each.openai_responses(), each.anthropic()
            assert chat["function"]["description"] == responses["description"] == anthropic["description"]
            assert set(anthropic["input_schema"]["properties"]) == {"query", "limit"}
        assert "OR" in by_words.description
        assert "OR" not in tool.description


@pytest.mark.parametrize("mode", ["words", "meaning", "hybrid"])
def test_every_mode_stays_behind_its_wall(mode: Any) -> None:
    with modal() as store:
        anns = store.search_tool(user_id="ann", mode=mode)
        assert "4711" in anns("code")
        assert "1234" in anns("code")
        assert "9999" not in anns.run({"query": "code", "user_id": "ben", "conversation_id": "c3"})
        bens = store.user("ben").search_tool(mode=mode)
        assert "9999" in bens("code")
        assert "4711" not in bens("code")
        assert "4711" not in store.user("ben").search_tool("c1", mode=mode)("code")


def test_a_mode_that_cannot_be() -> None:
    with hansard.sync.connect("memory://") as store:
        assert store.search_tool("c1").mode == "words"
        with pytest.raises(hansard.Unsupported, match="embedder"):
            store.search_tool("c1", mode="hybrid")
        with pytest.raises(hansard.ValidationError, match="mode"):
            store.search_tool("c1", mode="guess")  # type: ignore[arg-type]


def test_async() -> None:
    async def run() -> None:
        async with hansard.connect("memory://") as store:
            await store.append_message("c1", "user", "The code is 4711")
            tool = store.search_tool("c1")
            assert "4711" in await tool(query="code", limit=1)
            assert "4711" in await tool.run('{"query": "code"}')

    asyncio.run(run())
