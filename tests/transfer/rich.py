"""A store that holds one of everything, and what it reads as: what a copy must keep."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from hansard import Message, Store
from hansard.contract.types import Context
from hansard.model import Participant, Source, Usage
from hansard.store import marks

PICTURE = base64.b64encode(bytes(range(256)) * 40).decode()
LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
CONVERSATIONS = ("branched", "empty", "edited", "pictures", "pictures-too", "mine")


async def fill(store: Store) -> None:
    await _branched(store)
    await store.create_conversation("empty", title="Nothing yet", metadata={"b": 1, "a": {"x": [1.5, None]}})
    await _edited(store)
    await _pictures(store)
    await _mine(store)
    await _records(store)


async def _branched(store: Store) -> None:
    await store.append(
        "branched",
        [
            Message("user", "Wo bleibt meine Bestellung? 注文はどこですか 🚚", id="m1", created_at=LONG_AGO),
            Message("assistant", "On its way\0.", id="m2", participant=Participant("agent", "a", "Otto", {"k": [1]})),
            Message("user", {"text": "x", "big": 2**80, "z": 1, "a": 1.0}, id="m3", format="openai.chat"),
        ],
        user_id="u_1",
        agent_id="helper",
        audit_id="audit-7",
        title="Orders",
        metadata={"channel": "web"},
        expires_at=datetime(2999, 1, 1, tzinfo=UTC),
    )
    await store.branch("branched", at="m2", branch_id="second")
    await store.append("branched", [Message("user", "Other way", id="m4"), Message("assistant", "Yes", id="m5")])
    await store.branch("branched", before="m5", branch_id="third", activate=False)
    await store.append("branched", [Message("tool", "42", id="m6", metadata={"tool_call_id": "c"})], branch="third")
    await store.append("branched", [Message("assistant", "Back on main", id="m7")], branch="main")
    await store.pop_message("branched", branch="main")
    await store.add_summary("branched", "They ask for an order.", from_seq=1, to_seq=2, model="small", token_count=6)
    await store.add_summary("branched", "Still asking.", from_seq=1, to_seq=4, branch="second", prompt_id="p")


async def _edited(store: Store) -> None:
    sources = (Source("d1", "Terms", "3", 0.5),)
    usage = Usage(10, 20, 1, 2, 0.25, "small")
    answer = Message(
        "assistant", ["part", {"n": 1}], id="e2", sources=sources, usage=usage, trace_id="t", mentions=("u_2",)
    )
    await store.append("edited", [Message("user", "Hi", id="e1", scope="dm"), answer, Message("user", "Bye", id="e3")])
    await store.update_message("edited", "e1", content="Hello", pinned=True, metadata={"edited": True})
    await store.rate("edited", "e2", -1, by="u_2", comment="It is not.")
    await store.rate("edited", "e2", 0.5)
    await store.add_label("edited", "to check", message_id="e2")
    await store.add_label("edited", "billing")
    await store.append_message("edited", "assistant", "…", id="e4", status="in_progress")
    await store.update_message("edited", "e4", content="… done", status="interrupted")
    await store.delete_message("edited", "e3")
    await store.update_conversation("edited", archived=True, metadata={"tag": "old"})


async def _pictures(store: Store) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + PICTURE}}, "and", PICTURE]
    await store.append("pictures", [Message("user", content, id="p1"), Message("user", PICTURE, id="p2")])
    await store.append("pictures-too", [Message("user", [PICTURE, PICTURE[:8000]], id="p1")])


async def _mine(store: Store) -> None:
    mine = store.user("u_2")
    await mine.append("mine", [Message("user", f"Message {number}", id=f"n{number}") for number in range(25)])
    await mine.records.put(("notes",), "first", {"said": "hello"}, conversation_id="mine")
    await mine.records.put(("notes",), "bytes", b"\x00\xff")


async def _records(store: Store) -> None:
    for value in range(3):
        await store.records.put(("state", "agent"), "step", {"n": value})
    await store.records.put(("state",), "raw", bytes(range(256)), expires_at=timedelta(days=300))
    await store.records.put(("state",), "null", None)
    await store.records.put(("of", "branched"), "k", [1, "two"], conversation_id="branched")
    await store.user("u_1").records.put(("own",), "k", "only mine")


async def contents(store: Store) -> dict[str, Any]:
    """Everything that the store's tenant holds, as plain values that can be compared."""
    found: dict[str, Any] = {}
    page = await store.list_conversations(archived=None, limit=100)
    for conversation in page.items:
        found[conversation.id] = {
            "conversation": conversation,
            "branches": await store.list_branches(conversation.id),
            "summaries": await store.list_summaries(conversation.id),
            "messages": {
                branch.id: [_plain(message) async for message in store.iter_messages(conversation.id, branch=branch.id)]
                for branch in await store.list_branches(conversation.id)
            },
        }
    records = [record async for record in store.records.iter()]
    found["records"] = [record for record in records if not marks.is_index(record)]
    # Every store makes the index of ratings and labels itself, so its times and revisions differ.
    found["marks"] = [(each.namespace, each.key, each.value) for each in records if marks.is_index(each)]
    owners = await store.backend.record_owners(Context(store.tenant_id, datetime.now(UTC)))
    found["owners"] = {owner: [each async for each in store.user(owner).records.iter()] for owner in owners}
    found["usage"] = await store.usage()
    return found


def _plain(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}
