"""Every wrong argument has its own clear error, raised before the backend is called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from hansard.assembly import ExtractiveSummarizer
from hansard.backends.memory import MemoryBackend
from hansard.errors import QuotaExceeded, ValidationError
from hansard.limits import Limits
from hansard.model import Message, Participant, Usage
from hansard.store import Delete, Put
from hansard.testing import Driver, Target, state
from hansard.testing.faulty import Fault, faulty

Call = Callable[[Any], Any]

circular: dict[str, Any] = {}
circular["self"] = circular
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
EDGE = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))

WRONG: dict[str, tuple[Call, str]] = {
    # Ids
    "empty id": (lambda s: s.get_messages(""), "conversation_id is empty"),
    "no id": (lambda s: s.get_messages(None), "conversation_id must be text, not None"),
    "float id": (lambda s: s.get_messages(1.5), "conversation_id must be text, not a float"),
    "boolean id": (lambda s: s.get_messages(True), "conversation_id must be text, not a bool"),
    "bytes id": (lambda s: s.append_message(b"c", "user", "x"), "conversation_id must be text, not a bytes"),
    "long id": (lambda s: s.append_message("x" * 257, "user", "x"), "is 257 bytes; the limit is 256"),
    "long id in bytes": (lambda s: s.append_message("ü" * 129, "user", "x"), "is 258 bytes; the limit is 256"),
    "nul in an id": (lambda s: s.append_message("a\0b", "user", "x"), "contains a NUL"),
    "surrogate in an id": (lambda s: s.append_message("a\ud800", "user", "x"), "half of a surrogate pair"),
    "empty user": (lambda s: s.append_message("c", "user", "x", user_id=""), "user_id is empty"),
    "long user": (lambda s: s.create_conversation("c", user_id="x" * 300), "user_id is 300 bytes"),
    "list agent": (lambda s: s.create_conversation("c", agent_id=["a"]), "agent_id must be text, not a list"),
    "empty audit": (lambda s: s.append("c", [], audit_id=""), "audit_id is empty"),
    "empty message id": (lambda s: s.append_message("c", "user", "x", id=""), "message id is empty"),
    "long message id": (lambda s: s.append("c", Message("user", "x", id="x" * 257)), "message id is 257 bytes"),
    "no message id": (lambda s: s.append("c", {"role": "user", "content": "x", "id": None}), "message id must be text"),
    "cursor as message id": (
        lambda s: s.append_message("c", "user", "x", id="cursor:x"),
        "may not begin with 'cursor:'",
    ),
    "empty tenant": (lambda s: s.tenant(""), "tenant is empty"),
    "no user view": (lambda s: s.user(None), "user_id must be text, not None"),
    "empty branch": (lambda s: s.branch("c", branch_id=""), "branch_id is empty"),
    "number for a branch": (lambda s: s.switch_branch("c", 1.5), "branch must be text, not a float"),
    "empty new id": (lambda s: s.replace_messages("c", [], branch=""), "branch is empty"),
    # Roles, content
    "unknown role": (lambda s: s.append_message("c", "robot", "x"), "unknown role 'robot': one of user, assistant"),
    "no role": (lambda s: s.append_message("c", None, "x"), "unknown role None"),
    "list role": (lambda s: s.append_message("c", ["user"], "x"), r"unknown role \['user'\]"),
    "role of another case": (lambda s: s.append_message("c", "User", "x"), "unknown role 'User'"),
    "nan": (lambda s: s.append_message("c", "user", {"a": [math.nan]}), r"content\.a\[0\] is nan"),
    "infinity": (lambda s: s.append_message("c", "user", -math.inf), "content is -inf"),
    "circular": (lambda s: s.append_message("c", "user", circular), "contains itself"),
    "bytes": (lambda s: s.append_message("c", "user", b"x"), "content is bytes"),
    "bytes inside": (lambda s: s.append_message("c", "user", {"a": bytearray(b"x")}), r"content\.a is bytes"),
    "set": (lambda s: s.append_message("c", "user", {1, 2}), "content is a set"),
    "datetime": (lambda s: s.append_message("c", "user", [NAIVE]), r"content\[0\] is a datetime"),
    "numbers as keys": (lambda s: s.append_message("c", "user", {1: 2}), "has the key 1"),
    "surrogate": (lambda s: s.append_message("c", "user", "a\ud800b"), "half of a surrogate pair .* at character 1"),
    "surrogate inside": (lambda s: s.append_message("c", "user", ["\udc00"]), r"content\[0\] has half"),
    "too deep": (lambda s: s.append_message("c", "user", _nested(201)), "nested too deeply"),
    "format of another type": (lambda s: s.append_message("c", "user", "x", format=5), "format must be text"),
    "text that is none": (lambda s: s.append_message("c", "user", [1], format="text"), "must be text, not a list"),
    # Messages
    "text for messages": (lambda s: s.append("c", "x"), "messages must be a list of messages, not a str"),
    "number for messages": (lambda s: s.append("c", 5), "messages must be a list of messages, not a int"),
    "none for messages": (lambda s: s.append("c", None), "messages must be a list"),
    "text for a message": (lambda s: s.append("c", ["x"]), "must be a Message or a mapping, not a str"),
    "no content": (lambda s: s.append("c", {"role": "user"}), "a message needs 'content'"),
    "unknown field": (lambda s: s.append("c", {"role": "user", "content": "x", "mood": 1}), "unknown fields .*'mood'"),
    "one bad in a batch": (lambda s: s.append("c", [Message("user", "x"), Message("user", b"")]), "content is bytes"),
    "references": (lambda s: s.append("c", _references()), "read with blobs='refs'"),
    # The rest of a message
    "kind of participant": (lambda s: _with(s, participant={"kind": "robot", "id": "x"}), "participant is wrong"),
    "participant without id": (lambda s: _with(s, participant={"kind": "user"}), "participant is wrong"),
    "text for a participant": (lambda s: _with(s, participant="bob"), "participant must be a Participant or a mapping"),
    "unknown field of it": (lambda s: _with(s, participant={"kind": "user", "id": "x", "a": 1}), "unknown fields"),
    "text for mentions": (lambda s: _with(s, mentions="bob"), "mentions must be a list of texts, not a str"),
    "number for mentions": (lambda s: _with(s, mentions=5), "mentions must be a list of texts, not a int"),
    "numbers in mentions": (lambda s: _with(s, mentions=[5]), "an element of mentions must be text"),
    "scope": (lambda s: _with(s, scope="room"), "scope is 'room': one of"),
    "status": (lambda s: _with(s, status="done"), "status is 'done': one of"),
    "no status": (lambda s: _with(s, status=None), "status is None"),
    "pinned": (lambda s: _with(s, pinned="yes"), "pinned must be True or False"),
    "trace": (lambda s: _with(s, trace_id=5), "trace_id must be text"),
    "mapping for sources": (lambda s: _with(s, sources={"document_id": "x"}), "sources must be a list"),
    "number for sources": (lambda s: _with(s, sources=5), "sources must be a list"),
    "unknown source": (lambda s: _with(s, sources=[{"page": 5}]), "a source has unknown fields"),
    "score": (lambda s: _with(s, sources=[{"score": "high"}]), "a source is wrong"),
    "tokens": (lambda s: _with(s, usage={"input_tokens": "5"}), "usage is wrong"),
    "negative tokens": (lambda s: _with(s, usage={"input_tokens": -1}), r"usage\.input_tokens is -1"),
    "too many tokens": (lambda s: _with(s, usage=Usage(output_tokens=10**20)), r"usage\.output_tokens is 1000"),
    "nan cost": (lambda s: _with(s, usage=Usage(cost=math.nan)), r"usage\.cost is nan"),
    "list of metadata": (lambda s: _with(s, metadata=[]), "metadata must be a mapping, not a list"),
    "bytes in metadata": (lambda s: _with(s, metadata={"a": b"x"}), r"metadata\.a is bytes"),
    "nan in metadata": (lambda s: s.create_conversation("c", metadata={"a": math.nan}), r"metadata\.a is nan"),
    "text for metadata": (lambda s: s.create_conversation("c", metadata=""), "metadata must be a mapping, not a str"),
    "naive beginning": (lambda s: s.create_conversation("c", created_at=NAIVE), "created_at has no time zone"),
    "text for a beginning": (lambda s: s.create_conversation("c", created_at="2026"), "created_at must be a datetime"),
    "beginning to come": (
        lambda s: s.create_conversation("c", created_at=datetime(9999, 1, 1, tzinfo=UTC)),
        "created_at is 9999-01-01T00:00:00.00:00, which is in the future",
    ),
    "naive time": (lambda s: _with(s, created_at=NAIVE), "created_at has no time zone"),
    "text for a time": (lambda s: _with(s, created_at="2026-01-01"), "created_at must be a datetime, not a str"),
    "time beyond utc": (lambda s: _with(s, created_at=EDGE), "which is out of range in UTC"),
    # Options
    "on_duplicate": (lambda s: s.append("c", [], on_duplicate="last"), "on_duplicate is 'last': one of"),
    "negative version": (lambda s: s.append("c", [], expected_version=-1), "expected_version is -1"),
    "text version": (lambda s: s.append("c", [], expected_version="1"), "expected_version must be a whole number"),
    "boolean version": (lambda s: s.pop_message("c", expected_version=True), "expected_version must be a whole number"),
    "huge version": (lambda s: s.append("c", [], expected_version=2**80), "expected_version is"),
    "title": (lambda s: s.create_conversation("c", title=5), "title must be text, not a int"),
    "surrogate in a title": (lambda s: s.update_conversation("c", title="\ud800"), "title has half"),
    "naive expiry": (lambda s: s.create_conversation("c", expires_at=NAIVE), "expires_at has no time zone"),
    "age for an expiry": (lambda s: s.append("c", [], expires_at=timedelta(1)), "expires_at must be a datetime"),
    "archived": (lambda s: s.update_conversation("c", archived="yes"), "archived must be True or False"),
    "update metadata": (lambda s: s.update_message("c", "m", metadata=5), "metadata must be a mapping, not a int"),
    "update status": (lambda s: s.update_message("c", "m", status="done"), "status is 'done'"),
    "update content": (lambda s: s.update_message("c", "m", content=b"x"), "content is bytes"),
    # Reading
    "limit 0": (lambda s: s.get_messages("c", limit=0), "limit is 0: it must be between 1 and 100"),
    "limit 101": (lambda s: s.get_messages("c", limit=101), "limit is 101: it must be between 1 and 100"),
    "limit -1": (lambda s: s.get_messages("c", limit=-1), "limit is -1: it must be between 1 and 100"),
    "limit of text": (lambda s: s.get_messages("c", limit="5"), "limit must be a whole number, not a str"),
    "limit of half": (lambda s: s.get_messages("c", limit=1.5), "limit must be a whole number, not a float"),
    "limit of truth": (lambda s: s.get_messages("c", limit=True), "limit must be a whole number, not a bool"),
    "listing limit 0": (lambda s: s.list_conversations(limit=0), "limit is 0"),
    "listing limit 101": (lambda s: s.list_conversations(limit=101), "limit is 101"),
    "listing limit -1": (lambda s: s.list_conversations(limit=-1), "limit is -1"),
    "offset": (lambda s: s.list_conversations(offset=-1), "offset is -1"),
    "huge offset": (lambda s: s.list_conversations(offset=2**70), "offset is"),
    "last 0": (lambda s: s.get_messages("c", last=0), "last is 0"),
    "last -1": (lambda s: s.get_messages("c", last=-1), "last is -1"),
    "turns 0": (lambda s: s.get_messages("c", turns=0), "turns is 0"),
    "both ways": (lambda s: s.get_messages("c", after="a", before="b"), "after and before cannot be used together"),
    "both ways of a listing": (lambda s: s.list_conversations(after="a", before="b"), "after and before cannot"),
    "last and limit": (lambda s: s.get_messages("c", last=5, limit=5), "last and limit cannot"),
    "last and turns": (lambda s: s.get_messages("c", last=5, turns=5), "last and turns cannot"),
    "last and after": (lambda s: s.get_messages("c", last=5, after="a"), "leave after, before, order out"),
    "last and order": (lambda s: s.get_messages("c", last=5, order="desc"), "leave after, before, order out"),
    "order": (lambda s: s.get_messages("c", order="up"), "order is 'up': one of 'asc', 'desc'"),
    "listing order": (lambda s: s.list_conversations(order="up"), "order is 'up'"),
    "iterating order": (lambda s: list(s.iter_messages("c", order="up")), "order is 'up'"),
    "sort": (lambda s: s.get_messages("c", sort="id"), "sort is 'id': one of 'seq', 'time'"),
    "listing sort": (lambda s: s.list_conversations(sort="id"), "sort is 'id'"),
    "blobs": (lambda s: s.get_messages("c", blobs="yes"), "blobs is 'yes': one of 'inline', 'refs'"),
    "iterating blobs": (lambda s: list(s.iter_messages("c", blobs="yes")), "blobs is 'yes'"),
    "roles": (lambda s: s.get_messages("c", roles=["robot"]), "unknown role 'robot'"),
    "text for roles": (lambda s: s.get_messages("c", roles="user"), "roles must be a list of texts, not a str"),
    "text for participants": (lambda s: s.get_messages("c", participant_ids="u"), "participant_ids must be a list"),
    "reading scope": (lambda s: s.get_messages("c", scope="room"), "scope is 'room'"),
    "naive since": (lambda s: s.get_messages("c", since=NAIVE), "since has no time zone"),
    "text until": (lambda s: s.get_messages("c", until="now"), "until must be a datetime"),
    "number for a place": (lambda s: s.get_messages("c", after=5), "after or before must be text"),
    "malformed cursor": (lambda s: s.get_messages("c", after="cursor:?"), "malformed cursor"),
    "malformed listing cursor": (lambda s: s.list_conversations(after="nonsense"), "malformed cursor"),
    "empty listing cursor": (lambda s: s.list_conversations(after=""), "malformed cursor"),
    "listing archived": (lambda s: s.list_conversations(archived="no"), "archived must be True or False"),
    "window": (lambda s: s.window("c", messages=0), "messages is 0"),
    "window of both": (lambda s: s.window("c", messages=1, turns=1), "messages and turns cannot"),
    # Branches, summaries
    "two cuts": (lambda s: s.branch("c", at="a", before="b"), "at and before cannot"),
    "cut and empty": (lambda s: s.branch("c", at="a", empty=True), "at and empty cannot"),
    "function for a summarizer": (
        lambda s: s.assemble_prompt("c", token_budget=100, summarizer=len),
        "summarizer must be an object with an async method summarize",
    ),
    "class for a summarizer": (
        lambda s: s.assemble_prompt("c", token_budget=100, summarizer=ExtractiveSummarizer),
        "summarizer must be an object",
    ),
    "summarizer without a model": (
        lambda s: s.assemble_prompt("c", token_budget=100, summarizer=SimpleNamespace(summarize=len)),
        "summarizer has no model and no prompt_id",
    ),
    # Lifecycle
    "age": (lambda s: s.purge("yesterday"), "older_than must be a datetime, not a str"),
    "age by": (lambda s: s.purge(timedelta(1), by="size"), "by is 'size': one of"),
    "naive age": (lambda s: s.purge(NAIVE), "older_than has no time zone"),
    "endless age": (lambda s: s.purge(timedelta.max), "older_than is"),
    "day": (lambda s: s.usage(since="yesterday"), "since must be a date"),
    "number for a day": (lambda s: s.usage(until=5), "until must be a date"),
    "erasing nobody": (lambda s: s.erase_user(""), "user_id is empty"),
    "deleting no tenant": (lambda s: s.admin.delete_tenant(""), "tenant is empty"),
    # Records, blobs
    "text for a namespace": (lambda s: s.records.put("n", "k", 1), "namespace must be a list of texts, not a str"),
    "empty namespace": (lambda s: s.records.put([], "k", 1), "namespace is empty"),
    "empty part": (lambda s: s.records.put(["a", ""], "k", 1), "an element of namespace is empty"),
    "number in a namespace": (lambda s: s.records.put([5], "k", 1), "an element of namespace must be text"),
    "nul in a namespace": (lambda s: s.records.put(["a\0"], "k", 1), "contains a NUL"),
    "empty key": (lambda s: s.records.put(["n"], "", 1), "key is empty"),
    "long key": (lambda s: s.records.get(["n"], "x" * 257), "key is 257 bytes"),
    "value": (lambda s: s.records.put(["n"], "k", {"a": {1}}), r"value\.a is a set"),
    "revision": (lambda s: s.records.put(["n"], "k", 1, expected_revision=-1), "expected_revision is -1"),
    "endless expiry": (lambda s: s.records.put(["n"], "k", 1, expires_at=timedelta.max), "expires_at is"),
    "record conversation": (lambda s: s.records.put(["n"], "k", 1, conversation_id=""), "conversation_id is empty"),
    "no write": (lambda s: s.records.write([("n", "k", 1)]), "made of Put and Delete, not of a tuple"),
    "one bad write": (lambda s: s.records.write([Put(["n"], "k", 1), Delete(["n"], "")]), "key is empty"),
    "scan limit": (lambda s: s.records.scan(limit=0), "limit is 0"),
    "scan limit 1001": (lambda s: s.records.scan(limit=1001), "limit is 1001"),
    "scan order": (lambda s: s.records.scan(order="up"), "order is 'up'"),
    "scan cursor": (lambda s: s.records.scan(after="x"), "malformed cursor"),
    "text for a blob": (lambda s: s.blobs.put("text"), "a blob is bytes, not a str"),
    "number for a digest": (lambda s: s.blobs.get(5), "sha256 must be text"),
}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _with(store: Driver, **fields: Any) -> Any:
    return store.append_message("c", "user", "x", **fields)


def _references() -> Message:
    import base64

    other = Target("memory://").open()
    other.append_message("c", "user", base64.b64encode(b"x" * 9000).decode())
    return other.get_messages("c", blobs="refs")[0]


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def store(fault: Fault) -> Iterator[Driver]:
    target = Target("memory://")
    plain = target.open()
    yield plain.over_backend(faulty(MemoryBackend(), fault))
    target.close()


@pytest.mark.parametrize(("call", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_refused_before_the_backend_is_called(
    store: Driver, fault: Fault, call: Call, says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        call(store)
    assert fault.calls == 0, "the backend was asked before the arguments were checked"
    assert store.list_conversations(archived=None).items == []


@pytest.mark.parametrize(
    ("call", "limit", "value"),
    [
        (lambda s: s.append_message("c", "user", "x" * 1001), 1000, 1001),
        (lambda s: s.append_message("c", "user", {"a": "é" * 500}), 1000, 1008),
        (lambda s: s.append("c", [Message("user", "x"), Message("user", "x" * 2000)]), 1000, 2000),
        (lambda s: s.append("c", [Message("user", n) for n in range(6)]), 5, 6),
        (lambda s: s.update_message("c", "m", content="x" * 1001), 1000, 1001),
        (lambda s: s.replace_messages("c", [Message("user", "x" * 1001)]), 1000, 1001),
    ],
)
def test_exceeding_a_limit_names_the_limit_and_the_value(store: Driver, call: Call, limit: int, value: int) -> None:
    small = store.again(limits=Limits(content_bytes=1000, messages=5))
    small.append("c", [])
    with pytest.raises(QuotaExceeded, match="Limits") as refused:
        call(small)
    assert (refused.value.limit, refused.value.value) == (limit, value)
    assert store.list_conversations().items == []


def test_a_summary_of_no_message_is_refused(store: Driver) -> None:
    store.append_message("c", "user", "x")
    before = state(store)
    for first, last, text in ((0, 1, "x"), (2, 1, "x"), (1, 2**70, "x"), ("1", 1, "x"), (1, 1, ""), (1, 1, 5)):
        with pytest.raises(ValidationError):
            store.add_summary("c", text, from_seq=first, to_seq=last)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="token_count is -1"):
        store.add_summary("c", "x", from_seq=1, to_seq=1, token_count=-1)
    assert state(store) == before


def test_numbers_are_accepted_as_ids(store: Driver) -> None:
    store.append_message(7, "user", "x", id=8, user_id=9, agent_id=10)
    found = store.get_conversation("7")
    assert found is not None
    assert (found.id, found.user_id, found.agent_id) == ("7", "9", "10")
    assert store.get_message(7, 8).content == "x"
    assert store.user(9).update_conversation(7, user_id=9, title="t").title == "t"
    assert [each.id for each in store.list_conversations(user_id=9).items] == ["7"]
    assert store.delete_messages(7, [8]).messages == 1


def test_limits_are_configurable(store: Driver) -> None:
    wide = store.again(limits=Limits(id_bytes=1000, page=500, depth=300))
    wide.append_message("x" * 1000, "user", _nested(300))
    assert len(wide.get_messages("x" * 1000, limit=500)) == 1
    assert Limits.makers().messages == 10_000


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x"},
        {"role": "user", "content": "x", "created_at": None, "mentions": [], "metadata": None},
        {"role": "user", "content": "x", "participant": {"kind": "user", "id": "u"}, "usage": {"input_tokens": 1}},
    ],
)
def test_mappings_are_accepted_as_messages(store: Driver, message: dict[str, Any]) -> None:
    stored = store.append("c", message).messages[0]
    assert stored.content == "x"
    if "participant" in message:
        assert stored.participant == Participant("user", "u")
        assert stored.usage == Usage(1)


def test_the_year_9999_is_accepted(store: Driver) -> None:
    last = datetime.max.replace(tzinfo=UTC)
    stored = store.append_message("c", "user", "x", created_at=last)
    assert store.get_message("c", stored).created_at == last
