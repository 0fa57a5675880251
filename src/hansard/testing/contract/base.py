"""The base of every contract test: fixtures, skips that name a gap, and helpers.

`target` comes from the test module of the backend. `store` opens it in both modes of the API, with the `clock` that
the test may set. A test class names the capabilities that it `needs`; a test asks for more with `require`. Where a
backend does not claim one, the test is skipped, and the skip says which.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar, cast

import pytest

from hansard.contract.backend import Capabilities
from hansard.model import Message
from hansard.testing.clock import Clock
from hansard.testing.targets import MODES, Driver, Mode, Target

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

_CLAIMS: dict[str, tuple[Callable[[Capabilities], bool], str]] = {
    "keeps": (lambda it: it.keeps, "it stores nothing"),
    "no eviction": (lambda it: not it.evicts, "it is configured to drop the oldest"),
    "durability": (lambda it: it.durability != "none", "its data ends with the process"),
    "shared": (lambda it: it.shared, "only one process may use it"),
    "compare_and_swap": (lambda it: it.compare_and_swap, "it cannot compare and swap"),
    "branches": (lambda it: it.branches, "it has no branches"),
    "records": (lambda it: it.records, "it has no records"),
    "append_records": (lambda it: it.append_records, "it writes records and messages in separate steps"),
    "blobs": (lambda it: it.blobs, "it has no blobs"),
    "our ids": (lambda it: not it.own_ids, "it assigns its own ids"),
    "our times": (lambda it: not it.own_times, "it assigns its own times"),
    "watch": (lambda it: it.watch != "none", "it cannot be watched"),
    "backup": (lambda it: it.backup, "it has no backup"),
    "secure_delete": (lambda it: it.secure_delete, "deleted data is not overwritten"),
}


def require(store: Driver, *claims: str) -> None:
    """Skips the test, naming the gap, unless the backend has all these capabilities."""
    for claim in claims:
        holds, gap = _CLAIMS[claim]
        if not holds(store.capabilities):
            pytest.skip(f"{store.capabilities.name}: no {claim}: {gap}")


def require_url(target: Target) -> str:
    if target.url is None:
        pytest.skip("it is not opened by a URL, so other processes cannot open it")
    return target.url


def require_folder(target: Target) -> None:
    if target.folder is None:
        pytest.skip("it has no files that can be read without the backend")


Test = TypeVar("Test", bound=Callable[..., Any])


def races(test: Test) -> Test:
    """Marks a test, or a class of them, that waits, closes or does several things at once.

    Such a test must run in both APIs on every backend. For the others one API is enough where the blocking API only
    drives the coroutines of the async one (`Capabilities.blocking` is false).
    """
    test.races = True  # type: ignore[attr-defined]
    return test


def rows(names: str | Sequence[str], values: Iterable[Any], ids: Iterable[str] | None = None) -> Callable[[Test], Test]:
    """Runs a test for each row of a table, with the arguments of `pytest.mark.parametrize`.

    Each row is a subtest in a tenant of its own, so that the storage is opened only once. A row that fails is named,
    and the others still run.
    """
    fields = (names,) if isinstance(names, str) else tuple(names)
    table = [(value,) if isinstance(names, str) else tuple(value) for value in values]
    labels = [", ".join(map(repr, row))[:60] for row in table] if ids is None else list(ids)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(self: Contract, *, store: Driver, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for number, (label, row) in enumerate(zip(labels, table, strict=True)):
                with subtests.test(label):
                    test(self, store=store.tenant(f"row-{number}"), **fixtures, **dict(zip(fields, row, strict=True)))

        run.__signature__ = _without(test, fields)  # type: ignore[attr-defined]
        return cast(Test, run)

    return decorate


def _without(test: Callable[..., Any], fields: Sequence[str]) -> inspect.Signature:
    """Returns the signature for pytest, without the parameters that `rows` fills."""
    signature = inspect.signature(test)
    remaining = [each for name, each in signature.parameters.items() if name not in fields]
    return signature.replace(parameters=[*remaining, inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)])


class Contract:
    """A part of the contract. Its tests cannot be overridden: a backend runs all of them as they are."""

    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        for base in cls.__mro__[1:]:
            overridden = [name for name in vars(cls) if name.startswith("test") and name in vars(base)]
            if overridden:
                raise TypeError(f"{cls.__name__} overrides contract tests: {', '.join(overridden)}")

    @pytest.fixture(autouse=True)
    def _skip_unclaimed(self, store: Driver) -> None:
        require(store, "keeps", "no eviction", *self.needs)


# Fixtures: imported into the backend's test module with the test classes.


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def store(target: Target, mode: Mode, clock: Clock) -> Iterator[Driver]:
    yield target.open(mode, clock=clock)
    target.close()


# Helpers for tests.


def say(store: Driver, conversation: str, *texts: Any, role: str = "user", **options: Any) -> list[Message]:
    """Appends a batch of plain messages and returns them as stored."""
    return store.append(conversation, [Message(role, text) for text in texts], **options).messages


def contents(messages: Iterable[Message]) -> list[Any]:
    return [message.content for message in messages]


def history(store: Driver, conversation: str, **options: Any) -> list[Any]:
    """Returns the contents of a branch, the first message first."""
    return contents(store.iter_messages(conversation, **options))


def version_of(store: Driver, conversation: str) -> int:
    found = store.get_conversation(conversation)
    assert found is not None
    return found.version


def assert_exact(store: Driver, conversation: str, after: str = "") -> None:
    """Asserts that the counters agree with the messages of every branch, and that `check` finds no problem."""
    assert_counts(store, conversation, after)
    assert store.check() == [], after


def assert_counts(store: Driver, conversation: str, after: str = "") -> None:
    """Asserts that the counters of a conversation agree with the messages of every branch."""
    found = store.get_conversation(conversation)
    assert found is not None, after
    seen: dict[str, Message] = {}
    for branch in store.list_branches(conversation):
        messages = list(store.iter_messages(conversation, branch=branch.id))
        assert branch.message_count == len(messages), f"branch {branch.id} {after}"
        assert branch.active == (branch.id == found.branch), f"branch {branch.id} {after}"
        seqs = [message.seq for message in messages]
        assert seqs == sorted(set(seqs)), f"branch {branch.id} is not in the order of seq {after}"
        seen |= {message.id: message for message in messages}
    assert found.message_count == len(seen), after
    newest = max(seen.values(), key=lambda message: message.seq, default=None)
    assert found.last_message_at == (newest.created_at if newest else None), after
