"""Reading in a process of its own: what is stored is the same, and neither process is left behind."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator
from contextlib import aclosing, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports
from tests.importers.test_importers import FILES, imported, texts
from tests.importers.test_mutations import damaged_files

from hansard import Limits, Store, connect
from hansard.errors import Unavailable, ValidationError
from hansard.importers import (
    ForeignConversation,
    ForeignMessage,
    Importer,
    ImportReport,
    importer_for,
    importer_named,
    load,
    open_source,
    reader_process,
)
from hansard.importers.preparation import prepare, unpack
from hansard.importers.reader_process import _batches, _Request, _write, is_worthwhile, read_source
from hansard.importers.source import ImportSource, ServerSource
from hansard.importers.transcripts import raw_lines
from hansard.importers.values import reporting_times
from hansard.model import NOT_YET, Message, Participant, Source, Usage

NOW = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any file is large enough for another process, on any machine."""
    monkeypatch.setattr(reader_process, "_LEAST_BYTES", 0)
    monkeypatch.setattr(reader_process, "_cores", lambda: 2)


def opened(path: Path) -> tuple[ImportSource, Importer]:
    source = open_source(path)
    try:
        return source, importer_for(source)
    finally:
        source.close()  # it is read elsewhere


def through_pipe(path: Path, importer: Importer, report: ImportReport) -> list[ForeignConversation]:
    """What the child would send, without the child."""
    found: list[ForeignConversation] = []
    request = pickle.loads(pickle.dumps(_Request(path, importer, Limits(), str(path.parent))))
    for batch in _batches(request):
        pipe = io.BytesIO()
        _write(batch, pipe)
        received: reader_process._Batch = pickle.loads(pipe.getvalue())
        report.merge(received.report)
        found += map(unpack, received.conversations)
        if received.error is not None:
            raise received.error
    return found


async def everything(store: Store) -> list[Any]:
    """All that a store holds, as JSON."""
    held: list[Any] = []
    async for conversation in store.iter_conversations(archived=None):
        branches = await store.list_branches(conversation.id)
        held += [conversation, branches]
        for branch in branches:
            held += [message async for message in store.iter_messages(conversation.id, branch=branch.id)]
        held.append([line async for line in raw_lines(store, conversation.id)])
    held += [record async for record in store.records.iter(())]
    return [json.loads(json.dumps(each, default=_plain)) for each in held]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | datetime):
        return str(value)
    return {name: getattr(value, name) for name in value.__struct_fields__ if not name.startswith("_")}


