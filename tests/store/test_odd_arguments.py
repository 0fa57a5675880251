"""Odd values in every argument of every public method, on three backends side by side.

The methods and their arguments are found by their signatures, so that a new one is tried as well. Only a `HansardError`
may come out, and all three backends must answer alike. `HANSARD_EXAMPLES=500` tries more.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import HansardError, Message, Participant, Source, Store, Usage
from hansard.assembly import ExtractiveSummarizer
from hansard.errors import Unsupported
from hansard.store import admin, blobs, records
from hansard.store.records import Delete, Put
from hansard.testing.clock import Clock

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
EACH = 4 + EXAMPLES // 10
"""Odd values that each argument is given."""


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Row(list[Any]):
    pass


class Table(dict[str, Any]):
    pass


class Moment(datetime):
    pass


class Colour(Enum):
    RED = "red"


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@cache
def nested(depth: int) -> Any:
    """Built once, because building and freeing so deep a list takes longer than all calls that refuse it."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def generated() -> Iterator[Any]:
    yield "a"
    yield 1


async def later() -> str:
    return "c"


async def function(*given: Any, **named: Any) -> str:
    return "what was said"


# Created for each call: a generator is consumed, and a list might be changed.
ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "zero": lambda: 0,
    "one": lambda: 1,
    "minus one": lambda: -1,
    "a big number": lambda: 2**63,
    "a huge number": lambda: 10**5000,
    "minus a huge number": lambda: -(10**5000),
    "a subclass of int": lambda: Number(1),
    "a float": lambda: 1.5,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "an empty text": lambda: "",
    "a text": lambda: "c",
    "another text": lambda: "nothing like it",
    "a subclass of str": lambda: Text("c"),
    "a long text": lambda: "x" * 100_000,
    "NUL": lambda: "a\0b",
    "half a pair": lambda: "\ud800",
    "half a pair in a subclass": lambda: Text("\udfff"),
    "bytes": lambda: b"c",
    "a bytearray": lambda: bytearray(b"c"),
    "a memoryview": lambda: memoryview(b"c"),
    "an empty list": list,
    "a list": lambda: ["c", 1],
    "a list of None": lambda: [None],
    "a subclass of list": lambda: Row(["c"]),
    "a deep list": lambda: nested(100_000),
    "a tuple": lambda: ("c", "d"),
    "a set": lambda: {"c"},
    "an empty dict": dict,
    "a dict": lambda: {"role": "user", "content": "x"},
    "a subclass of dict": lambda: Table(a=Text("b")),
    "a dict with odd keys": lambda: {1: 2, None: 3},
    "a deep dict": lambda: {"a": nested(100_000)},
    "a dict with a huge number": lambda: {"a": 10**5000},
    "a time": lambda: datetime(2026, 1, 1, tzinfo=UTC),
    "a naive time": lambda: datetime(2026, 1, 1),  # noqa: DTZ001
    "a subclass of datetime": lambda: Moment(2026, 1, 1, tzinfo=UTC),
    "a naive subclass of datetime": lambda: Moment(2026, 1, 1),
    "the last time": lambda: datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    "a day": lambda: date(2026, 1, 1),
    "a timedelta": lambda: timedelta(days=1),
    "a long timedelta": lambda: timedelta.max,
    "an enum": lambda: Colour.RED,
    "an object": object,
    "a type": lambda: str,
    "a function": lambda: function,
    "a summarizer": ExtractiveSummarizer,
    "without repr": Silent,
    "a generator": generated,
    "a coroutine": later,
    "a message": lambda: Message("user", "x"),
    "an odd message": lambda: Message(Text("user"), nested(300), id=Text("m9")),
    "a participant": lambda: Participant("user", "ann"),
    "a source": lambda: Source("d"),
    "usage": lambda: Usage(input_tokens=1),
    "a put": lambda: [Put(["n"], "k", {"a": 1}, Number(0))],
    "a delete": lambda: [Delete(("n",), Text("k"))],
    "a list of odd messages": lambda: [Message("user", "x", mentions=(Text("a"),), usage=Usage(Number(1)))],
}

