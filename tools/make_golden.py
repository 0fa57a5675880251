"""Creates the golden stores of a release: one small store with every kind of data, in every storage format.

Run once for a release (`python tools/make_golden.py tests/golden/0.1.0`). The result is committed and never recreated:
the newest code must open what every release has written.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hansard
from hansard import Message, Participant, Source, Store, Usage

BEGIN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode()


class Clock:
    """A clock that advances by one second with every call."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


async def fill(store: Store) -> None:
    """Stores one object of every kind."""
    await store.append(
        "order-17",
        [
            Message("user", "Where is my order?\0 😀", id="m1", participant=Participant("user", "ann", "Ann")),
            Message("assistant", [{"type": "text", "text": "It left.", "n": 2**70}], id="m2", format="anthropic"),
            Message("user", [{"type": "image_url", "image_url": {"url": IMAGE}}], id="m3", format="openai.chat"),
        ],
        user_id="ann",
        agent_id="support",
        title="An order",
        metadata={"b": 1, "a": [None, 1.5, "日本語"]},
    )
    usage, source = Usage(input_tokens=7, output_tokens=5, cost=0.25, model="small"), Source("d1", "Terms", "§1", 0.5)
    await store.append_message("order-17", "assistant", "Thanks", id="m4", usage=usage, sources=[source], trace_id="t1")
    await store.branch("order-17", at="m2", branch_id="other")
    await store.append_message("order-17", "user", "On another line", id="m5", metadata={"x": 1}, pinned=True)
    await store.add_summary("order-17", "An order left.", from_seq=1, to_seq=2, model="small")
    await store.update_message("order-17", "m4", content="Thank you")
    await store.append_message("gone", "user", "to be deleted", id="d1")
    await store.delete_message("gone", "d1")
    await store.records.put(("state", "graph"), "step", {"n": 1}, conversation_id="order-17")
    await store.user("ann").records.put(("notes",), "colour", b"\0blue")
    await store.tenant("acme").append_message("c", "user", "in another tenant", id="t1", user_id="bob")


async def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, url in (("sqlite", f"sqlite:///{folder}/store.db"), ("files", f"file://{folder.absolute()}/files")):
        async with hansard.connect(url, clock=Clock()) as store:
            await fill(store)
            print(name, await store.admin.stats())
    async with hansard.connect(f"sqlite:///{folder}/store.db") as store:
        lines = [line async for line in store.export()]
    (folder / "export.jsonl").write_bytes(b"".join(lines))
    (folder / "about.json").write_text(json.dumps({"version": hansard.__version__}) + "\n")


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
