"""The harness that measures retrieval: what it reads, what it counts, and what the shipped set must reach."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.retrieval import command, judged, judgements, recall
from benchmarks.retrieval.judgements import JudgedSet, Question, Said
from benchmarks.retrieval.long_messages import SHAPES, Shape
from benchmarks.retrieval.recall import Outcome
from tests.search import models
from tests.search.labelled import MESSAGES, QUESTIONS, answers

from hansard.analysis import formula, relevance
from hansard.search import Embedder, Spelling, WordLlama


def test_the_shipped_set_is_whole() -> None:
    assert len(set(judged.SETS) - {"code", "ids", "typing errors"}) == 10
    own = judgements.own()
    ids = {said.id for conversation in own.conversations.values() for said in conversation}
    assert len(ids) == own.messages
    for question in own.questions:
        assert question.evidence
        assert question.evidence <= ids, question


LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "Mine too."}],
            "session_2_date_time": "1 May",
            "session_1": [{"speaker": "Ann", "dia_id": "D1:1", "text": "My dog!", "blip_caption": "a dog"}],
            "session_3": [],
        },
        "qa": [
            {"question": "Who has a dog?", "evidence": ["D1:1; D2:1"], "category": 1},
            {"question": "Who has none?", "evidence": [], "category": 5},
        ],
    }
]


def test_it_reads_locomo(tmp_path: Path) -> None:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(LOCOMO), "utf-8")
    found = judgements.locomo(path)
    assert found.conversations == {
        ("conv-1", "conv-1-session_1"): [Said("conv-1/D1:1", "user", "Ann: My dog! [shares a dog]")],
        ("conv-1", "conv-1-session_2"): [Said("conv-1/D2:1", "user", "Ben: Mine too.")],
    }
    evidence = frozenset({"conv-1/D1:1", "conv-1/D2:1"})
    assert found.questions == [Question("conv-1", "Who has a dog?", evidence, "1")]


def test_it_reads_beam(tmp_path: Path) -> None:
    chat = tmp_path / "100K" / "7"
    (chat / "probing_questions").mkdir(parents=True)
    turns = [
        [{"id": 3, "role": "user", "content": "My code is cobalt."}, {"id": 4, "role": "assistant", "content": "So."}]
    ]
    (chat / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": turns}]), "utf-8")
    asked = {
        "information_extraction": [{"question": "What is my code?", "source_chat_ids": {"first": [3]}}],
        "abstention": [{"question": "What is my name?", "source_chat_ids": [4]}],
        "summarization": [{"question": "What happened?"}],
    }
    (chat / "probing_questions" / "probing_questions.json").write_text(json.dumps(asked), "utf-8")
    found = judgements.beam(tmp_path / "100K")
    assert [said.id for said in found.conversations["7", "7"]] == ["7/3/0", "7/4/1"]
    assert found.questions == [Question("7", "What is my code?", frozenset({"7/3/0"}), "information_extraction")]


def test_it_counts() -> None:
    said = [Said(f"m{at}", "user", text) for at, text in enumerate(["red apple", "green apple", "blue sky"])]
    small = JudgedSet("small", {("ann", "c"): said, ("ben", "d"): [Said("other", "user", "apple")]})
    small.questions = [
        Question("ann", "apple", frozenset({"m0", "m1", "m2"}), "fruit"),
        Question("ann", "sky", frozenset({"m2"}), "air"),
    ]
    (words,) = asyncio.run(recall.measure(small, "memory://", None, ["words"], {"match": "any"}))
    assert words.recall[5] == pytest.approx((2 / 3 + 1) / 2 * 100, abs=0.1)
    assert (words.whole[50], words.by_kind["air"], words.incomplete) == (50.0, 100.0, 0)


def test_it_reports_its_steps() -> None:
    conversations = {("ann", id): [Said(f"{id}{at}", "user", "apple") for at in range(2)] for id in "cd"}
    small = JudgedSet("small", conversations, [Question("ann", "apple", frozenset({"c0"}), "fruit")])
    steps: list[str] = []
    asyncio.run(recall.measure(small, "memory://", Spelling(), ["words", "hybrid"], {}, steps.append))
    assert steps == [
        "2 of 4 messages embedded",
        "4 of 4 messages embedded",
        "asking 1 questions by words",
        "asking 1 questions by hybrid",
    ]


def test_the_command_says_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, result = tmp_path / "locomo.json", tmp_path / "result.json"
    path.write_text(json.dumps(LOCOMO), "utf-8")
    monkeypatch.setattr(command, "SHAPES", SHAPES[-1:])
    assert command.main(["--locomo", str(path), "--json", str(result), "--kinds"]) == 0
    printed, steps = capsys.readouterr()
    assert "LoCoMo (locomo.json): asking 1 questions by words\n" in steps
    for part in ("LoCoMo (locomo.json): 1 questions over 2 messages", "unit: one message", "pool: all", "--locomo"):
        assert part in printed, part
    assert [each["set"] for each in json.loads(result.read_text("utf-8"))["sets"]][-1] == "LoCoMo (locomo.json)"
    assert command.main(["--locomo", str(tmp_path / "none")]) == 1
    assert command.main(["--embedder", "none"]) == 1
    assert "FileNotFoundError" in (complaint := capsys.readouterr().err)
    assert "--embedder is 'none'" in complaint


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_neighbours_do_no_harm_among_long_messages(
    shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the evidence is: in what the user said, or in the answers."""
    long = judgements.long(shape, users=2)
    assert sum(len(said.text.split()) for each in long.conversations.values() for said in each) / long.messages > 100

    def measured(name: str) -> Outcome:
        url = f"sqlite:///{tmp_path}/{name}.db?durability=normal"
        (words,) = asyncio.run(recall.measure(long, url, None, ["words"], {"match": "auto"}))
        assert words.incomplete == 0
        return words

    together = measured("together")
    monkeypatch.setattr(formula, "SIDES", ())
    monkeypatch.setattr(relevance, "SIDES", ())
    monkeypatch.setattr(formula, "_AROUND", 0.0)  # so that their length does not count, either
    alone = measured("alone")
    for depth in (10, 25, 40, 50):
        assert together.recall[depth] >= alone.recall[depth] - 0.5, (depth, together, alone)
    for role in ("user", "assistant"):
        assert together.by_kind[role] >= alone.by_kind[role] - 0.5, (role, together, alone)