def lines_of(count: int, sessions: int = 50) -> str:
    rows = (
        {"session": f"s{number % sessions}", "role": "user", "content": f"heron {number}", "id": f"m{number}"}
        for number in range(count)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def large_file(folder: Path, messages: int = 30_000) -> Path:
    """Of several batches."""
    path = folder / "rows.jsonl"
    path.write_text(lines_of(messages), "utf-8")
    return path


@pytest.mark.parametrize("kind", FILES)
async def test_what_another_process_has_read_is_stored_like_what_this_one_reads(tmp_path: Path, kind: str) -> None:
    path = FILES[kind][1](tmp_path)
    _, importer = opened(path)
    url = f"sqlite:///{tmp_path}/store.db"
    async with connect("memory://", clock=lambda: NOW) as one, connect(url, clock=lambda: NOW) as other:
        expected = await imported(one, path)
        report = ImportReport(importer.name)
        await load(other, through_pipe(path, importer, report), report)
        assert report == expected
        assert await everything(other) == await everything(one)
        assert await other.check() == []  # the words of the index, too


@pytest.mark.parametrize("kind", [kind for kind in FILES if FILES[kind][0] != "langgraph"])
async def test_a_damaged_file_is_stored_and_reported_like_in_one_process(tmp_path: Path, kind: str) -> None:
    name = FILES[kind][0]
    for seed, path in damaged_files(tmp_path, kind):
        outcomes: list[Any] = []
        for read in (in_one_process, through_pipe):
            report = ImportReport(name)
            async with connect("memory://", clock=lambda: NOW) as store:
                try:
                    await load(store, read(path, importer_named(name), report), report)
                except ValidationError as error:
                    outcomes.append(str(error))  # the file as a whole
                else:
                    outcomes.append((report, await everything(store)))
        assert outcomes[0] == outcomes[1], f"{kind}, seed {seed}"


def in_one_process(path: Path, importer: Importer, report: ImportReport) -> list[ForeignConversation]:
    with closing(open_source(path)) as source:
        return list(reporting_times(importer.read(source, report), report))


def test_what_follows_something_that_is_no_id_is_left_to_the_import() -> None:
    odd: Any = b"\xff"
    messages = [ForeignMessage(Message("user", "Hello", "a"), odd)]
    packed = prepare(ForeignConversation(id="c", messages=messages), Limits(), 100)
    assert packed.messages is None
    assert unpack(packed).messages == messages


@pytest.mark.usefixtures("always")
async def test_the_index_finds_what_was_prepared_elsewhere(tmp_path: Path) -> None:
    path = exports.jsonl(tmp_path / "s1.jsonl", exports.claude_code_lines())
    source, importer = opened(path)
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        report = ImportReport(importer.name)
        async with aclosing(read_source(source, importer, store.limits, report)) as read:
            await load(store, read, report)
        assert await store.search("birds")
        assert await store.check() == []
        assert b"".join([line async for line in raw_lines(store, "s1")]) == path.read_bytes()
        again = await imported(store, path)
        assert (again.unchanged, again.messages, again.lines) == (1, 0, 0)


@pytest.mark.usefixtures("always")
async def test_a_large_file_comes_in_batches_with_its_report(tmp_path: Path) -> None:
    path = large_file(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    source, importer = opened(path)
    moved: list[int] = []
    source.moved = moved.append
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        report = ImportReport(importer.name)
        async with aclosing(read_source(source, importer, store.limits, report)) as read:
            await load(store, read, report)
        assert (report.new, report.messages) == (50, 30_000)
        assert [problem.where for problem in report.problems] == ["rows.jsonl, row 30001"]
        assert sum(moved) == path.stat().st_size
        assert await texts(store, "s7") == [("user", f"heron {number}") for number in range(7, 30_000, 50)]


@pytest.mark.usefixtures("always")
async def test_a_source_that_cannot_be_read_raises_the_same_error(tmp_path: Path) -> None:
    path = exports.chatgpt_zip(tmp_path / "export.zip")
    source, importer = opened(path)
    packed = bytearray(path.read_bytes())
    packed[60:90] = bytes(30)
    path.write_bytes(packed)
    async with connect("memory://") as store:
        with pytest.raises(ValidationError) as expected:
            await imported(store, path)
        report = ImportReport(importer.name)
        async with aclosing(read_source(source, importer, store.limits, report)) as read:
            with pytest.raises(ValidationError) as raised:
                await load(store, read, report)
    assert str(raised.value) == str(expected.value)


@pytest.mark.usefixtures("always")
async def test_a_reader_that_dies_is_reported_and_the_import_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a kind that is read without temporary files.
    lines = [[{"role": "user", "content": f"heron {line}.{n}"} for n in range(100)] for line in range(300)]
    path = exports.jsonl(tmp_path / "train.jsonl", [{"messages": said} for said in lines])
    source, importer = opened(path)
    children: list[subprocess.Popen[bytes]] = []
    start = reader_process._start

    def started(request: _Request) -> subprocess.Popen[bytes]:
        children.append(start(request))
        return children[-1]

    monkeypatch.setattr(reader_process, "_start", started)
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        report = ImportReport(importer.name)
        async with aclosing(read_source(source, importer, store.limits, report)) as read:
            dying = _killing(read, children)
            with pytest.raises(Unavailable, match="was ended by signal 9"):
                await load(store, dying, report)
        before = sum([each.message_count async for each in store.iter_conversations()])
        assert before < 30_000
        assert (await imported(store, path)).messages == 30_000 - before
        assert await store.check() == []


async def _killing(
    read: AsyncIterator[ForeignConversation], children: list[subprocess.Popen[bytes]]
) -> AsyncIterator[ForeignConversation]:
    async for each in read:
        children[0].kill()
        yield each


@pytest.mark.usefixtures("always")
async def test_a_reader_that_is_killed_leaves_no_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, importer = opened(large_file(tmp_path, 100_000))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    start = reader_process._start

    def killed(request: _Request) -> subprocess.Popen[bytes]:
        child = start(request)
        while not list(temporary.rglob("*.db")):  # until it sorts the rows
            assert child.poll() is None
            time.sleep(0.001)
        child.kill()
        return child

    monkeypatch.setattr(reader_process, "_start", killed)
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        with pytest.raises(Unavailable, match="was ended by signal 9"):
            await anext(read)
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("always")
async def test_what_was_unpacked_to_recognise_a_source_goes_when_another_process_reads(tmp_path: Path) -> None:
    database = FILES["SQLiteSession"][1](tmp_path)
    with zipfile.ZipFile(tmp_path / "sessions.zip", "w") as packed:
        packed.write(database, database.name)
    source = open_source(tmp_path / "sessions.zip")
    importer = importer_for(source)
    unpacked = source.local_path(database.name)
    assert unpacked.exists()
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        await anext(read)
        assert not unpacked.exists()


@pytest.mark.usefixtures("always")
async def test_a_reader_that_ends_before_its_request_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_process, "_COMMAND", "raise SystemExit(3)")
    popen = subprocess.Popen

    def ended(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*given, **options)
        child.wait()
        return child

    monkeypatch.setattr(subprocess, "Popen", ended)
    source, importer = opened(large_file(tmp_path, 100))
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        with pytest.raises(Unavailable, match="has failed with 3"):
            await anext(read)


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@LINUX
@pytest.mark.usefixtures("always")
async def test_an_import_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    source, importer = opened(large_file(tmp_path))
    others = _children()
    read = read_source(source, importer, Limits(), ImportReport())
    assert (await anext(read)).id == "s0"
    (child,) = map(int, _children() - others)
    assert os.getpgid(child) == child, "Ctrl-C of a terminal does not reach it"
    await read.aclose()
    assert _children() <= others


@LINUX
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3, 0.6])
async def test_an_import_that_is_cancelled_while_it_waits_leaves_no_process(tmp_path: Path, seconds: float) -> None:
    source, importer = opened(large_file(tmp_path, 100_000))
    others = _children()

    async def read() -> None:
        async with aclosing(read_source(source, importer, Limits(), ImportReport())) as found:
            async for _ in found:
                pass

    task = asyncio.ensure_future(read())
    await asyncio.sleep(seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert _children() <= others


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@LINUX
def test_a_reader_ends_when_the_import_was_killed(tmp_path: Path) -> None:
    path = large_file(tmp_path, 200_000)
    url = f"sqlite:///{tmp_path}/store.db"
    command = [sys.executable, "-c", _WAITING, str(path), url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    _wait_until_gone(child)


_WAITING = """
import asyncio, os, sys
from pathlib import Path
from hansard import Limits
from hansard.importers import ImportReport, importer_for, open_source
from hansard.importers import reader_process

async def main():
    source = open_source(sys.argv[1])
    reader_process._cores = lambda: 2
    read = reader_process.read_source(source, importer_for(source), Limits(), ImportReport())
    await anext(read)
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[0], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def _wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 30
    while _is_running(pid):
        assert time.monotonic() < end, "the reader goes on without its parent"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@LINUX
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_reader_that_has_sent_nothing_yet_ends_with_the_import(tmp_path: Path, sent: int) -> None:
    """Rows are sorted by session before the first is sent: for minutes, if they are many, beside a copy of them."""
    folder, temporary = tmp_path / "rows", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    path = large_file(folder, 100_000)
    for number in range(200):
        (folder / f"{number}.jsonl").hardlink_to(path)
    command = [sys.executable, "-c", _READING, str(folder), str(int(sent))]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.wait() == -sent
    _wait_until_gone(child)
    assert list(temporary.iterdir()) == []


_READING = """
import asyncio, os, signal, sys, tempfile, time
from pathlib import Path
from hansard import Limits
from hansard.importers import ImportReport, importer_for, open_source, reader_process

start = reader_process._start

def started(request):
    child = start(request)
    print(child.pid, flush=True)
    while not list(Path(tempfile.gettempdir()).rglob("*.db")):  # until it sorts the rows
        assert child.poll() is None
        time.sleep(0.001)
    if sent := int(sys.argv[2]):
        os.kill(os.getpid(), sent)
    else:
        os.killpg(os.getpgid(0), signal.SIGINT)
    return child

async def main():
    reader_process._start = started
    reader_process._cores = lambda: 2
    source = open_source(sys.argv[1])
    async for _ in reader_process.read_source(source, importer_for(source), Limits(), ImportReport()):
        pass

asyncio.run(main())
"""


@LINUX
def test_ctrl_c_reaches_the_import_and_not_its_reader(tmp_path: Path) -> None:
    """A terminal sends it to the whole group of processes. The import ends the reader, which says nothing about it."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-c", _READING, str(large_file(tmp_path, 300_000)), "0"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=environment, process_group=0, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("\nKeyboardInterrupt") == 1
    assert not _is_running(int(done.stdout))
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("always")
async def test_what_an_importer_prints_does_not_get_among_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing = """
from hansard.importers.row_sorter import RowSorter
enter = RowSorter.__enter__
RowSorter.__enter__ = lambda sorter: (print("it sorts the rows"), enter(sorter))[1]
main()"""
    monkeypatch.setattr(reader_process, "_COMMAND", reader_process._COMMAND.replace("; main()", printing))
    source, importer = opened(large_file(tmp_path, 100))
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        assert len([each async for each in read]) == 50


def test_a_process_is_for_large_files_and_a_second_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_text(lines_of(10), "utf-8")
    large.write_text(lines_of(10) + "\n" * reader_process._LEAST_BYTES, "utf-8")
    rows = importer_named("jsonl")
    monkeypatch.setattr(reader_process, "_cores", lambda: 2)
    assert is_worthwhile(open_source(large), rows)
    assert not is_worthwhile(open_source(small), rows)
    assert not is_worthwhile(open_source(large), importer_named("langgraph"))
    assert not is_worthwhile(ServerSource("redis://localhost"), rows)
    monkeypatch.setattr(reader_process, "_cores", lambda: 1)
    assert not is_worthwhile(open_source(large), rows)


PICTURE = {"type": "image", "data": "QUJD" * 2_000, "media_type": "image/png"}


@pytest.mark.parametrize(
    "odd",
    [
        Message("user", "x" * 100, "a", metadata={"rating": "thumbs_up"}),
        Message("user", [PICTURE], "a", format="parts"),
        Message("nobody", "Hello", "a"),
        Message("user", "Hello", "a", metadata={"number": 10**5000}),
    ],
    ids=["rating", "attachment", "role", "number"],
)
def test_what_is_unusual_is_left_to_the_import(odd: Message) -> None:
    messages = [ForeignMessage(odd, None), ForeignMessage(Message("user", "Hello", "b"), "a")]
    packed = prepare(ForeignConversation(id="c", messages=messages), Limits(), 100)
    assert packed.messages is None
    assert unpack(packed).messages == messages


def test_rare_fields_are_sent_as_they_are() -> None:
    message = Message(
        "assistant",
        [{"type": "text", "text": "Hello"}],
        "a",
        format="parts",
        participant=Participant("agent", "helper"),
        mentions=("ann",),
        scope="thread",
        status="interrupted",
        pinned=True,
        created_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        trace_id="t",
        sources=(Source("d", "handbook.pdf"),),
        usage=Usage(model="m", input_tokens=3, cost=0.1),
        metadata={"number": 10**30, "deep": [{"a": None}]},
        labels=("good",),
    )
    packed = prepare(ForeignConversation(id="c", messages=[ForeignMessage(message, None)]), Limits(), 100)
    assert packed.messages is not None
    assert unpack(packed).messages[0].message == message


def test_a_message_without_a_time_has_none_on_the_other_side() -> None:
    conversation = ForeignConversation(id="c", messages=[ForeignMessage(Message("user", "Hello", "a"), None)])
    for characters in (100, 100_000_000):
        pipe = io.BytesIO()
        packed = prepare(conversation, Limits(), characters)
        assert (packed.messages is None) == (characters > 100)
        _write(reader_process._Batch([packed], ImportReport(), 0), pipe)
        (received,) = pickle.loads(pipe.getvalue()).conversations
        assert unpack(received).messages[0].message.created_at is NOT_YET


@pytest.mark.parametrize("levels", [90, 150, 450, 900])
async def test_content_of_any_depth_is_sent(tmp_path: Path, levels: int) -> None:
    deep: Any = "deep"
    for _ in range(levels):
        deep = [deep]
    rows = [
        {"session": "a", "role": "user", "content": deep, "id": "m1"},
        {"session": "a", "role": "user", "content": "Hello", "id": "m2", "more": deep},
        {"session": "b", "role": "user", "content": "Hello", "id": "m3", "more": deep},
    ]
    path = exports.jsonl(tmp_path / "rows.jsonl", rows)
    _, importer = opened(path)
    async with connect("memory://", clock=lambda: NOW) as one, connect("memory://", clock=lambda: NOW) as other:
        expected = await imported(one, path)
        report = ImportReport(importer.name)
        await load(other, through_pipe(path, importer, report), report)
        assert report == expected
        assert await everything(other) == await everything(one)


async def test_a_value_that_cannot_be_sent_keeps_out_its_conversation_only(tmp_path: Path) -> None:
    deep: Any = "half a surrogate pair: \ud83d"
    for _ in range(450):
        deep = [deep]
    messages = [ForeignMessage(Message("user", "Hello", "a"), None)]
    given = [
        ForeignConversation(id="odd", messages=messages, metadata={"deep": deep}),
        ForeignConversation(id="c", messages=messages),
    ]
    request = _Request(exports.jsonl(tmp_path / "rows.jsonl", []), _Giving(given), Limits(), str(tmp_path))
    (batch,) = _batches(request)
    _write(batch, io.BytesIO())
    assert [unpack(each).id for each in batch.conversations] == ["c"]
    (problem,) = batch.report.problems
    assert (problem.where, "import it with --strict" in problem.what) == ("conversation 'odd'", True)


class _Giving:
    name = "giving"
    title = "An importer that has read"

    def __init__(self, given: list[ForeignConversation]) -> None:
        self.given = given

    def recognises(self, source: ImportSource) -> bool:
        return True

    def read(self, source: ImportSource, report: ImportReport) -> Any:
        return (each for each in self.given)


@pytest.mark.usefixtures("always")
async def test_a_reader_that_fails_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "_COMMAND", "raise SystemExit(3)")
    source, importer = opened(large_file(tmp_path, 100))
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        with pytest.raises(Unavailable, match=r"has failed with 3\. .* import with --strict") as raised:
            await anext(read)
    assert not raised.value.retryable


def test_a_batch_of_long_messages_is_short(tmp_path: Path) -> None:
    rows = [
        {"session": f"s{number}", "role": "user", "content": "x" * 500_000, "id": f"m{number}"} for number in range(40)
    ]
    path = exports.jsonl(tmp_path / "rows.jsonl", rows)
    _, importer = opened(path)
    batches = [len(batch.conversations) for batch in _batches(_Request(path, importer, Limits(), str(path.parent)))]
    assert sum(batches) == 40
    assert max(batches) == 8


class _Failing:
    name = "failing"
    title = "An importer with a fault"

    def recognises(self, source: ImportSource) -> bool:
        return True

    def read(self, source: ImportSource, report: ImportReport) -> Any:
        raise self.error
        yield

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Unsendable(Exception):
    def __init__(self, one: int, *, two: int) -> None:
        super().__init__(one)


@pytest.mark.parametrize("error", [KeyError("x"), _Unsendable(1, two=2)], ids=["KeyError", "unsendable"])
def test_a_fault_of_an_importer_is_told(tmp_path: Path, error: Exception) -> None:
    path = exports.jsonl(tmp_path / "rows.jsonl", [])
    (batch,) = _batches(_Request(path, _Failing(error), Limits(), str(tmp_path)))
    assert type(batch.error) is (KeyError if isinstance(error, KeyError) else RuntimeError)
    assert batch.is_last


@pytest.mark.usefixtures("always")
async def test_where_no_process_can_be_started_this_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    source, importer = opened(large_file(tmp_path, 100))
    async with aclosing(read_source(source, importer, Limits(), ImportReport())) as read:
        assert len([each async for each in read]) == 50


@pytest.mark.usefixtures("always")
async def test_terms_are_made_only_where_they_are_wanted(tmp_path: Path) -> None:
    source, importer = opened(large_file(tmp_path, 100))
    for wanted in (True, False):
        found = read_source(source, importer, Limits(), ImportReport(), with_terms=wanted)
        async with aclosing(found) as read:
            drafts = [message.draft async for each in read for message in each.messages]
        assert len(drafts) == 100
        assert all(draft is not None and (draft.terms is not None) == wanted for draft in drafts)
