"""Every public method of the Store, called once, by name.

Walls and closing apply to all of them. A test compares the table with the methods of the Store, so that no new one is
missing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from hansard import sync
from hansard.assembly import ExtractiveSummarizer
from hansard.backends.memory import MemoryBackend
from hansard.model import Message
from hansard.store import Put, Store
from hansard.store.admin import Admin
from hansard.store.blobs import Blobs
from hansard.store.core import StorePart
from hansard.store.records import Records
from hansard.testing.comparison import state
from hansard.testing.targets import Driver

ID, MESSAGE, BRANCH, OWNER = "victim", "the-message", "side", "ada"
DIGEST = "a" * 64

Call = Callable[[Driver], Any]


def _tail(store: Driver) -> list[Any]:
    """Returns what a watcher sees within 50 ms."""

    async def watch(inner: Store) -> list[Any]:
        seen: list[Any] = []
        tail = inner.watch(ID, after=None)
        first = asyncio.ensure_future(anext(tail))
        await asyncio.wait([first], timeout=0.05)
        if first.done():
            seen.append(first.result())
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await tail.aclose()  # type: ignore[attr-defined]
        return seen

    return store.scenario(watch)


def _imported(store: Driver) -> Any:
    """Imports the export of another store, in which the same conversation has other content."""
    with sync.Store.over(MemoryBackend()) as other:
        other.append(ID, Message("user", "other", id=MESSAGE))
        return store.import_(list(other.export()))


def _copied(copy: Callable[[sync.Store], Any]) -> Any:
    """Copies into a new store; returns the report and the content of that store."""
    with sync.Store.over(MemoryBackend()) as other:
        report = copy(other)
        return report, {tenant: state(other.tenant(tenant)) for tenant in other.admin.tenants()}


CALLS: dict[str, Call] = {
    "Store.create_conversation": lambda store: store.create_conversation(ID),
    "Store.get_conversation": lambda store: store.get_conversation(ID),
    "Store.list_conversations": lambda store: store.list_conversations(archived=None),
    "Store.iter_conversations": lambda store: list(store.iter_conversations(archived=None)),
    "Store.remote_id": lambda store: store.remote_id(ID),
    "Store.update_conversation": lambda store: store.update_conversation(ID, title="mine", metadata={"a": None}),
    "Store.delete_conversation": lambda store: store.delete_conversation(ID),
    "Store.append_message": lambda store: store.append_message(ID, "user", "x", id=MESSAGE),
    "Store.append": lambda store: store.append(ID, Message("user", "x", id=MESSAGE)),
    "Store.replace_messages": lambda store: store.replace_messages(ID, [Message("user", "x")]),
    "Store.update_message": lambda store: store.update_message(ID, MESSAGE, content="x"),
    "Store.delete_message": lambda store: store.delete_message(ID, MESSAGE),
    "Store.delete_messages": lambda store: store.delete_messages(ID, [MESSAGE]),
    "Store.clear_messages": lambda store: store.clear_messages(ID),
    "Store.pop_message": lambda store: store.pop_message(ID),
    "Store.get_message": lambda store: store.get_message(ID, MESSAGE),
    "Store.get_messages": lambda store: store.get_messages(ID, limit=100),
    "Store.iter_messages": lambda store: list(store.iter_messages(ID)),
    "Store.window": lambda store: store.window(ID),
    "Store.assemble_prompt": lambda store: store.assemble_prompt(ID),
    "Store.get_prompt": lambda store: store.get_prompt(ID, MESSAGE),
    "Store.summarize": lambda store: store.summarize(ID, ExtractiveSummarizer(), keep=0),
    "Store.rebuild_summaries": lambda store: store.rebuild_summaries(ID, ExtractiveSummarizer(), keep=0),
    "Store.add_member": lambda store: store.add_member(ID, "mallory"),
    "Store.remove_member": lambda store: store.remove_member(ID, "mallory"),
    "Store.share": lambda store: store.share(ID),
    "Store.list_shares": lambda store: store.list_shares(ID),
    "Store.unshare": lambda store: store.unshare(ID, "share_x"),
    "Store.open_share": lambda store: store.open_share("XYZZ"),
    "Store.rate": lambda store: store.rate(ID, MESSAGE, 1),
    "Store.remove_rating": lambda store: store.remove_rating(ID, MESSAGE),
    "Store.add_label": lambda store: store.add_label(ID, "mine"),
    "Store.remove_label": lambda store: store.remove_label(ID, "XYZZY"),
    "Store.list_labels": lambda store: store.list_labels(),
    "Store.branch": lambda store: store.branch(ID, at=MESSAGE),
    "Store.switch_branch": lambda store: store.switch_branch(ID, BRANCH),
    "Store.list_branches": lambda store: store.list_branches(ID),
    "Store.delete_branch": lambda store: store.delete_branch(ID, BRANCH),
    "Store.fork": lambda store: store.fork(ID),
    "Store.add_summary": lambda store: store.add_summary(ID, "x", from_seq=1, to_seq=1),
    "Store.list_summaries": lambda store: store.list_summaries(ID),
    "Store.search": lambda store: store.search("XYZZY", all_branches=True),
    "Store.search_tool": lambda store: store.search_tool(ID)("XYZZY"),
    "Store.watch": _tail,
    "Store.erase_user": lambda store: store.erase_user(OWNER),
    "Store.purge": lambda store: store.purge(timedelta(0)),
    "Store.backup": lambda store: store.backup("/nonexistent/backup"),
    "Store.usage": lambda store: store.usage(),
    "Store.stats": lambda store: store.stats(),
    "Store.check": lambda store: store.check(),
    "Store.export": lambda store: list(store.export()),
    "Store.import_": _imported,
    "Store.copy_to": lambda store: _copied(store.copy_to),
    "Records.get": lambda store: store.records.get(["n"], "k"),
    "Records.get_many": lambda store: store.records.get_many([(["n"], "k")]),
    "Records.put": lambda store: store.records.put(["n"], "mine", "x", conversation_id=ID),
    "Records.delete": lambda store: store.records.delete(["n"], "k"),
    "Records.write": lambda store: store.records.write([Put(["n"], "k", "x", expected_revision=1)]),
    "Records.scan": lambda store: store.records.scan(),
    "Records.iter": lambda store: list(store.records.iter()),
    "Blobs.put": lambda store: store.blobs.put(b"x"),
    "Blobs.get": lambda store: store.blobs.get(DIGEST),
    "Admin.tenants": lambda store: store.admin.tenants(),
    "Admin.delete_tenant": lambda store: store.admin.delete_tenant("missing"),
    "Admin.stats": lambda store: store.admin.stats(),
    "Admin.reindex": lambda store: list(store.admin.reindex()),
    "Admin.copy_to": lambda store: _copied(store.admin.copy_to),
    "Admin.check": lambda store: list(store.admin.check()),
    "Admin.vacuum": lambda store: store.admin.vacuum(),
}

PURE = {
    f"Store.{name}"
    for name in (
        "to_openai_input",
        "to_openai_responses",
        "to_anthropic_messages",
        "to_gemini_contents",
        "to_langchain_messages",
    )
}
"""They read no storage."""
FRAMEWORKS = {
    f"Store.{name}"
    for name in (
        "adk_memory_service",
        "adk_session_service",
        "claude_session_binding",
        "claude_session_store",
        "crewai_flow_persistence",
        "crewai_memory_storage",
        "langgraph_checkpointer",
        "langgraph_store",
        "openai_session",
        "pydantic_ai_store",
    )
}
"""They return an object of a framework, which may not be installed and uses the calls above."""
NOT_CALLS = {"Store.tenant", "Store.user", "Store.close"} | PURE | FRAMEWORKS | {"Store.embed"}
"""`embed` needs an embedder."""


def public_methods() -> Iterator[str]:
    """Yields every public method of the Store and its parts, as `Class.method`."""
    for part in (Store, Records, Blobs, Admin):
        for name, _ in inspect.getmembers(part, inspect.isfunction):
            if not name.startswith("_") and not hasattr(StorePart, name):
                yield f"{part.__name__}.{name}"


def supported(store: Driver, name: str) -> bool:
    """Returns whether the backend has the capability that the call needs."""
    claims = store.capabilities
    if name.startswith("Records."):
        return claims.records
    if name.startswith("Blobs."):
        return claims.blobs
    if "branch" in name:
        return claims.branches
    by_name = {
        "Store.watch": claims.watch != "none",
        "Store.backup": claims.backup,
        "Admin.vacuum": claims.vacuum,
    }
    return by_name.get(name, True)
