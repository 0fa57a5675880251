"""An import stores only what it has checked, says where a file is damaged, and can always be repeated."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.transfer.rich import contents, fill

from hansard import Conflict, Corrupt, FormatMismatch, HansardError, Message, Report, Store, connect
from hansard.backends.memory import MemoryBackend


async def exported() -> list[bytes]:
    store = Store(MemoryBackend())
    await fill(store)
    return [line async for line in store.export()]


LINES = asyncio.run(exported())


def sealed(lines: Sequence[Any]) -> list[bytes]:
    """Lines with right seals, whatever they say."""
    running = hashlib.sha256()
    result = []
    for number, line in enumerate(lines):
        found = json.loads(line) if isinstance(line, bytes) else dict(line)
        if "sha256" in found and found.get("type") != "blob":
            found["sha256"] = running.hexdigest()
        text = json.dumps(found).encode() + b"\n"
        result.append(text)
        if number:
            running.update(text)
    return result


def changed(change: Callable[[list[Any]], None]) -> list[bytes]:
    found = [json.loads(line) for line in LINES]
    change(found)
    return sealed(found)


async def imported(lines: Sequence[bytes]) -> tuple[Store, Report]:
    store = Store(MemoryBackend())
    return store, await store.import_(lines)


def test_other_spacing_and_escapes_are_the_same_file() -> None:
    async def check() -> None:
        plain, _ = await imported(LINES)
        other, report = await imported(sealed(LINES))
        assert report.verified
        assert await contents(other) == await contents(plain)
        assert (await plain.import_(sealed(LINES))).skipped == 6

    asyncio.run(check())


@pytest.mark.parametrize("number", range(1, len(LINES)))
def test_a_file_that_was_cut_off(number: int) -> None:
    """Whatever came before stays, and the whole file goes on from there."""

    async def check() -> None:
        store = Store(MemoryBackend())
        with pytest.raises(Corrupt, match=rf"line {number}: the file was cut off here") as caught:
            await store.import_(LINES[:number])
        assert caught.value.where == f"line {number}"
        await store.import_(LINES)
        whole, _ = await imported(LINES)
        assert await contents(store) == await contents(whole)
        with pytest.raises(Corrupt):
            await Store(MemoryBackend()).import_([*LINES[:number], LINES[number][: len(LINES[number]) // 2]])

    asyncio.run(check())


@pytest.mark.parametrize("number", range(1, len(LINES)))
def test_a_line_with_another_character(number: int) -> None:
    """Nothing of the damaged stretch is stored, and the next seal at the latest says so."""

    async def check() -> None:
        whole, _ = await imported(LINES)
        good = await contents(whole)
        line = LINES[number]
        for place in {len(line) // 3, len(line) // 2, len(line) - 4}:
            letter = b"0" if line[place : place + 1] != b"0" else b"1"
            damaged = [*LINES[:number], line[:place] + letter + line[place + 1 :], *LINES[number + 1 :]]
            store = Store(MemoryBackend())
            with pytest.raises(Corrupt, match="the export is damaged at line"):
                await store.import_(damaged)
            found = await contents(store)
            for id in set(found) & set(good) - {"records", "marks", "owners", "usage"}:
                theirs, mine = found[id]["messages"], good[id]["messages"]
                assert all(theirs[branch] == mine[branch][: len(theirs[branch])] for branch in theirs)
            assert all(record in good["records"] for record in found["records"])

    asyncio.run(check())


@pytest.mark.parametrize("number", range(1, len(LINES)))
def test_a_line_that_is_missing_or_stands_twice(number: int) -> None:
    async def check() -> None:
        for lines in ([*LINES[:number], *LINES[number + 1 :]], [*LINES[:number], LINES[number], *LINES[number:]]):
            with pytest.raises(Corrupt):
                await imported(lines)

    asyncio.run(check())


def test_what_is_no_export() -> None:
    async def check() -> None:
        for first in (b"", b"\x00\x01", b"SQLite format 3\x00", b"[]", b"{}", b'{"hansard":"backup"}', b"hello"):
            with pytest.raises((FormatMismatch, Corrupt), match="not a Hansard export"):
                await imported([first + b"\n"])
        with pytest.raises(Corrupt, match="the file is empty"):
            await imported([])

    asyncio.run(check())


def test_a_later_version() -> None:
    async def check() -> None:
        later = changed(lambda lines: lines[0].update(version=2))
        with pytest.raises(FormatMismatch, match="version 2, and this Hansard reads version 1") as caught:
            await imported(later)
        assert (caught.value.found, caught.value.wanted) == ("2", "1")

    asyncio.run(check())


def _first(lines: list[Any], kind: str, **where: Any) -> Any:
    return next(
        line
        for line in lines[1:]
        if line["type"] == kind and all(line[kind][key] == value for key, value in where.items())
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda lines: _first(lines, "message", id="m1")["message"].update(role="robot"), "role 'robot' is unknown"),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(id=""), "is empty"),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(id="x" * 300), "the limit is 256"),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(id="a\0b"), "NUL"),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(seq=0), "seq 0 is not between"),
        (lambda lines: _first(lines, "message", id="m2")["message"].update(seq=1), "seq 1 is not between"),
        (lambda lines: _first(lines, "message", id="m6")["message"].update(seq=99), "seq 99 is not between"),
        (
            lambda lines: _first(lines, "message", id="m1").update(line=77),
            "no branch of the conversation reads segment",
        ),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(content=5), "is not text"),
        (
            lambda lines: _first(lines, "message", id="m1")["message"].update(created_at="2020-01-01T00:00:00"),
            "not in UTC",
        ),
        (lambda lines: _first(lines, "message", id="m1")["message"].update(status="lost"), "cannot be read"),
        (lambda lines: _first(lines, "message", id="p1")["message"]["blobs"][0].__setitem__(0, "0" * 64), "blob 0000"),
        (lambda lines: _first(lines, "message", id="p1")["message"]["blobs"][0].__setitem__(0, "z" * 64), "blob zzzz"),
        (lambda lines: lines.pop(next(at for at, line in enumerate(lines) if line.get("type") == "blob")), "blob e967"),
        (lambda lines: _first(lines, "conversation", id="mine")["conversation"].update(id=""), "is empty"),
        (
            lambda lines: _first(lines, "conversation", id="mine")["conversation"].update(branch="x"),
            "active one is 'x'",
        ),
        (lambda lines: _first(lines, "summary")["summary"].update(conversation_id="mine"), "another conversation"),
        (lambda lines: lines[-3].update(key=""), "is empty"),
        (lambda lines: lines[-3].pop("value"), "not one value"),
        (lambda lines: lines[-3].update(type="spell"), "cannot be read"),
        (lambda lines: lines[-1].update(records=8), "but the file holds"),
        (lambda lines: lines.append({"type": "eof", "sha256": ""}), "there is more after its end"),
        (lambda lines: lines.insert(3, dict(lines[1])), "a conversation begins inside another"),
        (lambda lines: lines.insert(1, {"type": "end", "messages": 0, "sha256": ""}), "did not begin"),
        (lambda lines: lines.insert(1, dict(_first(lines, "summary"))), "outside of a conversation"),
        (lambda lines: lines.insert(2, dict(lines[-3])), "inside a conversation"),
        (
            lambda lines: _first(lines, "conversation", id="branched")["lanes"][1].update(line=2),
            "do not have distinct numbers",
        ),
        (lambda lines: _first(lines, "conversation", id="mine").update(seq=2**40), "out of range"),
        (lambda lines: _first(lines, "conversation", id="mine")["conversation"].update(version=10**30), "out of range"),
        (lambda lines: _first(lines, "message", id="m2")["message"].update(id="m1"), "have the same id"),
        (lambda lines: _first(lines, "message", id="m2")["message"].update(id="cursor:x"), "looks like a cursor"),
        (lambda lines: lines[-3].update(revision=-1), "out of range"),
    ],
)
def test_lines_that_nobody_may_write(change: Callable[[list[Any]], None], match: str) -> None:
    """Right seals do not make a wrong line right."""

    async def check() -> None:
        with pytest.raises(Corrupt, match=match):
            await imported(changed(change))

    asyncio.run(check())


@pytest.mark.parametrize("scheme", ["memory", "file", "sqlite"])
def test_an_id_that_comes_again_behind_a_seal(tmp_path: Path, scheme: str) -> None:
    """Only the target can notice: the import remembers no ids beyond a seal."""

    def forge(lines: list[Any]) -> None:
        at = lines.index(_first(lines, "message", id="m2"))
        lines.insert(at, {"type": "check", "sha256": ""})
        lines[at + 1]["message"]["id"] = "m1"

    async def check() -> None:
        url = {"memory": "memory://", "file": f"file://{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/a.db"}[scheme]
        async with connect(url) as store:
            with pytest.raises(Conflict, match="'m1' occurs twice in the copy of conversation"):
                await store.import_(changed(forge))
            assert await store.check() == []
            report = await store.import_(LINES)
            assert report.verified
            whole, _ = await imported(LINES)
            assert await contents(store) == await contents(whole)

    asyncio.run(check())


def test_nobody_names_a_blob_that_the_file_does_not_hold() -> None:
    async def check() -> None:
        store, _ = await imported(LINES)
        lines = [json.loads(line) for line in LINES]
        picture = next(line["sha256"] for line in lines if line.get("type") == "blob")
        thief = Store(MemoryBackend())
        await thief.append("thief", [Message("user", ["x"], id="m")])
        stolen = [json.loads(line) async for line in thief.export()]
        stolen[2]["message"]["blobs"] = [[picture, 10240, [0]]]
        with pytest.raises(Corrupt, match="does not come before the message"):
            await store.import_(sealed(stolen))
        assert await store.get_conversation("thief") is None

    asyncio.run(check())


def test_a_blob_with_another_hash() -> None:
    async def check() -> None:
        lines = changed(lambda found: _first_blob(found).update(data="AAAA"))
        with pytest.raises(Corrupt, match="not the one that was written"):
            await imported(lines)

    asyncio.run(check())


def _first_blob(lines: list[Any]) -> Any:
    return next(line for line in lines if line.get("type") == "blob")


def test_lines_without_a_seal_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        monkeypatch.setattr("hansard.transfer.import_._MOST_ROWS", 10)
        with pytest.raises(Corrupt, match="too many lines without a check"):
            await imported(LINES)

    asyncio.run(check())


def test_conflicts_are_reported_and_left_alone() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await store.append_message("pictures", "user", "Mine")
        await store.records.put(("state",), "null", "mine")
        report = await store.import_(LINES)
        assert report.conversations == 5
        assert [conflict.where for conflict in report.conflicts] == [
            "conversation 'pictures'",
            "record 'null' in ('state',)",
        ]
        assert report.conflicts[0].what.startswith("the target holds another one, made at")
        assert [message.content for message in await store.get_messages("pictures")] == ["Mine"]
        # The blob came with the conversation that was refused, and another one needs it.
        await store.get_messages("pictures-too")
        with pytest.raises(Conflict, match="conversation 'pictures'"):
            await store.import_(LINES, on_conflict="error")
        with pytest.raises(HansardError, match="on_conflict"):
            await store.import_(LINES, on_conflict="maybe")  # type: ignore[arg-type]

    asyncio.run(check())


def test_an_expired_conversation_is_left_out() -> None:
    async def check() -> None:
        past = changed(
            lambda lines: _first(lines, "conversation", id="pictures")["conversation"].update(
                expires_at="2001-01-01T00:00:00Z"
            )
        )
        store, report = await imported(past)
        assert report.conversations == 5
        assert report.verified
        assert [loss.where for loss in report.losses] == ["conversation 'pictures'"]
        assert await store.get_conversation("pictures") is None
        await store.get_messages("pictures-too")

    asyncio.run(check())


def test_progress_is_told() -> None:
    async def check() -> None:
        seen: list[int] = []
        await Store(MemoryBackend()).import_(LINES, progress=lambda report: seen.append(report.messages))
        assert seen[-1] == 37
        assert seen == sorted(seen)

    asyncio.run(check())
