"""Whatever a store holds, an export or a copy of it holds, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.servers import postgres
from tests.transfer.rich import CONVERSATIONS, contents, fill

import hansard
from hansard import Message, Report, Store, sync
from hansard.backends.memory import MemoryBackend

BACKENDS = ("memory", "sqlite", "files", *(["postgres"] if postgres.why_absent() is None else []))


def url(kind: str, folder: Path, name: str) -> str:
    if kind == "postgres":
        return postgres.with_schema(postgres.new_schema())
    return {"memory": "memory://", "sqlite": f"sqlite:///{folder}/{name}.db", "files": f"file:///{folder}/{name}"}[kind]


@pytest.mark.parametrize("to", BACKENDS)
@pytest.mark.parametrize("kind", BACKENDS)
def test_copy_keeps_everything(kind: str, to: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with hansard.connect(url(kind, tmp_path, "a")) as store, hansard.connect(url(to, tmp_path, "b")) as other:
            await fill(store)
            report = await store.copy_to(other)
            assert await contents(other) == await contents(store)
            whole = Report(conversations=6, messages=37, summaries=2, records=7, blobs=2)
            assert report == whole
            assert report.verified
            assert [problem async for problem in other.admin.check() if not isinstance(problem, int)] == []

    asyncio.run(check())


@pytest.mark.parametrize("to", BACKENDS)
@pytest.mark.parametrize("kind", BACKENDS)
def test_export_and_import_keep_everything(kind: str, to: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with hansard.connect(url(kind, tmp_path, "a")) as store, hansard.connect(url(to, tmp_path, "b")) as other:
            await fill(store)
            lines = [line async for line in store.export()]
            report = await other.import_(lines)
            assert await contents(other) == await contents(store)
            assert report == Report(conversations=6, messages=37, summaries=2, records=7, blobs=2)
            again = [line async for line in other.export()]
            assert again[1:] == lines[1:]

    asyncio.run(check())


def test_a_second_time_passes_everything_over() -> None:
    async def check() -> None:
        store, other = Store(MemoryBackend()), Store(MemoryBackend())
        await fill(store)
        await store.copy_to(other)
        before = await contents(other)
        lines = [line async for line in store.export()]
        for report in (await store.copy_to(other), await other.import_(lines)):
            assert report == Report(skipped=6, skipped_records=7)
        assert await contents(other) == before

    asyncio.run(check())


def test_a_copy_can_be_written_to() -> None:
    async def check() -> None:
        store, other = Store(MemoryBackend()), Store(MemoryBackend())
        await fill(store)
        await store.copy_to(other)
        for each in (store, other):
            await each.append("branched", [Message("user", "And then?", id="next")])
            await each.append("branched", [Message("user", "On main", id="on-main")], branch="main")
        mine, theirs = await store.get_messages("branched", last=9), await other.get_messages("branched", last=9)
        assert [(each.id, each.seq) for each in mine] == [(each.id, each.seq) for each in theirs]
        assert [problem async for problem in other.admin.check() if not isinstance(problem, int)] == []

    asyncio.run(check())


def test_part_of_a_store() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)

        async def copied(**choice: object) -> tuple[set[str], list[str], list[str]]:
            other = Store(MemoryBackend())
            await store.copy_to(other, **choice)  # type: ignore[arg-type]
            exported = Store(MemoryBackend())
            await exported.import_([line async for line in store.export(**choice)])  # type: ignore[arg-type]
            found = await contents(other)
            assert await contents(exported) == found
            records = [record.key for record in found["records"]]
            return set(found) & set(CONVERSATIONS), records, list(found["owners"])

        assert await copied(user_id="u_1") == ({"branched"}, ["k"], ["u_1"])
        assert await copied(user_id="u_2") == ({"mine"}, [], ["u_2"])
        assert await copied(agent_id="helper") == ({"branched"}, ["k"], [])
        assert await copied(conversation_ids=["mine", "empty"]) == ({"mine", "empty"}, [], ["u_2"])
        assert await copied(conversation_ids=[]) == (set(), [], [])
        assert await copied(user_id="nobody") == (set(), [], [])

    asyncio.run(check())


def test_a_users_view_moves_only_its_own() -> None:
    async def check() -> None:
        store, other = Store(MemoryBackend()), Store(MemoryBackend())
        await fill(store)
        await store.user("u_2").copy_to(other.user("u_2"))
        found = await contents(other)
        assert set(found) & set(CONVERSATIONS) == {"mine"}
        assert list(found["owners"]) == ["u_2"]
        assert found["records"] == []
        everything = [line async for line in store.export()]
        with pytest.raises(hansard.Denied, match="belongs to another user"):
            await other.user("u_2").import_(everything)
        await (bare := Store(MemoryBackend())).user("u_1").records.put(("own",), "k", 1)
        with pytest.raises(hansard.Denied, match="belong to another user"):
            await other.user("u_2").import_([line async for line in bare.export()])
        with pytest.raises(hansard.ValidationError, match="reads only that user's"):
            [line async for line in store.user("u_2").export(user_id="u_1")]

    asyncio.run(check())


def test_all_tenants() -> None:
    async def check() -> None:
        store, other = Store(MemoryBackend()), Store(MemoryBackend())
        await fill(store)
        await fill(store.tenant("acme"))
        await store.tenant("acme").append_message("only here", "user", "Hello")
        report = await store.admin.copy_to(other)
        assert (report.conversations, report.messages, report.records) == (13, 75, 14)
        for name in ("default", "acme"):
            assert await contents(other.tenant(name)) == await contents(store.tenant(name))
        again = await store.admin.copy_to(other, tenants=["acme"])
        assert (again.conversations, again.skipped) == (0, 7)
        with pytest.raises(hansard.Denied):
            await store.admin.copy_to(other.tenant("acme"))

    asyncio.run(check())


def test_lines_come_from_anywhere(tmp_path: Path) -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)
        lines = [line async for line in store.export()]
        file = tmp_path / "export.jsonl"
        file.write_bytes(b"".join(lines))

        async def streamed() -> AsyncIterator[bytes]:
            for line in lines:
                yield line

        with file.open("rb") as opened:
            sources = [lines, streamed(), file, str(file), (line.decode() for line in lines), opened]
            sources.append([line.removesuffix(b"\n") + b"\r\n" for line in lines])
            for source in sources:
                other = Store(MemoryBackend())
                await other.import_(source)  # type: ignore[arg-type]
                assert await contents(other) == await contents(store)
        for wrong in (b"bytes", 5, None):
            with pytest.raises(hansard.ValidationError, match="import_ takes"):
                await store.import_(wrong)  # type: ignore[arg-type]

    asyncio.run(check())


def test_the_blocking_api(tmp_path: Path) -> None:
    source = sync.connect(f"sqlite:///{tmp_path}/a.db")
    asyncio.run(fill(source._inner))
    with source, sync.connect("memory://") as one, sync.connect(f"sqlite:///{tmp_path}/b.db") as two:
        assert source.copy_to(one).messages == 37
        assert two.import_(one.export()).messages == 37
        assert one.admin.copy_to(two).skipped == 6
        assert list(two.export())[1:] == list(source.export())[1:]
        with pytest.raises(hansard.ValidationError, match=r"must be a hansard\.sync\.Store"):
            source.copy_to(one._inner)
