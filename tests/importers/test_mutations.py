"""Files of every format, damaged at random: each is reported with its place, and never a crash or an endless loop."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports
from tests.importers.test_importers import FILES, texts

from hansard import connect
from hansard.errors import ValidationError
from hansard.importers import ImportReport, importer_named, load, open_source

ROUNDS = int(os.environ.get("HANSARD_MUTATIONS", "5"))
ODD: list[Any] = [
    None,
    "",
    "x",
    0,
    -1,
    10**30,
    10**400,
    1e300,
    True,
    [],
    {},
    [None],
    [[]],
    {"": None},
    "\x00",
    "é" * 300,
    [{}],
    7.5,
]


def deep(levels: int) -> Any:
    value: Any = "deep"
    for level in range(levels):
        value = [value] if level % 2 else {"children" if level % 4 else "content": value}
    return value


def mutated(value: Any, rng: random.Random) -> Any:
    """A JSON value with one change somewhere in it."""
    places = list(_places(value))
    if not places:
        return deepcopy(rng.choice(ODD))
    holder, key = rng.choice(places)
    change = rng.randrange(5)
    if change == 0:
        del holder[key]
    elif change == 1:
        holder[key] = deepcopy(rng.choice(ODD))
    elif change == 2:
        holder[key] = deep(rng.choice([3, 40, 300]))
    elif change == 3:
        # The same value in another place: repeated ids, cycles, results without their calls.
        other, name = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[name]))
    elif isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(holder[key])))
    else:
        holder[f"{key}2"] = holder[key]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        found = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for key, inside in list(found):
            yield each, key
            waiting.append(inside)


def _in_json(data: bytes | str, rng: random.Random) -> bytes:
    value = json.loads(data)
    for _ in range(rng.randrange(1, 4)):
        value = mutated(value, rng)
    return json.dumps(value).encode()


def _in_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = _in_json(lines[at], rng)
    return b"\n".join([*lines, b""])


def _in_zip(path: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(path) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    name = rng.choice([name for name in files if name.endswith(".json")])
    files[name] = _in_json(files[name], rng)
    with zipfile.ZipFile(path, "w") as packed:
        for each, data in files.items():
            packed.writestr(each, data)


def _in_database(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        column = rng.choice(columns)
        rows = database.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall()
        if rows:
            id, value = rng.choice(rows)
            try:
                odd: Any = _in_json(value, rng).decode() if isinstance(value, str) else None
            except ValueError:
                odd = None
            odd = odd if odd is not None else rng.choice([None, "", "x", b"\xff\x00", -1, 1e300, 2**62])
            try:
                database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (odd, id))
            except sqlite3.IntegrityError:
                database.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (id,))
        database.commit()


def damaged_files(folder: Path, kind: str) -> Iterator[tuple[int, Path]]:
    """Files of a kind, each damaged in another way, with the numbers that reproduce them."""
    for seed in range(ROUNDS):
        (folder / str(seed)).mkdir()
        path = FILES[kind][1](folder / str(seed))
        _damage(path, random.Random(f"{kind} {seed}"))
        yield seed, path


def _damage(path: Path, rng: random.Random) -> None:
    if path.is_dir():
        path = rng.choice(sorted(each for each in path.rglob("*") if each.is_file()))
    if path.suffix == ".zip":
        _in_zip(path, rng)
    elif path.suffix == ".db":
        _in_database(path, rng)
    elif path.suffix == ".json":
        path.write_bytes(_in_json(path.read_bytes(), rng))
    elif path.suffix == ".jsonl":
        path.write_bytes(_in_lines(path.read_bytes(), rng))
    else:
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))


@pytest.mark.parametrize("kind", FILES)
async def test_a_damaged_file_never_crashes_an_import(tmp_path: Path, kind: str) -> None:
    name = FILES[kind][0]
    for seed, path in damaged_files(tmp_path, kind):
        report, again = ImportReport(name), ImportReport(name)
        async with connect("memory://") as store:
            for each in (report, again):
                source = open_source(path)
                try:
                    await load(store, importer_named(name).read(source, each), each)
                except ValidationError:
                    pass  # the file as a whole
                except Exception as error:
                    raise AssertionError(f"{kind}, seed {seed}") from error
                finally:
                    source.close()
            stored = [each.message_count async for each in store.iter_conversations(archived=None)]
            assert sum(stored) == report.messages, f"{kind}, seed {seed}"
            assert again.messages == 0, f"{kind}, seed {seed}: a second import finds what is stored"


@pytest.mark.parametrize("field", ["mapping", "title", "create_time", "current_node"])
async def test_a_damaged_conversation_costs_no_other(tmp_path: Path, field: str) -> None:
    make: Callable[[], dict[str, Any]] = exports.chatgpt_conversation
    for odd in ODD:
        path = tmp_path / "conversations.json"
        path.write_text(json.dumps([make() | {"id": "odd", "conversation_id": "odd", field: odd}, make()]), "utf-8")
        async with connect("memory://") as store:
            report = ImportReport("chatgpt")
            source = open_source(path)
            await load(store, importer_named("chatgpt").read(source, report), report)
            assert (await texts(store, "chat-1"))[-1] == ("assistant", "It stands and strikes.")


@pytest.mark.parametrize("odd", [[], {}, [{}]])
@pytest.mark.parametrize("kind", ["a file of ChatGPT", "Claude Code", "Claude.ai", "Codex", "LibreChat"])
async def test_a_kind_that_is_no_text_never_crashes_an_import(tmp_path: Path, kind: str, odd: Any) -> None:
    name, make, *_ = FILES[kind]
    path = make(tmp_path)
    is_lines = path.suffix == ".jsonl"
    given = [json.loads(line) for line in path.read_bytes().splitlines()] if is_lines else json.loads(path.read_bytes())
    places = [at for at, (_, key) in enumerate(_places(given)) if key in ("type", "content_type")]
    for at in places:
        damaged = deepcopy(given)
        holder, key = list(_places(damaged))[at]
        holder[key] = odd
        path.write_text("".join(f"{json.dumps(each)}\n" for each in damaged) if is_lines else json.dumps(damaged))
        async with connect("memory://") as store:
            report = ImportReport(name)
            await load(store, importer_named(name).read(open_source(path), report), report)
            assert report.conversations or report.problems


WITH_NUMBERS = [
    *("a file of ChatGPT", "Open WebUI", "Claude Code", "Codex", "opencode export", "opencode storage", "Langfuse"),
    *("ModernPath", "Makers", "TPipe"),
]
"""Kinds whose files are JSON and have numbers."""


@pytest.mark.parametrize("kind", WITH_NUMBERS)
async def test_a_number_beyond_all_bounds_never_crashes_an_import(tmp_path: Path, kind: str) -> None:
    name, make, *_ = FILES[kind]
    made = make(tmp_path)
    tried = 0
    for path in sorted(tmp_path.rglob("*.json*")):
        original = path.read_bytes()
        lines = path.suffix == ".jsonl"
        given = [json.loads(line) for line in original.splitlines()] if lines else json.loads(original)
        numbers = [at for at, (holder, key) in enumerate(_places(given)) if type(holder[key]) in (int, float)]
        for at in numbers:
            damaged = deepcopy(given)
            holder, key = list(_places(damaged))[at]
            holder[key] = 10**400
            path.write_text("".join(f"{json.dumps(each)}\n" for each in damaged) if lines else json.dumps(damaged))
            async with connect("memory://") as store:
                report = ImportReport(name)
                await load(store, importer_named(name).read(open_source(made), report), report)
                assert report.conversations or report.problems
                tried += 1
        path.write_bytes(original)
    assert tried


async def test_messages_without_ids_are_stored_once(tmp_path: Path) -> None:
    spoken = [
        {"type": kind, "content": text} for kind, text in (("user", "A heron?"), ("gemini", "Yes."), ("user", "Sure?"))
    ]
    session = {"sessionId": "s1", "projectHash": "p", "messages": spoken}
    (tmp_path / "session-1.json").write_text(json.dumps(session), "utf-8")
    chat = exports.open_webui_chat()
    chat["chat"]["history"]["messages"] = {"": {"role": "user", "content": "Which bird?"}}
    (tmp_path / "chats.json").write_text(json.dumps([chat]), "utf-8")
    async with connect("memory://") as store:
        for _ in range(2):
            for name, file in (("gemini-cli", "session-1.json"), ("open-webui", "chats.json")):
                report = ImportReport(name)
                await load(store, importer_named(name).read(open_source(tmp_path / file), report), report)
        assert await texts(store, "s1") == [("user", "A heron?"), ("assistant", "Yes."), ("user", "Sure?")]
        assert await texts(store, chat["id"]) == [("user", "Which bird?")]
        assert [branch.id for branch in await store.list_branches(chat["id"])] == ["main"]


@pytest.mark.parametrize("levels", [150, 450, 900, 100_000])
async def test_content_of_any_depth_costs_no_other_message(tmp_path: Path, levels: int) -> None:
    first, second = exports.chatgpt_conversation(), exports.chatgpt_conversation() | {"id": "b", "conversation_id": "b"}
    second["mapping"]["u1"]["message"]["content"] = {"content_type": "new", "deep": "DEEP"}
    given = json.dumps([first, second]).replace('"DEEP"', "[" * levels + "]" * levels)
    (tmp_path / "conversations.json").write_text(given, "utf-8")
    async with connect("memory://") as store:
        report = ImportReport("chatgpt")
        await load(store, importer_named("chatgpt").read(open_source(tmp_path / "conversations.json"), report), report)
        assert (await texts(store, "chat-1"))[-1] == ("assistant", "It stands and strikes.")
        # Beyond what a parser takes, the whole conversation is no JSON.
        assert len(await texts(store, "b")) == (0 if levels > 1_000 else 6 + (levels < 200))
        assert ("u1" in [each.id for each in await store.get_messages("b")]) == (levels < 200)
        assert len(report.problems) == (levels > 200)


@pytest.mark.parametrize("column", ["content", "url", "type"])
async def test_an_attachment_of_llm_that_is_a_number_is_reported(tmp_path: Path, column: str) -> None:
    path = exports.llm_tools_and_media(tmp_path / "logs.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE attachments SET {column} = 7")
        database.execute("UPDATE fragments SET content = 7")
        database.commit()
    async with connect("memory://") as store:
        report = ImportReport("llm")
        await load(store, importer_named("llm").read(open_source(path), report), report)
        assert (report.problems, report.conversations) == ([], 1)