# A good value of every argument that has no default.
GOOD: dict[str, Callable[[], Any]] = {
    "conversation_id": lambda: "c",
    "message_id": lambda: "m1",
    "messages": lambda: [Message("user", "hello there")],
    "role": lambda: "user",
    "content": lambda: "hello",
    "text": lambda: "a summary",
    "from_seq": lambda: 1,
    "to_seq": lambda: 1,
    "branch": lambda: "side",
    "ids": lambda: ["m1"],
    "summarizer": ExtractiveSummarizer,
    "query": lambda: "hello",
    "user_id": lambda: "ann",
    "tenant": lambda: "acme",
    "namespace": lambda: ["n"],
    "key": lambda: "k",
    "value": lambda: 1,
    "label": lambda: "urgent",
    "share_id": lambda: "share_1",
    "token": lambda: "t" * 43,
    "keys": lambda: [(["n"], "k")],
    "batch": lambda: [Put(["n"], "k", 1)],
    "sha256": lambda: "0" * 64,
    "data": lambda: b"data",
    "lines": list,
    "session_id": lambda: "c",
    "target": lambda: "copy.db",
    "other": lambda: None,
}
PARTS: dict[str, type] = {"": Store, "records": records.Records, "blobs": blobs.Blobs, "admin": admin.Admin}
ADAPTERS = re.compile("adk_|claude_|crewai_|openai_session|pydantic_ai_|langgraph_")
"""Methods whose arguments another package checks."""
URLS = ("memory://", "file://{}/files", "sqlite:///{}/store.db")


def methods() -> Iterator[tuple[str, str]]:
    for part, kind in PARTS.items():
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name != "close" and not ADAPTERS.match(name):
                yield part, name


def parameters(part: str, name: str) -> dict[str, inspect.Parameter]:
    found = inspect.signature(getattr(PARTS[part], name)).parameters
    return {key: each for key, each in found.items() if key != "self"}


def cases(part: str, name: str) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Yields each argument with an odd value alone, and sometimes two of them."""
    chance = random.Random(f"{part}.{name} {EXAMPLES}")
    known = parameters(part, name)
    needed = {key: GOOD[key] for key, each in known.items() if each.default is each.empty}
    yield "as it should be", needed
    for key in known:
        for odd in chance.sample(sorted(ODD), min(EACH, len(ODD))):
            yield f"{key}={odd}", {**needed, key: ODD[odd]}
    for _ in range(EACH if len(known) > 1 else 0):
        chosen = {key: chance.choice(sorted(ODD)) for key in chance.sample(sorted(known), 2)}
        yield str(chosen), {**needed, **{key: ODD[odd] for key, odd in chosen.items()}}


class Stores:
    """The same store on each backend, with the same history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._exit = contextlib.AsyncExitStack()
        self.stores: list[Store] = []

    async def __aenter__(self) -> list[Store]:
        for url in URLS:
            store = await self._exit.enter_async_context(hansard.connect(url.format(self._folder), clock=Clock()))
            self.stores.append(store)
            await fill(store)
        return self.stores

    async def __aexit__(self, *error: object) -> None:
        await self._exit.aclose()


async def fill(store: Store) -> None:
    with contextlib.suppress(HansardError):
        texts = [Message("user", "hello one", id="m1"), Message("assistant", "hello two", id="m2")]
        await store.append("c", texts, user_id="ann", revive=True)
        await store.branch("c", at="m1", branch_id="side", activate=False)
        await store.records.put(["n"], "k", {"a": 1})


