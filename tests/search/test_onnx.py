"""The embedder that runs ONNX models, with a real one."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from tests.search import models

import hansard
from hansard import Message
from hansard.errors import Corrupt, NotFound, Unsupported, ValidationError
from hansard.search import Onnx, vectors

TALK = ["My automobile broke down.", "The physician was kind.", "We baked a chocolate cake."]


@pytest.fixture(scope="module")
def bge() -> Onnx:
    return models.installed("bge-small-en")


def similarity(embedder: Onnx, query: str, passage: str) -> float:
    (asked,), (said,) = asyncio.run(embedder([query], "query")), asyncio.run(embedder([passage], "passage"))
    size = embedder.dimensions
    return sum(a * b for a, b in zip(vectors.unit(asked, size), vectors.unit(said, size), strict=True))


def test_it_knows_meaning(bge: Onnx) -> None:
    assert (bge.name, bge.dimensions) == ("bge-small-en-v1.5", 384)
    assert similarity(bge, "Is the car in order?", TALK[0]) > similarity(bge, "Is the car in order?", TALK[1]) + 0.1

    async def play() -> None:
        async with hansard.connect("memory://", embedder=bge) as store:
            await store.append("c", [Message("user", text) for text in TALK])
            await store.embed()
            for query, at in (("What is wrong with the car?", 0), ("Who was the doctor?", 1), ("dessert", 2)):
                hits = await store.search(query, mode="meaning")
                assert hits[0].message.text == TALK[at], query

    asyncio.run(play())


def test_a_text_has_one_vector(bge: Onnx) -> None:
    alone = asyncio.run(bge([TALK[0]], "passage"))
    assert asyncio.run(bge([*TALK, TALK[1] * 500], "passage"))[0] == alone[0], "whatever is embedded with it"
    assert asyncio.run(bge([TALK[0]], "query"))[0] != alone[0], "a query has a prefix"
    odd = asyncio.run(bge(["", "\ud800", "\0", "東京タワー" * 2000], "passage"))
    assert {len(each) for each in odd} == {384}


def test_a_version_names_all_that_a_vector_depends_on(bge: Onnx, tmp_path: Path) -> None:
    folder = models.place("bge-small-en")
    assert Onnx(folder).version == bge.version
    assert Onnx(folder, pooling="mean").version != bge.version
    assert Onnx(folder, query_prefix="").version != bge.version
    assert Onnx(folder, name="mine").name == "mine"
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(folder / name, tmp_path / name)
    assert Onnx(tmp_path).version == bge.version, "a known model needs no settings"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder or jar"):
        Onnx(tmp_path / "none")
    with pytest.raises(ValidationError, match=r"no model\.onnx"):
        Onnx(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"odd")
    with pytest.raises(ValidationError, match=r"no tokenizer\.json"):
        Onnx(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"odd")
    with pytest.raises(Corrupt, match="cannot be loaded"):
        Onnx(tmp_path)
    (tmp_path / "odd.jar").write_bytes(b"odd")
    with pytest.raises(Corrupt, match="not a zip file"):
        Onnx(tmp_path / "odd.jar")
    with pytest.raises(ValidationError, match="'cls' or 'mean'"):
        Onnx(tmp_path, pooling="max")  # type: ignore[arg-type]


def test_missing_packages_are_named(bge: Onnx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unsupported, match=r"hansard\[onnx\]"):
        Onnx(models.place("bge-small-en"))
