"""Langfuse's traces, sessions, scores and tables; preference files, roles of old training files; Takeout's activity."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tests.importers import exports
from tests.importers.test_importers import as_json, imported, texts

from hansard import connect
from hansard.importers.report import ImportLoss
from hansard.model import Usage

ASKED = {"role": "user", "content": "What is a heron?"}
ANSWER = {"role": "assistant", "content": "A bird."}


def generation(id: str, trace: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "traceId": trace,
        "type": "GENERATION",
        "name": "chat",
        "startTime": "2026-01-02T03:04:05Z",
        "model": "gpt-5",
        "input": [ASKED],
        "output": ANSWER,
        "usageDetails": {"input": 9, "output": 3, "input_cached_tokens": 4},
        "costDetails": {"total": 0.25},
    } | more


async def test_a_session_keeps_its_traces_scores_and_notes(tmp_path: Path) -> None:
    score = {"id": "s1", "traceId": "t1", "observationId": "o1", "name": "helpful", "value": 1, "dataType": "NUMERIC"}
    lost = {"id": "s2", "traceId": "t1", "observationId": "span", "name": "odd", "value": 0, "dataType": "NUMERIC"}
    first = {
        "id": "t1",
        "name": "Herons",
        "timestamp": "2026-01-02T03:04:00Z",
        "tags": ["birds"],
        "input": "x",
        "output": "y",
        "observations": [generation("o1", "t1", level="ERROR", statusMessage="slow"), {"id": "e", "type": "EVENT"}],
        "scores": [score, lost],
        "htmlPath": "/p",
    }
    second = {"id": "t2", "timestamp": "2026-01-02T03:05:00Z", "input": "And where?", "output": "In trees."}
    path = as_json({"id": "session-1", "traces": [first, second]}, "session.json")(tmp_path)
    async with connect("memory://") as store:
        report = await imported(store, path)
        branches = [await texts(store, "session-1", each.id) for each in await store.list_branches("session-1")]
        found = await store.get_conversation("session-1")
        (other,) = [each for each in await store.list_branches("session-1") if not each.active]
        (answer,) = await store.get_messages("session-1", branch=other.id, last=1)
    assert sorted(branch[-1][1] for branch in branches) == ["A bird.", "In trees."]
    assert answer.usage == Usage(9, 3, 4, cost=0.25, model="gpt-5")
    assert answer.metadata == {
        "name": "chat",
        "status": "slow",
        "level": "ERROR",
        "scores": [{"name": "helpful", "value": 1}],
    }
    assert found is not None
    assert (found.title, found.metadata["tags"]) == ("Herons", ["birds"])
    assert report.losses == {
        "observation of the type 'EVENT'": ImportLoss(1, "session.json, record 1: "),
        "score of something that is no answer": ImportLoss(1, "span: odd"),
    }


async def test_a_table_of_langfuse_is_read_as_its_json(tmp_path: Path) -> None:
    row = {name: value if isinstance(value, str) else json.dumps(value) for name, value in generation("o", "t").items()}
    text = io.StringIO()
    table = csv.DictWriter(text, [*row, "sessionId", "endTime"])
    table.writeheader()
    table.writerow(row | {"sessionId": "s"})
    (tmp_path / "observations.csv").write_text(text.getvalue(), "utf-8")
    async with connect("memory://") as store:
        report = await imported(store, tmp_path / "observations.csv")
        assert (report.source, report.problems) == ("langfuse", [])
        assert await texts(store, "s") == [("user", "What is a heron?"), ("assistant", "A bird.")]
        answer = (await store.get_messages("s"))[1]
    assert answer.usage == Usage(9, 3, 4, cost=0.25, model="gpt-5")


async def test_preference_pairs_come_back_as_rated_branches(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    worse = {"role": "assistant", "content": "A fish."}
    other = {"role": "assistant", "content": "A stone."}
    pairs = [
        {"input": {"messages": [ASKED], "tools": tools}, "preferred_output": [ANSWER], "non_preferred_output": [each]}
        for each in (worse, other)
    ]
    async with connect("memory://") as store:
        report = await imported(store, exports.jsonl(tmp_path / "pairs.jsonl", pairs))
        assert (report.problems, report.new, report.messages, report.branches) == ([], 1, 4, 2)
        (found,) = (await store.list_conversations()).items
        assert (await texts(store, found.id))[-1] == ("assistant", "A bird.")
        written = b"".join([piece async for piece in store.export(format="preference")])
    again = [json.loads(line) for line in written.splitlines()]
    assert [each for each in again if each["preferred_output"] == [ANSWER]] == pairs


async def test_old_names_of_roles_and_numbers_as_ids_are_understood(tmp_path: Path) -> None:
    said = [ASKED, {"role": "function", "name": "look", "content": "A bird"}]
    exports.jsonl(tmp_path / "train.jsonl", [{"id": 7, "messages": said}])
    turns = [{"from": "human", "value": "Hello"}, {"from": "critic", "value": None}]
    exports.jsonl(tmp_path / "shared.jsonl", [{"id": "s", "conversations": turns}])
    async with connect("memory://") as store:
        for name in ("train", "shared"):
            assert (await imported(store, tmp_path / f"{name}.jsonl")).problems == []
        assert [role for role, _ in await texts(store, "7")] == ["user", "tool"]
        assert [(each.role, each.metadata) for each in await store.get_messages("s")] == [
            ("user", None),
            ("assistant", {"from": "critic"}),
        ]


async def test_a_role_that_no_store_has_is_kept_with_its_row(tmp_path: Path) -> None:
    path = exports.jsonl(tmp_path / "rows.jsonl", [{"session": "s", "role": "moderator", "content": "Order!"}])
    async with connect("memory://") as store:
        assert (await imported(store, path)).problems == []
        (message,) = await store.get_messages("s")
        assert (message.role, message.metadata) == ("user", {"role": "moderator"})


async def test_activity_that_is_no_prompt_is_reported_and_files_come_along(tmp_path: Path) -> None:
    about = {"header": "Gemini Apps", "time": "2026-01-02T03:04:05Z"}
    records = [
        about | {"title": "Prompted What is it?", "attachedFiles": ["heron-1.png", "b.pdf"]},
        about | {"title": "Used Gemini Apps"},
        about | {"title": ""},
    ]
    (tmp_path / "MyActivity.json").write_text(json.dumps(records), "utf-8")
    (tmp_path / "heron-1.png").write_bytes(exports.PNG)
    async with connect("memory://") as store:
        report = await imported(store, tmp_path)
        (found,) = (await store.list_conversations()).items
        (asked,) = await store.get_messages(found.id)
    assert (asked.text, asked.content[1]["media_type"]) == ("What is it?", "image/png")
    assert {what: loss.count for what, loss in report.losses.items()} == {
        "activity that is no prompt": 2,
        "file that Takeout only names": 1,
        "answer that Takeout leaves out": 1,
    }
