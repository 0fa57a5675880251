"""LangGraph's long-term store on records, beside the framework's own where it says what is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from tests.contract.backends import BACKENDS, quick_folder

from hansard import Store, ValidationError, sync
from hansard.adapters.langgraph.store import matches
from hansard.testing import Clock

pytestmark = pytest.mark.anyio

VALUE = {"text": "é\x00", "n": 1, "number": "7", "deep": {"a": [1, None, {"b": 2}]}}


class Letters(Embeddings):
    """How often each letter occurs: near for texts of the same letters."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.lower().count(letter)) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


@pytest.fixture(params=["memory", "sqlite"])
def blocking(request: pytest.FixtureRequest) -> Iterator[sync.Store]:
    with quick_folder() as folder, sync.connect(str(BACKENDS[request.param](folder).where)) as opened:
        yield opened


async def test_put_get_delete(store: Store) -> None:
    items = store.langgraph_store
    assert await items.aget(("a",), "k") is None
    await items.aput(("a", "b"), "k", VALUE)
    first = await items.aget(("a", "b"), "k")
    assert first is not None
    assert (first.value, first.namespace, first.key) == (VALUE, ("a", "b"), "k")
    await items.aput(("a", "b"), "k", {"other": True})
    second = await items.aget(("a", "b"), "k")
    assert second is not None
    assert (second.value, second.created_at) == ({"other": True}, first.created_at)
    assert second.updated_at >= first.updated_at
    await items.adelete(("a", "b"), "k")
    await items.adelete(("a", "b"), "k")
    assert await items.aget(("a", "b"), "k") is None


async def test_putting_nothing_deletes(store: Store) -> None:
    for items in (InMemoryStore(), store.langgraph_store):
        await items.aput(("a",), "k", VALUE)
        await items.aput(("a",), "k", None)  # type: ignore[arg-type]  # LangGraph's stores take it, their types do not
        await items.aput(("a",), "never there", None)  # type: ignore[arg-type]
        assert await items.asearch(()) == []


async def test_a_key_is_made_a_text(store: Store) -> None:
    for items in (InMemoryStore(), store.langgraph_store):
        await items.aput(("a",), 7, VALUE)  # type: ignore[arg-type]
        for key in (7, "7"):
            found = await items.aget(("a",), key)  # type: ignore[arg-type]
            assert found is not None
            assert (found.key, found.value) == ("7", VALUE)
        await items.adelete(("a",), 7)  # type: ignore[arg-type]
        assert await items.aget(("a",), "7") is None


BAD_LABELS: list[Any] = [("a", ""), ("",), (1,), ("foo", 1), ("a", None), ("a\x00b",)]
BAD_PLACES: list[Any] = [*BAD_LABELS, (), ("langgraph",), ("langgraph", "x")]


