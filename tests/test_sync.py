"""The blocking API: the same surface, in scripts, in threads, and inside a running event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest
from msgspec import structs
from tests.wait import PATIENCE

import hansard
from hansard import sync
from hansard.backends import schemes
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend, Capabilities
from hansard.errors import Closed, Conflict, Unsupported
from hansard.model import Message
from hansard.store import Store, admin, blobs, records
from hansard.testing import facts

PAIRS = [
    (Store, sync.Store),
    (records.Records, sync.Records),
    (blobs.Blobs, sync.Blobs),
    (admin.Admin, sync.Admin),
]
ONLY_ASYNC = {"is_root"}
ONLY_BLOCKING = {"over"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_the_surfaces_are_equal(one: type, other: type) -> None:
    inherited = {"capabilities", "limits"}
    assert public(one) - ONLY_ASYNC - inherited == public(other) - ONLY_BLOCKING - inherited
    assert inherited <= public(sync.Store)
    for name in public(one) & public(other):
        member, twin = inspect.getattr_static(one, name), inspect.getattr_static(other, name)
        assert isinstance(member, property) == isinstance(twin, property), name
        if inspect.isfunction(member):
            assert list(inspect.signature(member).parameters) == list(inspect.signature(twin).parameters), name


class Suspending:
    """A backend that really waits, as one over a network does."""

    def __init__(self) -> None:
        self._inner = MemoryBackend()

    @property
    def capabilities(self) -> Capabilities:
        return structs.replace(self._inner.capabilities, name="suspending", blocking=False)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return await found(*args, **kwargs)

        return call


def suspending() -> Backend:
    return cast(Backend, Suspending())


@pytest.fixture(params=["direct", "on a loop thread"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return MemoryBackend() if request.param == "direct" else suspending()


@pytest.fixture
def store(backend: Backend) -> Iterator[sync.Store]:
    with sync.Store.over(backend) as opened:
        yield opened


def test_in_a_plain_script(store: sync.Store) -> None:
    store.append("c", [Message("user", number) for number in range(150)])
    assert [message.content for message in store.iter_messages("c")] == list(range(150))
    store.records.put(["n"], "k", 1)
    assert [record.value for record in store.records.iter()] == [1]
    assert store.blobs.get(store.blobs.put(b"x").sha256) == b"x"
    assert list(store.admin.check()) == [1]
    assert store.user("u").get_conversation("c") is None
    with pytest.raises(Conflict):
        store.append("c", Message("user", "x"), expected_version=7)


def test_a_direct_store_needs_no_thread_and_no_loop() -> None:
    before = set(threading.enumerate())
    with sync.connect("memory://") as store:
        store.append("c", Message("user", "x"))
        list(store.iter_messages("c"))
        list(store.admin.check())
        assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_threads_may_share_a_store(store: sync.Store) -> None:
    def work(number: int) -> None:
        for part in range(20):
            store.append(f"c{number % 3}", Message("user", [number, part]))
            store.get_messages(f"c{number % 3}", last=5)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert store.stats().messages == 120
    assert store.check() == []


def test_inside_a_running_loop(store: sync.Store) -> None:
    """What a notebook does, and a framework that calls blocking code from a coroutine. It neither hangs nor breaks."""

    async def main() -> list[Any]:
        store.append("c", Message("user", "x"))
        assert store.get_conversation("c") is not None
        return [message.content for message in store.iter_messages("c")]

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == ["x"]


def test_opening_inside_a_running_loop() -> None:
    async def main() -> int:
        with sync.connect("memory://") as store:
            store.append("c", Message("user", "x"))
            return len(store.get_messages("c"))

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == 1


def test_beside_the_async_store_of_the_same_backend(backend: Backend) -> None:
    async def main() -> list[Any]:
        inner = Store(backend)
        blocking = sync.Store.over(backend)
        await inner.append_message("c", "user", "async")
        await asyncio.to_thread(blocking.append_message, "c", "user", "blocking")
        return [message.content for message in await inner.get_messages("c")]

    assert asyncio.run(main()) == ["async", "blocking"]


async def slow_title(messages: Sequence[Message]) -> str:
    await asyncio.sleep(0.001)
    return f"About {messages[0].content}"


def test_an_async_title(backend: Backend) -> None:
    with sync.Store.over(backend, auto_title=slow_title) as store:
        appended = store.append("c", Message("user", "x"))
        found = store.get_conversation("c")
        assert found is not None
        assert found.title == "About x"
        assert appended.version == found.version


def test_an_async_title_of_a_connected_store(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    async def opener(url: Any, *, blocking: bool, upgrade: bool) -> Backend:
        return backend

    monkeypatch.setattr(schemes, "_find_opener", lambda url: opener)
    with sync.connect("any://", auto_title=slow_title) as store:
        store.append_message("c", "user", "x")
        found = store.get_conversation("c")
        assert found is not None
        assert found.title == "About x"


def test_a_plain_title(backend: Backend) -> None:
    with sync.Store.over(backend, auto_title=lambda messages: None) as store:
        store.append("c", Message("user", "x"))
        found = store.get_conversation("c")
        assert found is not None
        assert found.title is None


def test_watch_yields_what_other_threads_append(store: sync.Store) -> None:
    last = store.append("c", Message("user", "old")).messages[0]
    tail = store.watch("c", after=last.id)
    seen: list[Any] = []

    def follow() -> None:
        seen.extend(next(tail).content for _ in range(3))

    watcher = threading.Thread(target=follow)
    watcher.start()
    for number in range(3):
        time.sleep(0.005)
        store.append_message("c", "user", number)
    watcher.join(PATIENCE)
    assert seen == [0, 1, 2]
    tail.close()  # type: ignore[attr-defined]


def test_a_watcher_that_is_left_open(backend: Backend) -> None:
    # Closing the store must not wait for it, nor leave a task behind that complains.
    store = sync.Store.over(backend)
    last = store.append("c", Message("user", "old")).messages[0]
    tail = store.watch("c", after=last.id)
    store.append_message("c", "user", "new")
    assert next(tail).content == "new"
    store.close()
    del tail


class Pondering:
    """A summarizer that thinks for ever, and says when it has begun."""

    model = prompt_id = "pondering"

    def __init__(self) -> None:
        self.is_asked = threading.Event()

    async def summarize(self, request: Any) -> str:
        self.is_asked.set()
        await asyncio.sleep(3600)
        return ""


def test_who_waits_in_another_thread_is_told_of_the_end(backend: Backend) -> None:
    before = set(threading.enumerate())
    store = sync.Store.over(backend)
    store.append("c", [Message("user", "x" * 50) for _ in range(30)])
    pondering = Pondering()

    def watch() -> None:
        for _ in store.watch("c"):
            pass

    with ThreadPoolExecutor(2) as pool:
        waiting: list[Future[Any]] = [pool.submit(watch), pool.submit(store.summarize, "c", pondering)]
        assert pondering.is_asked.wait(PATIENCE)
        store.close()
        for each in waiting:
            with pytest.raises(Closed):
                each.result(PATIENCE)
    assert set(threading.enumerate()) <= before  # those of other tests may end meanwhile


def test_who_comes_after_the_end_leaves_no_thread(backend: Backend) -> None:
    before = set(threading.enumerate())
    store = sync.Store.over(backend)
    store.append("c", [Message("user", "x") for _ in range(3)])
    messages = store.iter_messages("c")
    next(messages)
    store.close()
    cast("Generator[Message]", messages).close()
    with pytest.raises(Closed):
        store.append_message("c", "user", "y")
    with pytest.raises(Closed):
        next(store.watch("c"))
    assert set(threading.enumerate()) <= before  # those of other tests may end meanwhile


def test_a_call_that_would_wait_for_itself_is_refused(store: sync.Store) -> None:
    class Curious:
        model = prompt_id = "curious"

        async def summarize(self, request: Any) -> str:
            with pytest.raises(Unsupported, match=r"would deadlock.*asyncio\.to_thread"):
                store.search("x", mode="words")
            # It does what it is told.
            return f"{len(await asyncio.to_thread(store.search, 'word', mode='words'))} hits"

    store.append("c", [Message("user", "a word") for _ in range(30)])
    summary = store.summarize("c", Curious())
    assert summary is not None
    assert summary.text == "10 hits"


def test_a_backend_that_lies_about_blocking_is_found_out() -> None:
    class Lying(Suspending):
        @property
        def capabilities(self) -> Capabilities:
            return structs.replace(super().capabilities, blocking=True)

    with pytest.raises(RuntimeError, match="blocking has suspended"):
        sync.Store.over(cast(Backend, Lying())).append("c", Message("user", "x"))


def test_a_failed_opening_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opener(url: Any, *, blocking: bool, upgrade: bool) -> Any:
        raise hansard.Unavailable("not today")

    monkeypatch.setattr(schemes, "_find_opener", lambda url: opener)
    before = set(threading.enumerate())
    with pytest.raises(hansard.Unavailable):
        sync.connect("elsewhere://x")
    assert set(threading.enumerate()) <= before


def test_a_store_may_be_closed_twice(store: sync.Store) -> None:
    store.close()
    store.close()
    with pytest.raises(hansard.Closed):
        store.get_messages("c")


def test_both_apis_say_the_same(backend: Backend) -> None:
    batch = [Message("user", {"a": [1, None]}, id="m", metadata={"k": 1})]
    with sync.Store.over(backend) as store:
        blocking = store.append("c", batch).messages
    waited = asyncio.run(Store(MemoryBackend()).append("c", batch)).messages
    same = frozenset({"created_at"})
    assert facts(blocking, leave_out=same) == facts(waited, leave_out=same)
