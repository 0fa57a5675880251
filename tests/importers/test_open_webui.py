"""What Open WebUI keeps of a message: files, sources, ratings, usage, what it renders, and the rows of its database."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.importers.exports import PNG, open_webui_chat, open_webui_database
from tests.importers.more_exports import PICTURE
from tests.importers.test_importers import as_json, imported, texts

from hansard import connect
from hansard.importers import ImportReport, open_source
from hansard.importers.open_webui import OpenWebUi
from hansard.importers.report import ImportLoss
from hansard.model import Source, Usage

RENDERED = """<details type="reasoning" done="true" duration="3">
<summary>Thought for 3 seconds</summary>
&gt; A bird?
&gt; Yes.
</details>
Let me look.
<details type="tool_calls" done="true" id="call_1" name="look"
arguments="&quot;{\\&quot;at\\&quot;: \\&quot;pond\\&quot;}&quot;" result="&quot;A heron&quot;" files="">
<summary>Tool Executed</summary>
</details>
A heron. <details type="reasoning" of="nothing"""


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    before = None
    for each in messages:
        each |= {"parentId": before, "timestamp": 1_700_000_000}
        before = each["id"]
    history = {"currentId": before, "messages": {each["id"]: each for each in messages}}
    return {"id": "c", "user_id": "ann", "title": "Herons", "chat": {"history": history, "models": ["llama3"]} | more}


async def test_files_sources_ratings_and_usage_are_kept(tmp_path: Path) -> None:
    files = [
        {"type": "image", "url": PICTURE},
        {"type": "file", "id": "f1", "name": "a.txt", "file": {"id": "f1", "data": {"content": "Herons fish."}}},
        {"type": "file", "id": "f2", "name": "b.pdf"},
    ]
    passages = {
        "source": {"id": "d1", "name": "Birds"},
        "document": ["They fish."],
        "metadata": [{}],
        "distances": [0.5],
    }
    given = chat(
        {"id": "u", "role": "user", "content": "What is it?", "files": files},
        {
            "id": "a",
            "role": "assistant",
            "content": "A heron.",
            "model": "llama3",
            "info": {"prompt_eval_count": 9, "eval_count": 3},
            "sources": [passages],
            "statusHistory": [{"action": "web_search", "done": True}],
            "error": {"content": "too slow"},
            "annotation": {"rating": -1, "reason": "too short", "comment": "No"},
            "followUps": [],
        },
        params={"system": "Be short."},
    )
    async with connect("memory://") as store:
        report = await imported(store, as_json([given], "chats.json")(tmp_path))
        asked, answer = await store.get_messages("c")
        found = await store.get_conversation("c")
    assert [(part["type"], part.get("name"), part.get("text")) for part in asked.content] == [
        ("image", None, None),
        ("document", "a.txt", "Herons fish."),
        ("text", None, "What is it?"),
    ]
    assert report.losses == {
        "file of Open WebUI, of which there is only its text": ImportLoss(1, "a.txt"),
        "file of Open WebUI, which is only named": ImportLoss(1, "b.pdf"),
    }
    assert report.attachments == 1
    assert answer.sources == (Source("d1", "Birds", "They fish.", 0.5),)
    assert answer.usage == Usage(model="llama3", input_tokens=9, output_tokens=3)
    assert [(rating.value, rating.comment) for rating in answer.ratings] == [(-1, "too short; No")]
    assert answer.metadata is not None
    assert answer.metadata["statusHistory"] == [{"action": "web_search", "done": True}]
    assert answer.metadata["error"] == {"content": "too slow"}
    assert found is not None
    assert found.metadata == {"params": {"system": "Be short."}, "models": ["llama3"], "imported_from": "open-webui"}


async def test_what_was_rendered_becomes_reasoning_calls_and_results_again(tmp_path: Path) -> None:
    given = chat(
        {"id": "u", "role": "user", "content": 'What is <details type="reasoning">x</details>?'},
        {"id": "a", "role": "assistant", "content": RENDERED, "annotation": {"tags": ["birds"]}},
    )
    async with connect("memory://") as store:
        report = await imported(store, as_json([given], "chats.json")(tmp_path))
        asked, called, result, answer = await store.get_messages("c")
    assert asked.content == 'What is <details type="reasoning">x</details>?'
    assert called.content == [
        {"type": "reasoning", "text": "A bird?\nYes."},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"at": "pond"}},
    ]
    assert result.content == [{"type": "tool_result", "id": "call_1", "name": "look", "output": "A heron"}]
    assert (answer.id, answer.content) == ("a", 'A heron. <details type="reasoning" of="nothing')
    assert (answer.metadata, report.losses) == ({"annotation": {"tags": ["birds"]}}, {})


