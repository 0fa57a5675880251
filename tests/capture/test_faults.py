"""The store is away, hangs or loses its answers: the agent works, nothing is recorded twice, the spool brings it in."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from tests.capture.away import Wire
from tests.wait import coming

import hansard
from hansard import Message, Store
from hansard.agents.capture.spool import SpooledMessage, SpoolView
from hansard.capture import Capture, Spool

HOME = SpoolView("default")


def run(scenario: Callable[[Wire, Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        wire = Wire()
        async with wire.store() as store:
            await asyncio.wait_for(scenario(wire, store), 60)

    asyncio.run(main())


async def said(store: Store, id: str = "c") -> list[Any]:
    return [message.content for message in await store.get_messages(id)]


async def echo(text: str) -> str:
    return f"re: {text}"


async def slowly(text: str) -> AsyncIterator[str]:
    for word in text.split():
        yield word + " "
        await asyncio.sleep(0.02)


def test_a_store_that_is_away_without_a_spool(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store)
        agent = capture(echo)
        wire.state = "away"
        assert await agent("lost", conversation_id="c") == "re: lost"
        wire.state = "there"
        assert await agent("kept", conversation_id="c") == "re: kept"
        assert await said(store) == ["kept", "re: kept"]
        assert (capture.counts.failed, capture.counts.lost, capture.counts.stored) == (2, 2, 2)

    run(scenario)
    assert sum("the store is away" in record.message for record in caplog.records) == 2


def test_a_store_that_hangs_costs_no_more_than_the_timeout() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, timeout=0.02)
        wire.state = "hanging"
        assert await capture(echo)("hello", conversation_id="c") == "re: hello"
        assert capture.counts.failed == 2

    run(scenario)


@pytest.mark.parametrize("content", ["x" * 200, {"a": {1, 2}}, float("nan")], ids=["long", "no JSON", "nan"])
def test_what_the_store_refuses(content: Any, tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        small = wire.store(limits=hansard.Limits(content_bytes=100))
        capture = Capture(small, spool=tmp_path)

        async def agent(text: str) -> hansard.capture.Reply:
            return hansard.capture.Reply(content=content)

        await capture(agent)("q", conversation_id="c")
        assert await said(small) == ["q"]
        assert (capture.counts.refused, capture.counts.spooled) == (1, 0)
        await capture.close()

    run(scenario)


def test_the_owner_is_another(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        await store.append_message("c", "user", "mine", user_id="ann")
        capture = Capture(store, spool=tmp_path)
        assert await capture(echo)("yours", conversation_id="c", user_id="ben") == "re: yours"
        assert await said(store) == ["mine"]
        assert capture.counts.refused == 2
        await capture.close()

    run(scenario)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_the_store_goes_away_and_the_spool_brings_everything_in(when: str, tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, spool=tmp_path)

        @capture
        async def agent(text: str) -> str:
            if when == "during":
                wire.state = "away"
            return f"re: {text}"

        await agent("first", conversation_id="c") if when == "after" else None
        wire.state = "there" if when == "during" else "away"
        assert await agent("second", conversation_id="c") == "re: second"
        wire.state = "away"
        assert await agent("third", conversation_id="c") == "re: third"
        wire.state = "there"
        assert await capture.replay()
        first = ["first", "re: first"] if when == "after" else []
        assert await said(store) == [*first, "second", "re: second", "third", "re: third"]
        assert list(tmp_path.iterdir()) == []
        assert await capture.replay(), "a second time there is nothing to do"
        times = [message.created_at for message in await store.get_messages("c")]
        assert times == sorted(times)
        assert (capture.counts.lost, capture.counts.replayed) == (0, capture.counts.spooled)
        await capture.close()

    run(scenario)


def test_the_spool_is_replayed_by_itself_and_in_order(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, spool=tmp_path)
        agent = capture(echo)
        wire.state = "away"
        await agent("one", conversation_id="c")
        wire.state = "there"
        await agent("two", conversation_id="c")
        async with asyncio.timeout(50):
            while capture.counts.replayed < capture.counts.spooled:
                await agent("more", conversation_id="c")
                await asyncio.sleep(0.05)
        found = await said(store)
        assert found[:4] == ["one", "re: one", "two", "re: two"]
        assert set(found[4:]) == {"more", "re: more"}
        await capture.close()

    run(scenario)


def test_the_spool_is_replayed_while_nobody_says_anything(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async with Capture(store, spool=tmp_path) as capture:
            wire.state = "away"
            await capture(echo)("one", conversation_id="c")
            wire.state = "there"
            async with asyncio.timeout(50):
                while capture.counts.replayed < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert await said(store) == ["one", "re: one"]

    run(scenario)


def test_answers_that_get_lost_store_nothing_twice(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, spool=tmp_path)
        wire.loses_answers = True
        await capture(echo)("once", conversation_id="c")
        assert not await capture.replay()
        wire.loses_answers = False
        assert await capture.replay()
        assert await said(store) == ["once", "re: once"]
        await capture.close()

    run(scenario)


@pytest.mark.parametrize("lost", [False, True], ids=["away", "answers lost"])
@pytest.mark.parametrize("spooled", [False, True], ids=["no spool", "spool"])
def test_a_stream_over_a_store_that_goes_and_comes_back(lost: bool, spooled: bool, tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, interval=0.01, spool=tmp_path if spooled else None)
        heard = []
        async for piece in capture(slowly)("a b c d e f", conversation_id="c", message_id="q"):
            heard.append(piece.strip())
            wire.loses_answers = lost and piece in ("b ", "c ")
            wire.state = "away" if not lost and piece in ("b ", "c ") else "there"
        assert heard == ["a", "b", "c", "d", "e", "f"]
        assert await capture.replay()
        assert await said(store) == ["a b c d e f", "a b c d e f "]
        assert (await store.get_messages("c"))[1].status == "complete"
        await capture.close()

    run(scenario)


def test_a_stream_that_ends_while_the_store_is_away(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, interval=0.01, spool=tmp_path)
        async for piece in capture(slowly)("a b c", conversation_id="c"):
            wire.state = "away" if piece == "c " else "there"
        assert capture.counts.spooled == 1
        wire.state = "there"
        assert await capture.replay()
        answer = (await store.get_messages("c"))[-1]
        assert (answer.content, answer.status, answer.metadata) == ("a b c ", "complete", None)
        await capture.close()

    run(scenario)


def test_what_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        await store.append_message("c", "user", "before")
        capture = Capture(store, spool=tmp_path)
        wire.state = "away"
        await capture(echo)("spooled", conversation_id="c")
        wire.state = "there"
        await store.delete_conversation("c")
        await store.append_message("c", "user", "anew")
        assert await capture.replay()
        assert await said(store) == ["anew"]
        assert capture.counts.refused == 2
        await capture.close()

    run(scenario)


def test_a_begun_answer_does_not_come_back_after_its_conversation_was_deleted(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, interval=0.01, spool=tmp_path)
        async for piece in capture(slowly)("a b c", conversation_id="c"):
            if piece == "b ":
                await store.delete_conversation("c")
                wire.state = "away"
        assert capture.counts.spooled == 1
        wire.state = "there"
        assert await capture.replay()
        assert await store.get_conversation("c") is None
        assert capture.counts.refused == 1
        await capture.close()

    run(scenario)


def test_the_second_attempt_at_an_answer_completes_the_first_after_a_replay(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, interval=0.01, spool=tmp_path)
        stream = capture(slowly)("a b c", conversation_id="c", message_id="q")
        assert await anext(stream) == "a "
        await stream.aclose()
        assert (await store.get_messages("c"))[-1].status == "interrupted"
        wire.state = "away"
        assert [piece async for piece in capture(slowly)("a b c", conversation_id="c", message_id="q")]
        wire.state = "there"
        assert await capture.replay()
        answer = (await store.get_messages("c"))[-1]
        assert (answer.content, answer.status) == ("a b c ", "complete")
        await capture.close()

    run(scenario)


def test_many_turns_wait_for_one_attempt_to_replay(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        spool = Spool(tmp_path)
        spool.add(HOME, SpooledMessage(conversation_id="c", message=Message("user", "left", id="m")))
        spool.close()
        capture = Capture(store, spool=tmp_path, timeout=0.2)
        wire.state = "hanging"
        wire.calls.clear()
        await asyncio.gather(*(capture(echo)(f"{number}", conversation_id="c") for number in range(20)))
        assert len(wire.calls) < 20, "each would wait for its own attempt, one after the other"
        wire.state = "there"
        assert await coming(capture.replay)
        assert len(await store.get_messages("c", last=100)) == 41
        await capture.close()

    run(scenario)


def test_a_long_spool_is_replayed_behind_the_agent(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        spool = Spool(tmp_path)
        for number in range(30):
            spool.add(HOME, SpooledMessage(conversation_id="c", message=Message("user", f"{number}", id=f"m{number}")))
        spool.close()
        append = wire.inner.append

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.05)
            return await append(*args)

        cast(Any, wire.inner).append = slow
        capture = Capture(store, spool=tmp_path, timeout=0.2)
        assert await capture(echo)("new", conversation_id="c") == "re: new"
        assert capture.counts.replayed < 30, "it did not wait for the whole replay"
        assert await coming(capture.replay)
        assert await said(store, "c") == [f"{number}" for number in range(20)]
        assert [each.content for each in await store.get_messages("c", last=3)] == ["29", "new", "re: new"]
        await capture.close()

    run(scenario)


def test_a_file_that_another_process_removes_while_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [*glob(self, pattern), tmp_path / f"{HOME.name}-0.spool"])
    spool.add(HOME, SpooledMessage(conversation_id="c", message=Message("user", "kept", id="m")))
    assert [entry.message.id for batch in spool.take(HOME) for entry in batch.entries] == ["m"]
    spool.close()


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        # /dev/full takes nothing, as a full disk does.
        spool = Spool(tmp_path)
        capture = Capture(store, spool=spool)
        agent = capture(echo)
        await agent("before", conversation_id="c")
        wire.state = "away"
        await agent("kept", conversation_id="c")
        (file,) = spool._writing.values()
        disk, file.fd = file.fd, os.open("/dev/full", os.O_WRONLY)
        assert await agent("lost", conversation_id="c") == "re: lost"
        os.close(file.fd)
        file.fd = disk
        assert (capture.counts.spooled, capture.counts.lost) == (2, 2)
        wire.state = "there"
        assert await capture.replay()
        assert await said(store) == ["before", "re: before", "kept", "re: kept"]
        await capture.close()

    run(scenario)
    assert any(os.strerror(errno.ENOSPC) in record.message for record in caplog.records)


def entry(number: int) -> SpooledMessage:
    return SpooledMessage(conversation_id="c", message=Message("user", f"text {number}", id=f"m{number}"))


def test_a_disk_that_fills_up_in_the_middle_of_a_line_leaves_the_lines_before_it(tmp_path: Path) -> None:
    limit = 2000
    script = f"""
