"""Content is stored verbatim: every JSON value is returned with its types and its order of keys."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from hansard.model import Message, Participant, Source, Usage
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts
from hansard.testing.contract.base import Contract, history, require, rows, say
from hansard.testing.targets import Driver, Mode, Target

MEGABYTE = 1_000_000


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


ODD: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "big": 2**63,
    "bigger": -(10**300),
    "float": 0.1,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "minus zero": -0.0,
    "whole float": 1.0,
    "float beyond 2**53": 1e16,
    "empty text": "",
    "nul": "a\0b\0",
    "controls": "".join(map(chr, range(32))) + "\x7f\u2028\u2029\ufeff",
    "emoji": "👩‍👩‍👧‍👦 😀",
    "scripts": "日本語 עברית Ünïcödé \u0301",
    "edges of unicode": "\ud7ff\ue000\uffff\U00010000\U0010ffff",
    "quotes": "\"'`\\ \r\n\t {} [] %s ? :a $1 -- ; DROP",
    "json in text": '{"a": 1}',
    "number in text": "1",
    "empty list": [],
    "empty object": {},
    "empty inside": {"": [], "a": {}, "b": [[], {}]},
    "order of keys": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    "odd keys": {"a.b": 1, "a/b": 2, "$ref": 3, "\0": 4, "😀": 5, " ": 6, "__proto__": 7},
    "deep": nested(150),
    "unknown fields": {"type": "never seen", "x": [{"y": None}]},
    "like ours": {"sha256": "0" * 64, "path": [], "id": "msg_1", "seq": 5},
}


@cache
def five_megabytes() -> tuple[str, list[int]]:
    """Built once for all backends, because building takes as long as storing."""
    chance = random.Random(5)
    text = "".join(chance.choices('abc ü😀"\\\n\0', k=2 * MEGABYTE))
    return text, [chance.randrange(10**9) for _ in range(200_000)]


class TestVerbatim(Contract):
    @rows("content", ODD.values(), ids=ODD)
    def test_every_json_value_is_returned_unchanged(self, store: Driver, content: Any) -> None:
        stored = say(store, "c", content)[0]
        assert facts(stored.content) == facts(content)
        assert facts(store.get_message("c", stored.id).content) == facts(content)
        assert facts(history(store, "c")) == facts([content])
        assert facts(store.update_message("c", stored.id, content=[content]).content) == facts([content])

    def test_one_batch_of_every_json_value_survives_reopening(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        stored = say(store, "c", *ODD.values())
        assert facts(history(store, "c")) == facts(list(ODD.values()))
        if store.capabilities.durability != "none":
            store.close()
            again = target.open(mode, clock=clock)
            assert facts(list(again.iter_messages("c"))) == facts(stored)

    def test_a_text_is_not_confused_with_the_json_it_contains(self, store: Driver) -> None:
        say(store, "c", "1", 1, "[]", [], '"x"', "null", None)
        assert facts(history(store, "c")) == facts(["1", 1, "[]", [], '"x"', "null", None])

    @rows("format", ["text", "parts", "openai.chat", "one of my own"])
    def test_every_format_is_stored_as_given(self, store: Driver, format: str) -> None:
        content = "x" if format == "text" else [{"type": "text", "text": "x"}]
        stored = store.append("c", Message("user", content, format=format)).messages[0]
        assert facts(store.get_message("c", stored.id)) == facts(stored)
        assert stored.format == format
        as_text = store.append("c", Message("user", "a string", format=format)).messages[0]
        assert facts(store.get_message("c", as_text.id)) == facts(as_text)

    def test_every_field_of_a_message_is_stored(self, store: Driver) -> None:
        text = "ünï \0 😀 \"'"
        message = Message(
            "mcp_response",
            {text: text},
            format=text,
            participant=Participant("system", text, text, {text: [10**30]}),
            mentions=(text, "", "b"),
            scope="thread",
            status="blocked",
            pinned=True,
            trace_id=text,
            sources=(Source(), Source(text, text, text, -0.5)),
            usage=Usage(1, 2, 3, 4, 0.000001, text),
            metadata={text: {"a": [None, 1.5]}, "": ODD["order of keys"]},
        )
        stored = store.append("c", message).messages[0]
        set_by_the_store = frozenset({"id", "conversation_id", "seq", "branch", "created_at"})
        assert facts(stored, leave_out=set_by_the_store) == facts(message, leave_out=set_by_the_store)
        assert facts(store.get_messages("c")[0]) == facts(stored)

    def test_an_empty_metadata_is_not_none(self, store: Driver) -> None:
        store.append("c", [Message("user", "x", metadata={}), Message("user", "x")])
        assert [message.metadata for message in store.get_messages("c")] == [{}, None]

    def test_unusual_ids_are_distinct(self, store: Driver) -> None:
        odd = ["../../etc/passwd", "a/b\\c", "CON", "a:b|c?*", "ünï😀", "A", "a", ".", "..", " ", "%2e", "x" * 256]
        require(store, "our ids")
        for id in odd:
            store.append(id, Message("user", id, id=id), user_id=id, agent_id=id, audit_id=id)
        for id in odd:
            assert history(store, id) == [id]
            found = store.get_conversation(id)
            assert found is not None
            assert (found.id, found.user_id, found.agent_id, found.audit_id) == (id, id, id, id)
            assert store.get_message(id, id).content == id
            assert [each.id for each in store.list_conversations(agent_id=id).items] == [id]
        assert store.stats().conversations == len(odd)
        assert store.check() == []

    def test_unusual_names_of_tenants_and_branches_are_distinct(self, store: Driver) -> None:
        require(store, "branches")
        odd = ["../x", "A", "a", "ü😀", "x" * 256, "."]
        for tenant in odd:
            view = store.tenant(tenant)
            say(view, "c", tenant)
            for name in odd:
                view.branch("c", branch_id=name)
        for tenant in odd:
            assert history(store.tenant(tenant), "c") == [tenant]
            assert [each.id for each in store.tenant(tenant).list_branches("c")] == ["main", *odd]
        assert store.admin.tenants() == sorted(odd)

    def test_five_megabytes_are_returned_unchanged(
        self, target: Target, store: Driver, mode: Mode, clock: Clock
    ) -> None:
        text, numbers = five_megabytes()
        stored = say(store, "c", text, {"numbers": numbers})
        assert len(json.dumps(stored[1].content)) > 2 * MEGABYTE
        assert history(store, "c") == [text, {"numbers": numbers}]
        if store.capabilities.durability != "none":
            store.close()
            assert history(target.open(mode, clock=clock), "c") == [text, {"numbers": numbers}]

    def test_fifty_megabytes_are_returned_unchanged(self, store: Driver) -> None:
        text = "0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKL" * MEGABYTE
        say(store, "c", text)
        assert history(store, "c") == [text]
