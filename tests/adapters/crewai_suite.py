"""CrewAI's memory and flows, with CrewAI itself. Run by `test_crewai` in an environment of its own."""

from __future__ import annotations

import asyncio
import enum
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crewai.flow import Flow, persist, start
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence import SQLiteFlowPersistence
from crewai.flow.persistence.base import _persistence_registry
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory
from pydantic import BaseModel
from tests.adapters import crewai_talk as talk
from tests.docs import pages

import hansard
from hansard import Message, Unsupported, ValidationError, sync

KINDS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": lambda folder: f"sqlite:///{folder}/store.db",
    "file": lambda folder: f"file://{folder}/store",
}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    with sync.connect(KINDS[request.param](tmp_path)) as opened:
        yield opened


def memory(id: str, scope: str = "/", vector: list[float] | None = None, **fields: Any) -> MemoryRecord:
    return MemoryRecord(id=id, content=f"content of {id}", scope=scope, embedding=vector or [1.0, 0.0], **fields)


# Memory


def test_it_is_a_storage(store: sync.Store) -> None:
    storage = store.crewai_memory_storage()
    assert isinstance(storage, StorageBackend)
    storage.save([])
    assert storage.search([1.0, 0.0]) == []
    assert storage.get_record("none") is None
    assert storage.count() == 0
    assert storage.get_scope_info("/").record_count == 0
    assert storage.delete(record_ids=["none"]) == 0


def test_the_nearest_come_first(store: sync.Store) -> None:
    storage = store.crewai_memory_storage()
    storage.save(
        [
            memory("same", "/a", [2.0, 0.0], categories=["x"], metadata={"n": 1}),
            memory("near", "/a/b", [1.0, 1.0], categories=["x", "y"]),
            memory("across", "/ab", [0.0, 1.0]),
            memory("away", "/a", [-1.0, 0.0]),
        ]
    )
    found = storage.search([1.0, 0.0])
    assert [record.id for record, _ in found] == ["same", "near", "across", "away"]
    assert [round(score, 3) for _, score in found] == [1.0, 0.707, 0.0, 0.0]
    assert [record.id for record, _ in storage.search([1.0, 0.0], min_score=0.5)] == ["same", "near"]
    assert [record.id for record, _ in storage.search([1.0, 0.0], limit=1)] == ["same"]
    assert {record.id for record, _ in storage.search([1.0, 0.0], "/a")} == {"same", "near", "away"}, "whole labels"
    assert [record.id for record, _ in storage.search([1.0, 0.0], categories=["y"])] == ["near"]
    assert [record.id for record, _ in storage.search([1.0, 0.0], metadata_filter={"n": 1})] == ["same"]
    assert asyncio.run(storage.asearch([1.0, 0.0], limit=1))[0][0].id == "same"
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.search([1.0, 0.0, 0.0])
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.save([memory("other", vector=[1.0])])
    assert storage.get_record("other") is None


def test_scopes_categories_lists(store: sync.Store) -> None:
    storage = store.crewai_memory_storage()
    begun = datetime.fromisoformat("2026-01-01")
    for number, (id, scope, names) in enumerate(
        [("1", "/", []), ("2", "/a", ["x"]), ("3", "/a/b", ["x", "y"]), ("4", "/c/d/e", ["y"])]
    ):
        storage.save([memory(id, scope, categories=names, created_at=begun + timedelta(days=number))])
    assert [record.id for record in storage.list_records()] == ["4", "3", "2", "1"]
    assert [record.id for record in storage.list_records(limit=2, offset=1)] == ["3", "2"]
    assert [record.id for record in storage.list_records("/a/")] == ["3", "2"]
    assert storage.list_scopes() == ["/a", "/c"]
    assert storage.list_scopes("/c") == ["/c/d"]
    assert storage.list_categories() == {"x": 2, "y": 2}
    assert (storage.count(), storage.count("/a"), storage.count("/none")) == (4, 2, 0)
    info = storage.get_scope_info("/a")
    assert (info.path, info.record_count, info.categories, info.child_scopes) == ("/a", 2, ["x", "y"], ["/a/b"])
    assert (info.oldest_record, info.newest_record) == (begun + timedelta(days=1), begun + timedelta(days=2))
    assert storage.delete(older_than=begun + timedelta(days=1)) == 1
    assert storage.delete(scope_prefix="/a", categories=["y"]) == 1
    assert storage.delete(record_ids=["2"], scope_prefix="/c") == 0
    assert asyncio.run(storage.adelete(record_ids=["2"])) == 1
    storage.reset("/none")
    assert storage.count() == 1
    storage.reset()
    assert storage.count() == 0
    storage.save([memory("new", vector=[1.0, 2.0, 3.0])])


