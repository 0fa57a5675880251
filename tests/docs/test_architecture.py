"""The tour of the code names files and functions that exist, and each call takes the way that its table shows."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import httpx
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from tests.docs import pages

import hansard
from hansard import sync
from hansard.server.app import create_app

PAGE = pages.read("docs/architecture.md")
SOURCE = Path(hansard.__file__).parent
SECTIONS = pages.sections(PAGE, 2)
_FUNCTION = re.compile(r"^\| `([\w/.]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
_PATH = re.compile(r"`([\w/.]+(?:\.py|\.sql|\.toml|/))`")


class Hop(NamedTuple):
    path: str
    name: str


def hops(section: str) -> list[Hop]:
    return [Hop(*found) for found in _FUNCTION.findall(SECTIONS[section])]


HOPS = [hop for section in SECTIONS for hop in hops(section)]


@pytest.mark.parametrize("path", sorted(set(_PATH.findall(pages.prose(PAGE)))))
def test_every_path_exists(path: str) -> None:
    places = [SOURCE / path, pages.ROOT / path, *SOURCE.glob(f"*/*/{path}")]
    assert any(place.exists() for place in places), path


@pytest.mark.parametrize("hop", HOPS, ids=lambda hop: f"{hop.path}:{hop.name}")
def test_every_function_exists(hop: Hop) -> None:
    module = importlib.import_module("hansard." + hop.path.removesuffix(".py").replace("/", "."))
    function = reduce(getattr, hop.name.split("."), module)
    assert callable(function)


def test_every_name_of_the_prose_exists() -> None:
    """Names such as `Storage.write` or `StoredBackend.append` outside of the tables."""
    known = {name for hop in HOPS for name in hop.name.split(".")}
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    for name in re.findall(r"`([A-Z]\w+(?:\.\w+)?)[`(]", pages.prose(PAGE)):
        for word in name.split("."):
            assert word in known or re.search(rf"\b(?:class|def) {word}\b", source), name


def test_the_layers_are_those_of_the_linter() -> None:
    settings = tomllib.loads(pages.read("pyproject.toml"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    wanted = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    rows = re.findall(r"^\| (`[^|]+`) \|", SECTIONS["The layers"], re.MULTILINE)
    assert [re.findall(r"\w+", row) for row in rows] == wanted


# The ways


class Trace:
    """The functions of ours that were called, in every thread that began after this."""

    def __init__(self) -> None:
        self.calls: list[Hop] = []
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self._is_on and event == "call" and code.co_filename.startswith(str(SOURCE)):
            self.calls.append(Hop(Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname))

    @contextmanager
    def on(self) -> Iterator[None]:
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False


@pytest.fixture
def trace() -> Iterator[Trace]:
    trace = Trace()
    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(trace)
    threading.setprofile(trace)
    yield trace
    sys.setprofile(before[0])
    threading.setprofile(before[1])


def missing(section: str, calls: list[Hop]) -> Hop | None:
    """The first hop of a table that the calls do not make after the one before it."""
    made = iter(calls)
    return next((hop for hop in hops(section) if hop not in made), None)


def test_a_hop_out_of_order_is_missed() -> None:
    first, second, *_ = way = hops("The way of an append")
    assert missing("The way of an append", way) is None
    assert missing("The way of an append", [second, first]) == second
    assert missing("The way of an append", way[:-1]) == way[-1]


def _append(store: sync.Store) -> object:
    return store.append_message("c1", "user", "Hello")


def _search(store: sync.Store) -> object:
    return store.search("hello")


def _prompt(store: sync.Store) -> object:
    return store.assemble_prompt("c1")


@pytest.mark.parametrize(
    ("section", "url", "call"),
    [
        ("The way of an append", "memory://", _append),
        ("The same append on SQLite", "sqlite:///chats.db", _append),
        ("The way of a search", "sqlite:///chats.db", _search),
        ("The way of a prompt", "sqlite:///chats.db", _prompt),
    ],
)
def test_the_way_of_a_call(
    section: str,
    url: str,
    call: Callable[[sync.Store], object],
    trace: Trace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.connect(url) as store:
        store.append("c1", [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello to you"}])
        with trace.on():
            assert call(store)
    assert hops(section)
    assert missing(section, trace.calls) is None


def test_the_way_of_a_request(trace: Trace, tmp_path: Path) -> None:
    asyncio.run(_post(trace, f"sqlite:///{tmp_path}/chats.db"))
    assert hops("The way of an HTTP request")
    assert missing("The way of an HTTP request", trace.calls) is None


async def _post(trace: Trace, url: str) -> None:
    async with hansard.connect(url) as store:
        transport = httpx.ASGITransport(create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with trace.on():
                body = {"messages": [{"role": "user", "content": "Hello"}]}
                answer = await client.post("/api/v1/conversations/c1/messages", json=body)
    assert answer.status_code == 200, answer.text


def test_the_way_of_a_checkpoint(trace: Trace, tmp_path: Path) -> None:
    with sync.connect(f"sqlite:///{tmp_path}/chats.db") as store:
        saver = store.langgraph_checkpointer
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [HumanMessage("Hello", id="m1")]}
        checkpoint["channel_versions"] = {"messages": 1}
        config: Any = {"configurable": {"thread_id": "c1", "checkpoint_ns": ""}}
        with trace.on():
            saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"messages": 1})
        assert [message.text for message in store.get_messages("c1")] == ["Hello"]
    assert hops("The way of a checkpoint")
    assert missing("The way of a checkpoint", trace.calls) is None