import resource, signal, sys
from tests.capture.test_faults import HOME, entry
from hansard.capture import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
spool = Spool({str(tmp_path)!r})
for number in range(100):
    try:
        spool.add(HOME, entry(number))
    except OSError as error:
        print(number, error.errno)
        break
"""
    # -B: compiled modules would be cut off too, and found by others.
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    number, code = map(int, done.stdout.split())
    assert code == errno.EFBIG
    assert number > 1
    spool = Spool(tmp_path)
    (batch,) = spool.take(HOME)
    assert [each.message.id for each in batch.entries] == [f"m{each}" for each in range(number)]
    assert batch.path.read_bytes().endswith(b"\n")
    spool.close()


def test_the_spool_has_an_end(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=500)
    spool.add(HOME, entry(1))
    with pytest.raises(OSError, match="the spool is full"):
        spool.add(HOME, SpooledMessage(conversation_id="c", message=Message("user", "x" * 500, id="long")))
    (batch,) = spool.take(HOME)
    assert [each.message.id for each in batch.entries] == ["m1"]
    spool.close()
    wrong: Any
    for wrong in (0, "many", True):
        with pytest.raises(hansard.ValidationError, match="max_bytes"):
            Spool(tmp_path, max_bytes=wrong)


def test_torn_and_damaged_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.add(HOME, entry(number))
    spool.close()
    (path,) = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff{garbage\n" + lines[1] + lines[2][:-20])
    spool = Spool(tmp_path)
    (batch,) = spool.take(HOME)
    assert [each.message.id for each in batch.entries] == ["m0", "m1"]
    assert path.with_suffix(".corrupt").read_bytes() == b"\xff{garbage\n"
    assert {record.levelname for record in caplog.records} == {"WARNING", "ERROR"}
    spool.done(batch)
    assert not spool.is_waiting(HOME)
    spool.close()


def test_views_do_not_share_what_waits(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    homes = [SpoolView("default"), SpoolView("acme"), SpoolView("acme", "ann"), SpoolView("acme", "")]
    for number, home in enumerate(homes):
        spool.add(home, entry(number))
    for number, home in enumerate(homes):
        assert [each.message.id for batch in spool.take(home) for each in batch.entries] == [f"m{number}"]
    spool.close()
    # Someone renames a file to get it into another tenant: the lines know better.
    victim = next(tmp_path.glob(f"{homes[1].name}-*"))
    victim.rename(tmp_path / victim.name.replace(homes[1].name, homes[0].name))
    spool = Spool(tmp_path)
    assert [each.message.id for batch in spool.take(homes[0]) for each in batch.entries] == ["m0"]
    spool.close()


def test_what_a_dead_process_left_is_taken_over_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    script = f"""
import sys, time
from tests.capture.test_faults import HOME, entry
from hansard.capture import Spool
spool = Spool({str(tmp_path)!r})
spool.add(HOME, entry(1))
print("kept", flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"kept\n"
    spool = Spool(tmp_path)
    assert list(spool.take(HOME)) == [], "its writer lives"

    async def beside(wire: Wire, store: Store) -> None:
        capture = Capture(store, spool=spool)
        await capture(echo)("not behind", conversation_id="c")
        assert await said(store) == ["not behind", "re: not behind"]
        assert capture.counts.spooled == 0, "what another process has to replay is its own business"

    run(beside)
    child.kill()
    child.communicate(timeout=60)

    async def scenario(wire: Wire, store: Store) -> None:
        capture = Capture(store, spool=spool)
        await capture(echo)("new", conversation_id="c")
        assert await said(store) == ["text 1", "new", "re: new"], "the old comes first"
        assert list(tmp_path.iterdir()) == []
        await capture.close()

    run(scenario)


def test_an_unwritable_folder(tmp_path: Path) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        (tmp_path / "file").write_text("not a folder")
        capture = Capture(store, spool=tmp_path / "file" / "spool")
        wire.state = "away"
        assert await capture(echo)("hello", conversation_id="c") == "re: hello"
        assert capture.counts.lost == 2
        await capture.close()

    run(scenario)


CHILD = """
import asyncio, sys
import hansard
from hansard.capture import Capture

async def main(url):
    async with hansard.connect(url) as store:
        async def agent(text):
            for number in range(50):
                yield f"{number} "
            while True:
                found = await store.get_messages("c", roles=["assistant"])
                if found and found[0].content.endswith("49 "):
                    break
                await asyncio.sleep(0.01)
            for number in range(50, 55):
                yield f"{number} "
            print("said", flush=True)
            await asyncio.sleep(600)

        async for piece in Capture(store, interval=0.05, lease=600)(agent)("count", conversation_id="c"):
            pass

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("url", ["sqlite:///{}/store.db", "file:{}/store"])
def test_a_kill_in_the_middle_of_a_stream(url: str, tmp_path: Path) -> None:
    """At most the last interval is lost; what is left reads as interrupted once the lease has run out."""
    where = url.format(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", CHILD, where], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"said\n"
    child.kill()
    child.communicate(timeout=60)
    spoken = [f"{number} " for number in range(55)]

    async def scenario() -> None:
        from datetime import UTC, datetime, timedelta

        async with hansard.connect(where) as store:
            question, answer = await store.get_messages("c")
            assert (question.content, answer.status) == ("count", "in_progress"), "its lease still runs"
            assert "".join(spoken).startswith(answer.content)
            assert len(answer.content) >= len("".join(spoken[:50])), "what was written before the last interval"
        later = lambda: datetime.now(UTC) + timedelta(hours=1)  # noqa: E731
        async with hansard.connect(where, clock=later) as store:
            assert [each.status for each in await store.get_messages("c")] == ["complete", "interrupted"]
            assert await store.check() == []

    asyncio.run(scenario())


def test_lines_are_readable(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add(HOME, entry(1))
    spool.close()
    (path,) = tmp_path.iterdir()
    line = json.loads(path.read_text())
    assert line["entry"]["message"]["content"] == "text 1"
    assert path.stat().st_mode & 0o077 == 0, "only its owner may read it"
