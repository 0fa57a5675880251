"""`none` stores nothing: reads are empty, writes succeed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hansard.errors import Conflict, NotFound, Unsupported
from hansard.model import Message
from hansard.testing import MODES, Clock, Driver, Mode, Target, facts
from hansard.testing.contract.blobs import picture
from hansard.testing.contract.calls import CALLS

# Reads of one thing that does not exist, and what needs something to begin with.
NOT_THERE = {
    "Store.add_label",
    "Store.add_member",
    "Store.open_share",
    "Store.get_message",
    "Store.get_prompt",
    "Store.fork",
    "Store.add_summary",
    "Store.summarize",
    "Store.rebuild_summaries",
    "Blobs.get",
}

CANNOT = {"Store.watch", "Store.backup", "Store.share", "Store.unshare", "Store.list_shares", "Admin.vacuum"}


@pytest.fixture(params=MODES)
def store(request: pytest.FixtureRequest) -> Iterator[Driver]:
    mode: Mode = request.param
    target = Target("none://")
    yield target.open(mode, clock=Clock())
    target.close()


@pytest.mark.parametrize("call", CALLS)
def test_every_method_reads_nothing_and_writes_without_error(store: Driver, call: str) -> None:
    if call in CANNOT:
        with pytest.raises(Unsupported):
            CALLS[call](store)
    elif call in NOT_THERE:
        with pytest.raises(NotFound):
            CALLS[call](store)
    else:
        CALLS[call](store)
    assert store.list_conversations(archived=None).items == []
    assert list(store.records.iter()) == []
    assert store.usage() == []
    assert store.admin.tenants() == []


def test_every_append_is_answered_as_the_first(store: Driver) -> None:
    for _ in range(2):
        appended = store.append("c", [Message("user", "a", id="m"), Message("user", picture(1))], user_id="u")
        assert (appended.stored, appended.created, appended.version) == (2, True, 1)
        assert [message.seq for message in appended.messages] == [1, 2]
        assert facts(appended.messages[1].content) == facts(picture(1)), "large base64 comes back as well"
        assert appended.messages[0].conversation_id == "c"
    assert store.append("c", Message("user", "x"), create=False).stored == 1
    assert store.append("c", Message("user", "x"), expected_version=7).stored == 1
    assert store.append("c", Message("user", "x"), branch="any").stored == 1
    assert store.get_messages("c") == []


def test_updates_return_results_of_the_usual_types(store: Driver) -> None:
    assert store.update_message("c", "m", content=picture(1), pinned=True).content == picture(1)
    assert store.update_conversation("c", title="t").title == "t"
    assert store.replace_messages("c", [Message("user", "x")]).stored == 1
    assert store.branch("c", at="m", branch_id="b").id == "b"
    assert store.switch_branch("c", "b").id == "c"
    record = store.records.put(["n"], "k", 1, expected_revision=4, conversation_id="c")
    assert (record.value, record.revision) == (1, 1)
    assert not store.delete_conversation("c")
    assert store.pop_message("c") is None


def test_wrong_arguments_are_still_refused(store: Driver) -> None:
    batch = [Message("user", "a", id="m"), Message("user", "b", id="m")]
    with pytest.raises(Conflict):
        store.append("c", batch, on_duplicate="error")
    with pytest.raises(ValueError, match="role"):
        store.append_message("c", "unknown", "x")


def test_auto_title_changes_nothing(store: Driver) -> None:
    titled = store.again(auto_title=True)
    assert titled.append("c", Message("user", "Hello")).version == 1