def calls_with(namespace: Any) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Every call of a store that takes a namespace."""
    if namespace and namespace[0] != "langgraph":
        condition = (MatchCondition("prefix", namespace),)
        ops = [GetOp(namespace, "k"), PutOp(namespace, "k", {}), SearchOp(namespace), ListNamespacesOp(condition)]
        yield from (("batch", ([PutOp(("kept",), "k", {}), op],), {}) for op in ops)
        yield "get", (namespace, "k"), {}
        yield "delete", (namespace, "k"), {}
        yield "search", (namespace,), {}
        yield "list_namespaces", (), {"prefix": namespace}
        yield "list_namespaces", (), {"suffix": namespace}
    yield "put", (namespace, "k", {}), {}
    yield "put", (namespace, "k", None), {}


@pytest.mark.parametrize("namespace", BAD_PLACES, ids=repr)
async def test_a_wrong_namespace_is_refused_as_in_the_framework(store: Store, namespace: Any) -> None:
    ours, theirs = store.langgraph_store, InMemoryStore()
    for name, given, options in calls_with(namespace):
        with pytest.raises(InvalidNamespaceError) as refused:
            await getattr(ours, f"a{name}")(*given, **options)
        assert isinstance(refused.value, ValidationError)
        if name != "batch":
            with pytest.raises(InvalidNamespaceError):
                await getattr(theirs, f"a{name}")(*given, **options)
    assert await ours.asearch(()) == [], "nothing of a batch is written"


@pytest.mark.parametrize("namespace", BAD_PLACES, ids=repr)
def test_a_wrong_namespace_is_refused_in_blocking_calls_too(blocking: sync.Store, namespace: Any) -> None:
    items = blocking.langgraph_store
    for name, given, options in calls_with(namespace):
        with pytest.raises(InvalidNamespaceError):
            getattr(items, name)(*given, **options)
    assert items.list_namespaces() == []


async def test_an_empty_prefix_and_wildcards_are_no_wrong_namespaces(store: Store) -> None:
    items = store.langgraph_store
    await items.aput(("a", "langgraph"), "k", {})
    with pytest.raises(InvalidNamespaceError, match="empty"):
        await items.abatch([PutOp((), "k", {})])
    assert len(await items.asearch(())) == 1
    assert await items.alist_namespaces(prefix=("*", "langgraph"), suffix=()) == [("a", "langgraph")]
    assert await items.asearch(("langgraph",)) == []


async def test_labels_are_whole_and_may_be_addresses(store: Store) -> None:
    items = store.langgraph_store
    for label in ("ann@example.com", "ann@example.com.evil", "a%", "ab"):
        await items.aput((label,), "/notes.txt", {"of": label})
    assert [item.value["of"] for item in await items.asearch(("ann@example.com",))] == ["ann@example.com"]
    assert await items.asearch(("a",)) == []
    assert len(await items.asearch(())) == 4


async def test_a_batch_reads_before_it_writes(store: Store) -> None:
    items = store.langgraph_store
    await items.aput(("a",), "k", {"n": 1})
    done = await items.abatch(
        [
            PutOp(("a",), "k", {"n": 2}),
            GetOp(("a",), "k"),
            PutOp(("a",), "k", {"n": 3}),
            SearchOp(("a",)),
            ListNamespacesOp(),
        ]
    )
    assert done[0] is None
    assert done[1].value == {"n": 1}  # type: ignore[union-attr]
    assert [item.value for item in done[3]] == [{"n": 1}]  # type: ignore[union-attr]
    assert done[4] == [("a",)]
    last = await items.aget(("a",), "k")
    assert last is not None
    assert last.value == {"n": 3}


async def test_pages_are_stable(store: Store) -> None:
    items = store.langgraph_store
    for number in range(25):
        await items.aput(("files", str(number % 3)), f"/{number:02}", {"n": number})
    seen: list[str] = []
    while page := await items.asearch(("files",), limit=10, offset=len(seen)):
        seen += [item.key for item in page]
    assert sorted(seen) == [f"/{number:02}" for number in range(25)]


FILTERS: list[Any] = [
    {"n": 1},
    {"n": {"$gt": 0, "$lte": 1}},
    {"n": {"$ne": 1}},
    {"deep": {"a": [1, None, {"b": 2}]}},
    {"deep": {"a": [1]}},
    {"text": {"$eq": "é\x00"}},
    {"missing": None},
    {"n": {"$gte": 2}},
    {"n": {"$lt": 2}},
    {"number": {"$gt": "6", "$lt": 8.0}},
]


@pytest.mark.parametrize("filter", FILTERS)
async def test_filters_are_those_of_the_framework(store: Store, filter: dict[str, Any]) -> None:
    theirs = InMemoryStore()
    for items in (theirs, store.langgraph_store):
        await items.aput(("a",), "k", VALUE)
    assert len(await store.langgraph_store.asearch(("a",), filter=filter)) == len(theirs.search(("a",), filter=filter))


def test_odd_filters() -> None:
    assert not matches({"n": None}, {"n": {"$gt": 1}})
    assert not matches({"n": "x"}, {"n": {"a": 1}})
    with pytest.raises(ValidationError, match=r"\$where"):
        matches({"n": 1}, {"n": {"$where": "1"}})
    with pytest.raises(ValidationError, match="compares numbers"):
        matches({"n": 1}, {"n": {"$gt": "yesterday"}})
    assert not matches({"n": "x"}, {"n": {"$gt": 1}})


async def test_namespaces(store: Store) -> None:
    ours, theirs = store.langgraph_store, InMemoryStore()
    for items in (ours, theirs):
        for namespace in (("a", "b", "c"), ("a", "b", "d"), ("a", "x"), ("z",)):
            await items.aput(namespace, "k", {})
    for asked in (
        {},
        {"prefix": ("a",)},
        {"prefix": ("a", "*", "c")},
        {"suffix": ("d",)},
        {"max_depth": 2},
        {"limit": 2, "offset": 1},
    ):
        assert await ours.alist_namespaces(**asked) == theirs.list_namespaces(**asked)
    long = (MatchCondition("suffix", ("a", "b", "c", "d", "e")),)
    assert await ours.abatch([ListNamespacesOp(match_conditions=long)]) == [[]]


async def test_items_expire_and_reading_renews(store: Store) -> None:
    clock = Clock()
    timed = Store(store.backend, clock=clock)
    items = timed.langgraph_store
    items.ttl_config = {"default_ttl": 10}
    await items.aput(("a",), "short", {}, ttl=1)
    await items.aput(("a",), "default", {})
    await items.aput(("a",), "always", {}, ttl=None)
    before = await items.aget(("a",), "default", refresh_ttl=False)
    clock.advance(timedelta(minutes=2))
    assert {item.key for item in await items.asearch(("a",))} == {"default", "always"}
    clock.advance(timedelta(minutes=9))
    after = await items.aget(("a",), "default", refresh_ttl=False)
    assert before is not None
    assert after is not None, "the search renewed it"
    assert after.updated_at == before.updated_at, "which is no update"
    clock.advance(timedelta(minutes=2))
    assert [item.key for item in await items.asearch(("a",))] == ["always"]


async def test_items_are_found_by_meaning(store: Store) -> None:
    items = store.langgraph_store.indexed({"dims": 26, "embed": Letters(), "fields": ["text"]})
    for key, text in (("zoo", "zzz"), ("sea", "seals swim in seas"), ("none", "")):
        await items.aput(("a",), key, {"text": text}, index=False if key == "none" else None)
    found = await items.asearch(("a",), query="sea lions", limit=3)
    assert [item.key for item in found] == ["sea", "zoo", "none"]
    assert found[0].score is not None
    assert found[2].score is None
    await items.aput(("a",), "sea", {"text": "zzzz"})
    await items.adelete(("a",), "zoo")
    assert [item.key for item in await items.asearch(("a",), query="z")] == ["sea", "none"]
    plain = await store.langgraph_store.asearch(("a",), query="z")
    assert [item.score for item in plain] == [None, None], "without an index a query only lists"


def test_blocking(blocking: sync.Store) -> None:
    items = blocking.langgraph_store
    items.put(("a",), "k", VALUE)
    found = items.get(("a",), "k")
    assert found is not None
    assert found.value == VALUE
    assert [item.key for item in items.search(("a",))] == ["k"]
    assert items.list_namespaces() == [("a",)]
    indexed = items.indexed({"dims": 26, "embed": Letters()})
    indexed.put(("b",), "k", {"text": "sea"})
    assert indexed.search(("b",), query="sea")[0].score is not None
    items.put(("a",), "k", None)
    assert items.get(("a",), "k") is None
    items.put(("a",), 7, VALUE)  # type: ignore[arg-type]
    items.delete(("a",), 7)  # type: ignore[arg-type]
    assert items.get(("a",), "7") is None
    assert asyncio.run(items.aget(("b",), "k")) is not None


async def test_in_a_graph_and_behind_walls(store: Store) -> None:
    async def remember(state: MessagesState) -> dict[str, Any]:
        await get_store().aput(("memories",), "last", {"said": state["messages"][-1].content})
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("remember", remember)
    graph.add_edge(START, "remember")
    ann = store.user("ann")
    compiled: Any = graph.compile(checkpointer=ann.langgraph_checkpointer, store=ann.langgraph_store)
    await compiled.ainvoke({"messages": [("user", "Hi")]}, {"configurable": {"thread_id": "t"}})
    found = await ann.langgraph_store.aget(("memories",), "last")
    assert found is not None
    assert found.value == {"said": "Hi"}
    assert await store.user("ben").langgraph_store.aget(("memories",), "last") is None
    await store.erase_user("ann")
    assert await ann.langgraph_store.asearch(()) == []