def labelled() -> JudgedSet:
    """The English questions of tests/search/labelled.py, every message in a conversation of its own."""
    made = JudgedSet("labelled")
    ids = {text: f"m{at}" for at, text in enumerate(MESSAGES)}
    made.conversations = {("ann", id): [Said(id, "user", text)] for text, id in ids.items()}
    made.questions = [Question("ann", each, frozenset(ids[one] for one in answers(each)), "") for each in QUESTIONS]
    return made


def outcomes(which: JudgedSet, embedder: Embedder) -> dict[str, Any]:
    options = {"match": "any"}
    found = asyncio.run(recall.measure(which, "memory://", embedder, ["words", "meaning", "hybrid"], options))
    return {each.mode: each.recall for each in found}


def test_both_are_never_worse_than_the_better_half() -> None:
    assert_both_are_best(outcomes(judgements.own(), models.installed("bge-small-en")))


def test_nor_with_other_embedders() -> None:
    assert_both_are_best(outcomes(judgements.own(), Spelling()))


@pytest.mark.skipif(os.environ.get("HANSARD_CONTRACT") != "all", reason="takes minutes: `make soak` runs it")
def test_nor_on_a_larger_set() -> None:
    pytest.importorskip("wordllama", reason="wordllama is not installed: it has no wheel for this Python")
    assert_both_are_best(outcomes(labelled(), WordLlama()))


@pytest.mark.skipif(os.environ.get("HANSARD_CONTRACT") != "all", reason="takes minutes: `make soak` runs it")
@pytest.mark.timeout(1800)  # it embeds 200,000 tokens
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_nor_among_long_messages(shape: Shape) -> None:
    assert_both_are_best(outcomes(judgements.long(shape), models.installed("bge-small-en")))


def assert_both_are_best(found: dict[str, Any]) -> None:
    for depth in (10, 25, 40, 50):
        assert found["hybrid"][depth] >= max(found["words"][depth], found["meaning"][depth]) - 0.5, (depth, found)