async def answer(
    store: Store, part: str, name: str, given: dict[str, Callable[[], Any]], patience: float = 0.02
) -> Any:
    """Returns the result or the HansardError of a method, without values that differ between calls.

    A live tail is read until nothing comes for as long as `patience` says, in seconds.
    """
    made = {key: make() for key, make in given.items()}
    try:
        found = getattr(getattr(store, part) if part else store, name)(**made)
        if inspect.isawaitable(found):
            found = await asyncio.wait_for(found, 30)
        elif isinstance(found, AsyncIterator):
            found = await _first(found, patience)
        return "result", plain(found)
    except HansardError as error:
        return "error", "Unsupported" if isinstance(error, Unsupported) else type(error).__name__, error.code
    finally:
        for value in made.values():
            if inspect.iscoroutine(value):
                value.close()


async def _first(iterator: AsyncIterator[Any], patience: float) -> list[Any]:
    """Returns the items of an iterator until it waits: a live tail has no end."""
    found: list[Any] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience if "watch" in str(iterator) else 30):
            async for each in iterator:
                found.append(each)  # noqa: PERF401  (what came before a time-out counts)
    return found


_OURS = re.compile(r"(msg|conv|branch|share)_[0-9A-Za-z]+|\d{4}-\d\d-\d\dT[^\"']*|cursor:[^\"']*|[0-9a-f]{64}")
_DIFFERS = {
    "physically_gone",
    "bytes",
    "next_cursor",
    "previous_cursor",
    "unindexed",
    "blobs",
    "search",
    "at",
    "backend",
    "token",
}
_UNLIKE = {"backup", "check", "reindex"}
"""Methods that write a file of the same name, or report progress in their own steps."""

_REFUSED = {
    ("", "add_member"),
    ("", "backup"),
    ("", "copy_to"),
    ("", "embed"),
    ("", "import_"),
    ("", "open_share"),
    ("", "search_tool"),
    ("admin", "copy_to"),
    ("admin", "vacuum"),
    ("blobs", "get"),
}
"""Methods that need more than good arguments: another store, file or user, an embedder, a share, a blob."""


def plain(value: Any) -> Any:
    """Returns a result as text, without generated ids and times, and without fields in which backends may differ."""
    if isinstance(value, Store):
        return "a view"
    if isinstance(value, msgspec.Struct):
        value = {key: getattr(value, key) for key in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in _DIFFERS}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return _OURS.sub("…", repr(value))
    return type(value).__name__


def test_every_argument_has_a_good_value() -> None:
    needed = {
        key for part, name in methods() for key, each in parameters(part, name).items() if each.default is each.empty
    }
    assert needed <= set(GOOD)


@pytest.mark.parametrize(("part", "name"), list(methods()), ids=lambda value: value or "store")
def test_odd_values_are_refused_or_taken_alike_on_every_backend(
    part: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong: dict[str, Any] = {}

    async def play() -> None:
        async with Stores(tmp_path) as stores:
            for what, given in cases(part, name):
                answers = await ask(stores, part, name, given)
                if name == "watch" and not are_alike(answers):
                    # On a busy machine a tail needs longer to say what is stored.
                    answers = await ask(stores, part, name, given, patience=2)
                if what == "as it should be" and (part, name) not in _REFUSED:
                    assert [each[0] for each in answers] == ["result"] * len(URLS), answers
                is_ours = all(each[0] != "not a HansardError" for each in answers)
                if not is_ours or not (name in _UNLIKE or are_alike(answers)):
                    wrong[what] = answers

    asyncio.run(play())
    assert not wrong, "\n".join(f"{what}: {answers}" for what, answers in wrong.items())


async def ask(
    stores: list[Store], part: str, name: str, given: dict[str, Callable[[], Any]], **how: float
) -> list[Any]:
    """Returns the answers of all stores, and restores what a call has deleted."""
    answers: list[Any] = []
    for store in stores:
        try:
            answers.append(await answer(store, part, name, given, **how))
        except Exception as error:
            answers.append(("not a HansardError", f"{type(error).__name__}: {str(error)[:200]}"))
        await fill(store)
    return answers


def are_alike(answers: list[Any]) -> bool:
    """Returns whether the backends agree, except for what one of them does not support."""
    said = [each for each in answers if each[:2] != ("error", "Unsupported")]
    return all(each == said[0] for each in said)