async def test_an_answer_that_somebody_has_edited_is_kept_as_edited(tmp_path: Path) -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A bird."}]}]
    given = chat(
        {"id": "u", "role": "user", "content": [{"type": "text", "text": "What is a heron?"}]},
        {"id": "a", "role": "assistant", "content": "A stork.", "originalContent": "A bird.", "output": output},
    )
    async with connect("memory://") as store:
        await imported(store, as_json([given], "chats.json")(tmp_path))
        assert await texts(store, "c") == [("user", "What is a heron?"), ("assistant", "A stork.")]
        answer = (await store.get_messages("c"))[1]
    assert answer.metadata == {"originalContent": "A bird.", "output": output}


def test_chats_of_a_database_are_read_one_at_a_time(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "webui.db")) as database:
        database.execute("CREATE TABLE chat (id TEXT PRIMARY KEY, user_id TEXT, chat TEXT, created_at INT)")
        for number in range(40):
            said = json.dumps(chat({"id": "m", "role": "user", "content": "x" * (1 << 20)})["chat"])
            database.execute("INSERT INTO chat VALUES (?, 'ann', ?, ?)", (f"c{number}", said, -number))
        database.commit()
    report = ImportReport("open-webui")
    tracemalloc.start()
    try:
        found = [each.id for each in OpenWebUi().read(open_source(tmp_path / "webui.db"), report)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [f"c{number}" for number in reversed(range(40))]
    assert peak < 16 << 20


async def test_rows_of_newer_databases_and_the_folder_of_uploads_are_read(tmp_path: Path) -> None:
    path = open_webui_database(tmp_path / "webui.db")
    given = open_webui_chat()
    given["chat"]["history"]["messages"]["w1"]["files"] = [{"type": "image", "url": "img-1", "name": "heron.png"}]
    row = (
        "webui-1-w3",
        "webui-1",
        "user",
        "w2",
        '"And where?"',
        json.dumps([{"id": "f1", "name": "a.txt"}]),
        1_700_000_001,
    )
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            ALTER TABLE chat ADD COLUMN folder_id TEXT;
            ALTER TABLE chat ADD COLUMN summary TEXT;
            CREATE TABLE folder (id TEXT, name TEXT);
            CREATE TABLE message (id TEXT, channel_id TEXT, content TEXT);
            INSERT INTO message VALUES ('m', 'general', 'Hello all');
            CREATE TABLE feedback (id TEXT, type TEXT, data TEXT, meta TEXT);
            CREATE TABLE file (id TEXT, filename TEXT, path TEXT, data TEXT, meta TEXT);
            CREATE TABLE chat_message (id TEXT, chat_id TEXT, role TEXT, parent_id TEXT, content TEXT, files TEXT,
                created_at INT);
            INSERT INTO folder VALUES ('fo', 'Birds');
            INSERT INTO file VALUES ('f1', 'a.txt', '/data/f1_a.txt', '{"content": "Herons nest."}', '{}');
            INSERT INTO feedback VALUES ('fb', 'rating', '{"rating": 1, "comment": "Yes"}',
                '{"chat_id": "webui-1", "message_id": "w2b"}');
            INSERT INTO feedback VALUES ('fc', 'rating', '{"rating": 1}',
                '{"chat_id": "webui-1", "message_id": "gone"}');
            UPDATE chat SET folder_id = 'fo', summary = 'About birds';
            """
        )
        database.execute("UPDATE chat SET chat = ?", (json.dumps(given["chat"]),))
        database.execute("INSERT INTO chat_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / "img-1_heron.png").write_bytes(PNG)
    async with connect("memory://") as store:
        report = await imported(store, tmp_path)
        found = await store.get_conversation("webui-1")
        asked, _, last = [await store.get_message("webui-1", id) for id in ("w1", "w2", "w3")]
        other = await store.get_message("webui-1", "w2b")
    assert (report.source, report.messages, report.attachments) == ("open-webui", 4, 1)
    assert found is not None
    assert (found.metadata["folder"], found.metadata["summary"]) == ("Birds", "About birds")
    assert asked.content[0]["media_type"] == "image/png"
    assert [part.get("text") for part in last.content] == ["Herons nest.", "And where?"]
    assert [(rating.value, rating.comment) for rating in other.ratings] == [(1, "Yes")]
    assert report.losses["rating of a message that is missing"].count == 1
    assert report.losses["message of a channel"] == ImportLoss(1, "channel 'general', message 'm'")
