"""`memory` as a cache: what its caps evict is counted and reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hansard.model import Message
from hansard.testing import Clock, Driver, Target
from hansard.testing.contract.blobs import picture


def opened(options: str) -> Driver:
    return Target(f"memory://{options}").open(clock=Clock())


@pytest.fixture
def few() -> Iterator[Driver]:
    store = opened("?max_conversations=2")
    yield store
    store.dispose()


@pytest.fixture
def short() -> Iterator[Driver]:
    store = opened("?max_messages=3")
    yield store
    store.dispose()


def ids(store: Driver) -> list[str]:
    return sorted(each.id for each in store.list_conversations(archived=None).items)


def test_the_least_recently_used_conversation_goes(few: Driver) -> None:
    for id in ("a", "b"):
        few.append_message(id, "user", "x")
    few.get_messages("a")
    few.append_message("c", "user", "x")
    assert ids(few) == ["a", "c"]
    few.create_conversation("d")
    assert ids(few) == ["c", "d"]
    assert few.stats().evicted_conversations == 2
    assert few.capabilities.evicts


def test_each_tenant_has_its_own(few: Driver) -> None:
    for tenant in ("t", "u"):
        for id in ("a", "b", "c"):
            few.tenant(tenant).append_message(id, "user", "x")
    assert ids(few.tenant("t")) == ids(few.tenant("u")) == ["b", "c"]


def test_what_belonged_to_it_goes_with_it(few: Driver) -> None:
    few.append_message("a", "user", picture(1))
    few.records.put(["n"], "k", 1, conversation_id="a")
    for id in ("b", "c"):
        few.append_message(id, "user", "x")
    assert few.stats().blobs == 0
    assert few.records.get(["n"], "k") is None


def test_an_evicted_one_may_come_back(few: Driver) -> None:
    """Eviction is no deletion: nothing was buried."""
    message = Message("user", "x", id="m", created_at=Clock().now)
    few.append("a", message)
    for id in ("b", "c"):
        few.append_message(id, "user", "x")
    assert few.append("a", message).stored == 1


def test_the_oldest_messages_go(short: Driver) -> None:
    for number in range(5):
        appended = short.append("c", Message("user", number))
        found = short.get_conversation("c")
        assert found is not None
        assert appended.version == found.version, "the version to expect next"
    assert [message.content for message in short.get_messages("c")] == [2, 3, 4]
    assert short.stats().evicted_messages == 2
    assert short.check() == []


def test_a_batch_that_is_too_long(short: Driver) -> None:
    appended = short.append("c", [Message("user", number) for number in range(5)])
    assert appended.stored == 5
    assert [message.content for message in short.get_messages("c")] == [2, 3, 4]
    short.replace_messages("c", [Message("user", number) for number in range(9)])
    assert [message.content for message in short.get_messages("c")] == [6, 7, 8]
    assert short.check() == []


def test_branches_count_together(short: Driver) -> None:
    first = short.append("c", [Message("user", number) for number in range(3)]).messages[0]
    short.branch("c", at=first.id)
    short.append("c", Message("user", "side"))
    assert [message.content for message in short.get_messages("c", branch="main")] == [1, 2]
    assert [message.content for message in short.get_messages("c")] == ["side"]
    assert short.check() == []


def test_without_caps_nothing_goes() -> None:
    store = opened("")
    for number in range(300):
        store.append_message(f"c{number}", "user", "x")
    assert store.stats().conversations == 300
    assert not store.capabilities.evicts
    store.dispose()