def test_a_memory_comes_back_and_moves(store: sync.Store) -> None:
    storage = store.crewai_memory_storage()
    kept = memory("m", "/a", [3.0, 4.0], metadata={"deep": [None, {"é": 1}]}, importance=0.9, source="s", private=True)
    storage.save([kept])
    found = storage.get_record("m")
    assert found is not None
    assert found.model_dump() == kept.model_dump()
    storage.update(kept.model_copy(update={"scope": "/b", "content": "new", "embedding": None}))
    assert storage.count("/a") == 0
    (moved, score) = storage.search([3.0, 4.0], "/b")[0]
    assert (moved.content, round(score, 3)) == ("new", 1.0)
    storage.touch_records(["m", "none"])
    touched = storage.get_record("m")
    assert touched is not None
    assert touched.last_accessed > kept.last_accessed
    assert touched.created_at == kept.created_at


def test_a_memory_that_is_deleted_while_it_is_touched_stays_away(
    store: sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = store.crewai_memory_storage()
    storage.save([memory("m"), memory("n")])
    find, waiting = storage._by_id, ["m"]

    async def late(ids: Any) -> Any:
        found = await find(ids)
        while waiting:
            await storage.adelete(record_ids=[waiting.pop()])
        return found

    monkeypatch.setattr(storage, "_by_id", late)
    storage.touch_records(["m", "n"])
    assert [record.id for record in storage.list_records()] == ["n"]


def test_crewai_s_own_memory_on_it(store: sync.Store) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    mind = Memory(storage=store.crewai_memory_storage(), embedder=embed, llm="none")
    mind.remember("The cat is called Mews", scope="/home", categories=["pets"], importance=0.8)
    mind.remember("Zoom quizzes pay", scope="/work", categories=["work"], importance=0.5)
    mind.drain_writes()
    found = mind.recall("what is the cat called", depth="shallow", limit=1)
    assert [match.record.content for match in found] == ["The cat is called Mews"]
    mind.close()
    assert store.crewai_memory_storage().count("/home") == 1


def test_memories_of_a_user_go_with_the_user(store: sync.Store) -> None:
    store.user("ann").crewai_memory_storage().save([memory("hers")])
    store.crewai_memory_storage().save([memory("everybody's")])
    assert store.user("ann").crewai_memory_storage().count() == 1
    store.erase_user("ann")
    assert store.user("ann").crewai_memory_storage().count() == 0
    assert store.crewai_memory_storage().count() == 1


# Flows


class Order(BaseModel):
    id: str = ""
    count: int = 0
    tags: set[str] = set()


def test_a_flow_goes_on_where_it_was(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence(user_id="ann", agent_id="counter")

    @persist(persistence)
    class Counting(Flow[Order]):  # type: ignore[misc]
        @start()
        def more(self) -> int:
            self.state.count += 1
            self.state.tags.add("seen")
            return self.state.count

    first = Counting()
    assert first.kickoff() == 1
    assert Counting().kickoff(inputs={"id": first.state.id}) == 2
    assert persistence.load_state(first.state.id) == {"id": first.state.id, "count": 2, "tags": ["seen"]}
    assert persistence.load_state("none") is None
    conversation = store.get_conversation(first.state.id)
    assert conversation is not None
    assert (conversation.user_id, conversation.agent_id, conversation.message_count) == ("ann", "counter", 0)
    store.erase_user("ann")
    assert persistence.load_state(first.state.id) is None
    assert list(store.records.iter()) == []


def test_what_a_flow_says_is_the_history(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    talk.begin(persistence, "c")
    assert [(row.role, row.text) for row in store.get_messages("c")] == [
        ("user", talk.QUESTION),
        ("assistant", ""),
        ("tool", talk.RESULT),
        ("assistant", talk.ANSWER),
    ]
    store.append_message("c", "user", "From elsewhere")
    heard = talk.hear(persistence, "c")
    assert heard[3:] == [("assistant", talk.ANSWER), ("user", "From elsewhere"), ("user", "Sure?")]
    assert len(store.get_messages("c")) == 7
    assert len(store.list_branches("c")) == 1
    store.delete_conversation("c")
    assert persistence.load_state("c") is None
    assert list(store.records.iter()) == []


def test_what_others_say_meanwhile_stays(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    state: dict[str, Any] = {"id": "c", "messages": [{"role": "user", "content": "1"}], "n": 1}
    persistence.save_state("c", "m", state)
    store.append_message("c", "user", "unheard")
    state["messages"].append({"role": "assistant", "content": "2"})
    persistence.save_state("c", "m", state)
    assert [row.text for row in store.get_messages("c")] == ["1", "unheard", "2"]
    loaded = persistence.load_state("c")
    assert loaded is not None
    assert [message["content"] for message in loaded["messages"]] == ["1", "unheard", "2"]
    loaded["messages"].append({"role": "user", "content": "3"})
    persistence.save_state("c", "m", loaded)
    assert [row.text for row in store.get_messages("c")] == ["1", "unheard", "2", "3"]


CALLS = [{"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"} for at in (1, 2)]
RESULTS = [{"type": "function_call_output", "call_id": f"c{at}", "output": "it is"} for at in (1, 2)]


def others_say(store: sync.Store, *items: dict[str, str]) -> None:
    roles = {"function_call": "assistant", "function_call_output": "tool"}
    store.append("f", [Message(roles[item["type"]], item, format="openai.responses") for item in items])


def test_calls_that_others_made_at_once_are_each_answered(store: sync.Store) -> None:
    """Chat Completions refuses a call that the next message does not answer."""
    others_say(store, *CALLS, *RESULTS)
    state = store.crewai_flow_persistence().load_state("f")
    assert state is not None
    told = [(each["role"], each.get("tool_call_id") or each["tool_calls"][0]["id"]) for each in state["messages"]]
    assert told == [("assistant", "c1"), ("tool", "c1"), ("assistant", "c2"), ("tool", "c2")]


@pytest.mark.parametrize("heard", [0, 1])
def test_results_that_come_while_a_flow_runs_stay(store: sync.Store, heard: int) -> None:
    others_say(store, *CALLS, *RESULTS[:heard])
    persistence = store.crewai_flow_persistence()
    state = persistence.load_state("f")
    assert state is not None
    for text in ("1", "2"):
        state["messages"].append({"role": "user", "content": text})
        persistence.save_state("f", "m", state)
        if text == "1":
            others_say(store, *RESULTS[heard:])
    assert [row.role for row in store.get_messages("f")][-2:] == ["tool", "user"]
    assert len(store.get_messages("f")) == 6
    assert len(store.list_branches("f")) == 1


@pytest.mark.parametrize("kept", range(4))
@pytest.mark.parametrize("results", [RESULTS, RESULTS[::-1]], ids=["in order", "turned round"])
def test_a_history_that_is_cut_between_calls_made_at_once(
    store: sync.Store, results: list[dict[str, str]], kept: int
) -> None:
    others_say(store, *CALLS, *results)
    persistence = store.crewai_flow_persistence()
    state = persistence.load_state("f")
    assert state is not None
    persistence.save_state("f", "m", state)
    state["messages"] = [*state["messages"][:kept], {"role": "user", "content": "other"}]
    persistence.save_state("f", "m", state)
    assert persistence.load_state("f") == state
    assert len(store.get_messages("f", branch="main")) == 4, "what was there stays"


def test_what_a_state_repeats_goes_with_its_message(store: sync.Store) -> None:
    store.append_message("c", "user", "Begun elsewhere")
    persistence = store.crewai_flow_persistence(user_id="ann")
    messages = [{"role": "user", "content": "Begun elsewhere"}, {"role": "user", "content": "a secret"}]
    state = {"messages": messages, "last_user_message": "a secret", "mood": "calm"}
    persistence.save_state("c", "m", state)
    assert persistence.load_state("c") == state
    assert "a secret" not in repr(list(store.records.iter()))
    store.delete_message("c", store.get_messages("c")[-1].id)
    assert persistence.load_state("c") == {"messages": messages[:1], "last_user_message": "", "mood": "calm"}
    store.erase_user("ann")
    assert persistence.load_state("c") is None


def test_what_a_state_repeats_stays_when_others_take_another_branch(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    state = {"messages": [{"role": "user", "content": "herons"}], "topic": "herons"}
    persistence.save_state("c", "m", state)
    store.branch("c", empty=True)
    assert persistence.load_state("c") == {"messages": [], "topic": "herons"}


def test_a_history_that_is_cut_goes_on_in_a_branch(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    messages = [{"role": "user", "content": str(number)} for number in range(4)]
    persistence.save_state("c", "m", {"messages": messages})
    persistence.save_state("c", "m", {"messages": [*messages[:2], {"role": "user", "content": "other"}]})
    assert [row.text for row in store.get_messages("c")] == ["0", "1", "other"]
    assert [row.text for row in store.get_messages("c", branch="main")] == ["0", "1", "2", "3"]
    persistence.save_state("c", "m", {"messages": []})
    assert store.get_messages("c") == []
    persistence.save_state("c", "m", {"messages": "no list", "x": 1})
    assert persistence.load_state("c") == {"messages": "no list", "x": 1}


class Colour(enum.Enum):
    RED = "red"


class Inner(BaseModel):
    at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    lasts: timedelta = timedelta(seconds=90)


class Odd(BaseModel):
    """A model that pydantic cannot write as JSON."""

    at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    thing: Any = Colour


def values() -> dict[str, Any]:
    return {
        "id": "c",
        "aware": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "naive": datetime.fromisoformat("2026-01-01T12:00:00.5"),
        "day": date(2026, 1, 1),
        "lasts": timedelta(seconds=90),
        "colour": Colour.RED,
        "bytes": b"ab",
        "uuid": uuid.UUID(int=7),
        "price": Decimal("1.50"),
        "set": {1},
        "frozen": frozenset((1,)),
        "pair": (1, "b"),
        "model": Inner(),
        "odd": [Odd()],
        "path": Path("/a"),
        "keys": {1: "int", None: "none", False: "false"},
        "number": 1.5,
    }


@pytest.mark.parametrize("state", [values(), Inner(), Odd()], ids=["object", "model", "odd model"])
def test_a_state_comes_back_as_from_crewai_s_own_persistence(store: sync.Store, tmp_path: Path, state: Any) -> None:
    loaded, pending = [], []
    # CrewAI itself refuses a context with a model that pydantic cannot write.
    given = {name: value for name, value in values().items() if name != "odd"}
    context = PendingFeedbackContext(
        flow_id="c", flow_class="Chat", method_name="ask", method_output=given, message="?", metadata=given
    )
    for persistence in (SQLiteFlowPersistence(str(tmp_path / "flows.db")), store.crewai_flow_persistence()):
        persistence.save_state("c", "m", state)
        loaded.append(persistence.load_state("c"))
        persistence.save_pending_feedback("c", context, state)
        found = persistence.load_pending_feedback("c")
        assert found is not None
        pending.append((found[0], found[1].to_dict()))
    assert loaded[0] == loaded[1]
    assert pending[0] == pending[1]


def test_a_state_that_is_no_object_is_refused(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    for state in ([1], {(1, 2): "a pair as a key"}, circle):
        with pytest.raises(ValidationError, match="state of a flow"):
            persistence.save_state("c", "m", state)  # type: ignore[arg-type]
    assert persistence.load_state("c") is None
    assert store.get_conversation("c") is None


def test_feedback_that_is_waited_for(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence()
    context = PendingFeedbackContext(
        flow_id="c", flow_class="Chat", method_name="ask", method_output="a draft", message="Good?"
    )
    assert persistence.load_pending_feedback("c") is None
    persistence.save_pending_feedback("c", context, {"id": "c", "messages": [{"role": "user", "content": "Hi"}]})
    found = persistence.load_pending_feedback("c")
    assert found is not None
    assert found[0] == {"id": "c", "messages": [{"role": "user", "content": "Hi"}]}
    assert found[1].to_dict() == context.to_dict()
    persistence.clear_pending_feedback("c")
    assert persistence.load_pending_feedback("c") is None
    assert persistence.load_state("c") is not None


def test_a_copy_through_json_finds_its_store(store: sync.Store) -> None:
    persistence = store.crewai_flow_persistence(user_id="ann")
    persistence.save_state("c", "m", {"x": 1})
    fields = persistence.model_dump(mode="json")
    copy = _persistence_registry[fields["persistence_type"]](**fields)
    assert copy.load_state("c") == {"x": 1}
    with pytest.raises(Unsupported, match="crewai_flow_persistence"):
        type(persistence)(home="elsewhere").load_state("c")


async def _async_store(folder: Path) -> list[str]:
    async with hansard.connect(f"sqlite:///{folder}/async.db") as store:
        persistence, storage = store.crewai_flow_persistence(), store.crewai_memory_storage()
        await asyncio.to_thread(talk.begin, persistence, "c")
        await storage.asave([memory("m")])
        assert len(await storage.asearch([1.0, 0.0])) == 1
        return [row.text for row in await store.get_messages("c")]


def test_an_async_store_from_other_threads(tmp_path: Path) -> None:
    assert asyncio.run(_async_store(tmp_path))[-1] == talk.ANSWER


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    end = pages.Block("", "", 0)
    count = 0
    for block, following in pairwise([*pages.blocks(pages.DOCS / "howto" / "crewai.md"), end]):
        if block.language == "python":
            count += 1
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile(block.text, f"block {count} of crewai.md", "exec"), vars(module))
            if following.language == "text":
                lines = printed.getvalue().splitlines()
                assert following.text.strip() in lines
    assert count == 4
