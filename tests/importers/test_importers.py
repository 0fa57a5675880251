"""Each foreign format: recognised by itself, read whole, stored as branches, and stored once."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.importers import exports, more_exports

from hansard import Limits, Put, connect
from hansard.errors import Unavailable
from hansard.importers import (
    ForeignConversation,
    ForeignMessage,
    ImportReport,
    importer_for,
    importer_named,
    importers,
    load,
    open_source,
)
from hansard.importers.load import Owner, _groups
from hansard.importers.report import ImportLoss
from hansard.importers.transcripts import Transcript, transcript_line
from hansard.model import Appended, Message, Usage
from hansard.store import Store
from hansard.testing.faulty import Fault, faulty


def as_json(value: Any, name: str = "conversations.json") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(json.dumps(value), "utf-8")
        return path

    return make


TUNED = [{"messages": [{"role": "user", "content": "What is a heron?"}, {"role": "assistant", "content": "A bird."}]}]
SHARED = [
    {
        "id": "sg-1",
        "conversations": [{"from": "human", "value": "What is a heron?"}, {"from": "gpt", "value": "A bird."}],
    }
]
ROWS = [
    {
        "thread_id": "rows-1",
        "author": "human",
        "text": "What is a heron?",
        "message_id": "x1",
        "date": "2026-01-02T03:04:05Z",
    },
    {"thread_id": "rows-2", "author": "human", "text": "Hello", "message_id": "y1", "mood": "fine"},
    {"thread_id": "rows-1", "author": "bot", "text": "A bird.", "message_id": "x2"},
]
TABLE = 'session,role,content\ncsv-1,user,What is a heron?\ncsv-1,assistant,"A bird,\nthat fishes."\n'


def csv_file(folder: Path) -> Path:
    path = folder / "chats.csv"
    path.write_text(TABLE, "utf-8-sig")
    return path


FILES: dict[str, tuple[str, Callable[[Path], Path], int, int, int]] = {
    "a zip of ChatGPT": ("chatgpt", lambda folder: exports.chatgpt_zip(folder / "export.zip"), 2, 11, 1),
    "a file of ChatGPT": ("chatgpt", as_json([exports.chatgpt_conversation()]), 1, 9, 1),
    "Claude.ai": ("claude-ai", as_json([exports.claude_conversation()]), 1, 5, 1),
    "Open WebUI": ("open-webui", as_json([exports.open_webui_chat()], "chats.json"), 1, 3, 1),
    "webui.db": ("open-webui", lambda folder: exports.open_webui_database(folder / "webui.db"), 1, 3, 1),
    "LibreChat": ("librechat", as_json(exports.librechat_export(), "herons.json"), 1, 5, 1),
    "Claude Code": (
        "claude-code",
        lambda folder: exports.jsonl(folder / "s1.jsonl", exports.claude_code_lines()),
        1,
        4,
        0,
    ),
    "Codex": ("codex", lambda folder: exports.jsonl(folder / "rollout-1.jsonl", exports.codex_lines()), 1, 5, 0),
    "llm": ("llm", lambda folder: exports.llm_database(folder / "logs.db"), 1, 5, 0),
    "llm threads": ("llm", lambda folder: exports.llm_threads(folder / "logs.db"), 1, 5, 1),
    "llm tools": ("llm", lambda folder: exports.llm_tools_and_media(folder / "logs.db"), 1, 5, 0),
    "SQLiteSession": ("openai-agents", lambda folder: exports.agents_database(folder / "sessions.db"), 2, 4, 0),
    "LangChain": ("langchain", lambda folder: exports.langchain_database(folder / "history.db"), 1, 2, 0),
    "opencode export": ("opencode", more_exports.opencode_export, 1, 4, 0),
    "opencode storage": ("opencode", more_exports.opencode_storage, 1, 4, 0),
    "opencode.db": ("opencode", more_exports.opencode_database, 1, 4, 0),
    "Gemini Takeout": ("gemini-takeout", more_exports.gemini_zip, 2, 5, 0),
    "Chainlit": ("chainlit", more_exports.chainlit_database, 1, 4, 0),
    "Langfuse": ("langfuse", more_exports.langfuse_observations, 1, 6, 1),
    "ModernPath": ("modernpath", more_exports.modernpath_file, 1, 2, 0),
    "toolpack": (
        "toolpack",
        lambda folder: exports.jsonl(folder / "toolpack.jsonl", more_exports.toolpack_messages()),
        1,
        2,
        0,
    ),
    "toolpack in SQLite": ("toolpack", more_exports.toolpack_database, 1, 2, 0),
    "AI Dev Kit": ("ai-dev-kit", more_exports.ai_dev_kit_folder, 1, 4, 0),
    "Makers": ("makers", more_exports.makers_file, 1, 2, 0),
    "TPipe": ("tpipe", more_exports.tpipe_file, 1, 2, 0),
    "fine-tuning": ("openai-jsonl", lambda folder: exports.jsonl(folder / "train.jsonl", TUNED), 1, 2, 0),
    "ShareGPT": ("sharegpt", as_json(SHARED, "shared.json"), 1, 2, 0),
    "JSON Lines": ("jsonl", lambda folder: exports.jsonl(folder / "rows.jsonl", ROWS), 2, 3, 0),
    "CSV": ("csv", csv_file, 1, 2, 0),
}


async def imported(store: Store, path: Path | str, **options: Any) -> ImportReport:
    source = open_source(path)
    try:
        importer = importer_for(source)
        report = ImportReport(importer.name)
        return await load(store, importer.read(source, report), report, **options)
    finally:
        source.close()


async def texts(store: Store, id: str, branch: str | None = None) -> list[tuple[str, str]]:
    return [(message.role, message.text) async for message in store.iter_messages(id, branch=branch)]


@pytest.mark.parametrize("kind", FILES)
async def test_a_file_is_recognised_and_stored_once(tmp_path: Path, kind: str) -> None:
    name, make, conversations, messages, branches = FILES[kind]
    path = make(tmp_path)
    assert importer_for(open_source(path)).name == name
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        first = await imported(store, path)
        assert (first.problems, first.new, first.messages, first.branches) == ([], conversations, messages, branches)
        stored = [each async for each in store.iter_conversations(archived=None)]
        assert len(stored) == conversations
        again = await imported(store, path)
        assert (again.unchanged, again.new, again.grown, again.messages, again.branches) == (conversations, 0, 0, 0, 0)
        assert [each async for each in store.iter_conversations(archived=None)] == stored
        found = await store.search("heron" if kind not in ("Claude Code", "Codex") else "birds")
        assert found, "what was imported is found"


@pytest.mark.parametrize("kind", FILES)
async def test_a_dry_run_counts_the_same_and_stores_nothing(tmp_path: Path, kind: str) -> None:
    _, make, conversations, messages, branches = FILES[kind]
    path = make(tmp_path)
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        report = await imported(store, path, dry_run=True)
        assert (report.new, report.messages, report.branches) == (conversations, messages, branches)
        assert [each async for each in store.iter_conversations(archived=None)] == []


async def test_both_branches_of_an_edited_question_are_kept(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, exports.chatgpt_zip(tmp_path / "export.zip"))
        shown = await texts(store, "chat-1")
        assert shown[0] == ("user", "What is a heron?")
        assert shown[-1] == ("assistant", "It stands and strikes.")
        (other,) = [branch for branch in await store.list_branches("chat-1") if not branch.active]
        assert await texts(store, "chat-1", other.id) == [
            ("user", "What is a heron?"),
            ("assistant", "A bird."),
            ("user", "Where does it nest?"),
            ("assistant", "In trees."),
        ]
        last = (await store.get_messages("chat-1", last=1))[0]
        assert last.metadata == {"rating": "thumbs_up"}
        assert [rating.value for rating in last.ratings] == [1]
        assert last.usage is not None
        assert last.usage.model == "o3"
        assert report.attachments == 1


async def test_a_tool_call_comes_with_its_result(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        await imported(store, exports.chatgpt_zip(tmp_path / "export.zip"))
        prompt = await store.assemble_prompt("chat-1", format="openai.chat")
        roles = [message["role"] for message in prompt.messages]
        assert roles[-3:] == ["assistant", "tool", "assistant"]


async def test_a_picture_comes_along_as_a_blob(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        await imported(store, exports.chatgpt_zip(tmp_path / "export.zip"))
        asked = (await store.get_messages("chat-2"))[0]
        assert asked.content[0]["media_type"] == "image/png"
        assert asked.content[1] == {"type": "text", "text": "What is this?"}


async def test_a_newer_export_adds_only_what_is_new(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        await imported(store, exports.chatgpt_zip(tmp_path / "one.zip"))
        await store.append_message("chat-1", "user", "Written here.")
        grown = exports.chatgpt_conversation()
        nodes = [
            exports.node("u3", "a2", "user", "And when?"),
            exports.node("a3", "u3", "assistant", "In spring."),
            exports.node("u4", "a2b", "user", "Thanks!"),
        ]
        grown["mapping"] |= {each["id"]: each for each in nodes}
        grown["current_node"] = "a3"
        report = await imported(store, exports.chatgpt_zip(tmp_path / "two.zip", grown))
        assert (report.grown, report.messages, report.branches) == (1, 3, 1)
        assert (await texts(store, "chat-1"))[-1] == ("assistant", "In spring.")
        said = [await texts(store, "chat-1", branch.id) for branch in await store.list_branches("chat-1")]
        assert sorted(each[-1][1] for each in said) == ["In spring.", "Thanks!", "Written here."]


async def test_what_was_deleted_here_stays_deleted(tmp_path: Path) -> None:
    path = exports.chatgpt_zip(tmp_path / "export.zip")
    async with connect("memory://") as store:
        await imported(store, path)
        await store.delete_message("chat-1", "a2b")
        await store.delete_conversation("chat-2")
        report = await imported(store, path)
        assert report.messages == 0
        assert await store.get_conversation("chat-2") is None
        assert "was deleted" in str(report.losses) + str(report.problems)


async def test_a_branch_from_a_message_that_was_deleted_here_follows_the_one_before(tmp_path: Path) -> None:
    chat = exports.chatgpt_conversation()
    async with connect("memory://") as store:
        await imported(store, exports.chatgpt_zip(tmp_path / "one.zip", chat))
        await store.delete_message("chat-1", "a2b")
        chat["mapping"] |= {
            "new": exports.node("new", "a2b", "user", "And so?"),
            "other": exports.node("other", "a2b", "user", "Or else?"),
        }
        report = await imported(store, exports.chatgpt_zip(tmp_path / "two.zip", chat))
        assert (report.messages, report.problems) == (2, [])
        said = [await texts(store, "chat-1", branch.id) for branch in await store.list_branches("chat-1")]
    assert {each[-1][1] for each in said} >= {"And so?", "Or else?"}


async def test_a_message_beyond_the_limits_does_not_keep_the_others_out(tmp_path: Path) -> None:
    chat = {
        "id": "c",
        "current_node": "last",
        "mapping": {
            each["id"]: each
            for each in [
                exports.node("first", None, "user", "Hello"),
                exports.node("long", "first", "assistant", "x" * 2_000),
                exports.node("next", "long", "user", "Shorter, please"),
                exports.node("other", "long", "user", "Longer, please"),
                exports.node("last", "next", "assistant", "y" * 2_000),
            ]
        },
    }
    path = exports.chatgpt_zip(tmp_path / "export.zip", chat)
    async with connect("memory://", limits=Limits(content_bytes=1_000)) as store:
        dry = await imported(store, path, dry_run=True)
        report = await imported(store, path)
        assert dry == report
        again = await imported(store, path)
        assert (report.messages, again.messages) == (3, 0)
        assert [each.where for each in report.problems] == [
            "conversation 'c', message 'long'",
            "conversation 'c', message 'last'",
        ]
        assert report.problems[1] in again.problems
        assert await texts(store, "c") == [("user", "Hello"), ("user", "Shorter, please")]
        said = [(await texts(store, "c", branch.id))[-1][1] for branch in await store.list_branches("c")]
        assert sorted(said) == ["Longer, please", "Shorter, please"]


async def test_a_conversation_of_which_nothing_is_within_the_limits_is_not_stored(tmp_path: Path) -> None:
    chat = {"id": "c", "mapping": {"long": exports.node("long", None, "user", "x" * 2_000)}}
    async with connect("memory://", limits=Limits(content_bytes=1_000)) as store:
        path = exports.chatgpt_zip(tmp_path / "export.zip", chat)
        dry = await imported(store, path, dry_run=True)
        report = await imported(store, path)
        assert dry == report
        assert (report.conversations, report.messages) == (0, 0)
        assert report.problems[0].where == "conversation 'c', message 'long'"
        assert await store.get_conversation("c") is None


async def test_a_dry_run_says_which_conversations_would_be_refused(tmp_path: Path) -> None:
    rows = [
        {"thread_id": id, "role": "user", "content": "Heron", "user_id": user, "rating": rating}
        for id, user, rating in (
            ("x" * 300, "ann", 1),
            ("t1", "y" * 300, 1),
            ("t2", "ann", "a lot"),
            ("t3", "ann", 10**400),
        )
    ]
    async with connect("memory://") as store:
        path = exports.jsonl(tmp_path / "rows.jsonl", rows)
        dry = await imported(store, path, dry_run=True)
        assert dry == await imported(store, path)
        assert (dry.new, len(dry.problems), [*dry.losses]) == (2, 2, ["rating that is no number, or too large"])


async def test_times_that_no_calendar_has_are_reported(tmp_path: Path) -> None:
    given = [
        *(253402300800, -5, "year 10000", "10000-01-01T00:00:00Z", {"at": 1}, 1e300),
        *(None, "", 0),
        *(1700000000, "1700000000", 1700000000_000, 1700000000_000_000, 1700000000_000_000_000, "1700000000.0"),
    ]
    rows = [{"thread_id": "t", "role": "user", "content": "Heron", "time": each} for each in given]
    async with connect("memory://") as store:
        path = exports.jsonl(tmp_path / "rows.jsonl", rows)
        dry = await imported(store, path, dry_run=True)
        report = await imported(store, path)
        assert dry.losses == report.losses == {"time that no calendar has": ImportLoss(5, "-5")}
        times = [message.created_at async for message in store.iter_messages("t")]
        assert times[9:] == [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)] * 6


async def test_the_owner_is_who_the_caller_says(tmp_path: Path) -> None:
    path = FILES["Open WebUI"][1](tmp_path)
    async with connect("memory://") as store:
        await imported(store, path)
        conversation = await store.get_conversation("webui-1")
        assert conversation is not None
        assert conversation.user_id == "ann"
        assert conversation.archived_at is not None
    async with connect("memory://") as store:
        await imported(store, path, owner=Owner(user_id="bob", agent_id="helper"))
        conversation = await store.get_conversation("webui-1")
        assert conversation is not None
        assert (conversation.user_id, conversation.agent_id) == ("bob", "helper")


async def test_fields_of_rows_can_be_named(tmp_path: Path) -> None:
    path = exports.jsonl(tmp_path / "odd.jsonl", [{"wer": "user", "was": "Hello", "wo": "c"}, {"wer": "user"}])
    source = open_source(path)
    importer = importer_named("jsonl", {"role": "wer", "content": "was", "conversation": "wo"})
    report = ImportReport(importer.name)
    async with connect("memory://") as store:
        await load(store, importer.read(source, report), report)
        assert await texts(store, "c") == [("user", "Hello")]
    assert [problem.where for problem in report.problems] == ["odd.jsonl, row 2"]


def test_an_unknown_file_says_what_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Nothing of the kind", "utf-8")
    with pytest.raises(Exception, match="no known kind") as error:
        importer_for(open_source(path), ". Ask ann")
    assert all(importer.name in str(error.value) for importer in importers())
    assert str(error.value).endswith(". Ask ann")


async def test_a_tool_of_opencode_is_a_call_and_its_result(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, more_exports.opencode_export(tmp_path))
        found = await store.get_messages("ses_1")
        assert [(each.role, each.id) for each in found] == [
            ("user", "msg_1"),
            ("assistant", "msg_2.1"),
            ("tool", "msg_2.2"),
            ("assistant", "msg_2"),
        ]
        assert found[1].content[1] == {
            "type": "tool_call",
            "id": "call_1",
            "name": "read",
            "arguments": {"path": "heron.txt"},
        }
        assert found[3].usage is not None
        assert (found[3].usage.model, found[3].usage.cost, found[3].usage.cached_tokens) == (
            "claude-sonnet-5",
            0.0125,
            5,
        )
        page = await store.list_conversations(metadata={"project": "/home/ann/birds", "model": "claude-sonnet-5"})
        assert [(each.title, each.metadata["cost"]) for each in page.items] == [("Herons", 0.0125)]
        assert report.attachments == 1


async def test_threads_of_gemini_are_guessed_by_time_and_say_so(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, more_exports.gemini_zip(tmp_path))
        found = [each async for each in store.iter_conversations(metadata={"guessed_thread": True})]
        assert sorted(each.title or "" for each in found) == ["And an egret?", "What is a heron?"]
        (first,) = [each for each in found if each.title == "What is a heron?"]
        assert await texts(store, first.id) == [
            ("user", "What is a heron?"),
            ("assistant", "A bird & a fisher:\n\n- grey\n\n- tall"),
            ("user", "Where does it nest?"),
        ]
        assert report.losses["answer that Takeout leaves out"].count == 1


async def test_the_page_of_takeout_is_read_as_its_json(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, more_exports.gemini_page(tmp_path))
        found = [each async for each in store.iter_conversations(metadata={"guessed_thread": True})]
        assert report.source == "gemini-takeout"
        assert sorted(each.title or "" for each in found) == [
            *("And an egret?", "And an ibis?", "What is a <heron>, and where?")
        ]
        (first,) = [each for each in found if (each.title or "").startswith("What")]
        assert await texts(store, first.id) == [
            ("user", "What is a <heron>,\nand where?"),
            ("assistant", "A bird & a fisher:\n\n- grey\n\n- tall"),
            ("user", "Where does it nest?"),
        ]
        times = [message.created_at.isoformat() for message in await store.get_messages(first.id)]
        assert times == [*["2026-01-02T03:04:05+00:00"] * 2, "2026-01-02T03:10:00+00:00"]
        assert [problem.what.partition(":")[0] for problem in report.problems] == ["its time is not English"]
        assert report.losses["time zone that is not known: the time was taken as UTC"].example.endswith("XYZT")
        assert (await imported(store, tmp_path / "MyActivity.html")).unchanged == 3


async def test_the_json_and_the_page_of_one_takeout_are_stored_once(tmp_path: Path) -> None:
    page = more_exports.gemini_page(tmp_path)
    packed = more_exports.gemini_zip(tmp_path)
    with zipfile.ZipFile(packed) as file:
        (name,) = file.namelist()
        records = json.loads(file.read(name))
    records[2]["title"] = "Prompted What is a <heron>, and where?"
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "MyActivity.json").write_text(json.dumps(records), "utf-8")
    async with connect("memory://") as store:
        first = await imported(store, tmp_path / "json")
        second = await imported(store, page)
        assert (first.new, first.messages) == (2, 5)
        assert (second.new, second.unchanged) == (1, 2), "only what the page has more"
    shutil.copy(page, tmp_path / "json")
    async with connect("memory://") as store:
        both = await imported(store, tmp_path / "json")
        assert (both.new, both.messages) == (3, 7)
        assert [problem.what.partition(":")[0] for problem in both.problems] == ["its time is not English"]


async def test_chainlits_tools_owners_and_elements(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, more_exports.chainlit_database(tmp_path))
        conversation = await store.get_conversation("cl-1")
        assert conversation is not None
        assert (conversation.user_id, conversation.title, conversation.metadata["tags"]) == ("ann", "Herons", ["birds"])
        assert [message.role for message in await store.get_messages("cl-1")] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert report.losses["element, whose file is in another storage"].example == "heron.png"
        (rating,) = (await store.get_messages("cl-1"))[-1].ratings
        assert (rating.value, rating.by, rating.comment) == (1, "ann", "Short")


async def test_what_generations_of_langfuse_share_is_stored_once(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, more_exports.langfuse_observations(tmp_path))
        said = [await texts(store, "lf-1", branch.id) for branch in await store.list_branches("lf-1")]
        assert sorted(each[-1][1] for each in said) == ["In trees.", "No idea."]
        assert [len(each) for each in said] in ([5, 3], [3, 5])
        assert (await texts(store, "lf-1"))[-1] == ("assistant", "No idea.")
        assert report.losses["observation of the type 'SPAN'"].count == 1
        last = (await store.get_messages("lf-1", last=1))[0]
        assert last.usage is not None
        assert (last.usage.model, last.usage.output_tokens) == ("gpt-5", 3)


async def test_what_the_seeds_stores_keep_is_kept(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        await imported(store, more_exports.modernpath_file(tmp_path))
        conversation = await store.get_conversation("mp-1")
        assert conversation is not None
        assert (conversation.user_id, conversation.audit_id, conversation.agent_id) == ("7", "100", "helper")
        answer = (await store.get_messages("mp-1"))[1]
        assert (answer.text, answer.trace_id, answer.sources[0].document_name) == ("A bird.", "t-1", "Birds")

        await imported(store, more_exports.toolpack_database(tmp_path))
        asked = (await store.get_messages("C042"))[0]
        assert asked.participant is not None
        assert (asked.participant.display_name, asked.scope, asked.mentions) == ("Ann", "thread", ("helper",))

        await imported(store, more_exports.ai_dev_kit_folder(tmp_path))
        (found,) = (await store.list_conversations(agent_id="guide")).items
        assert (found.id, found.title, found.metadata["level"]) == ("unity-1", "Herons", "3")
        assert [message.role for message in await store.get_messages("unity-1")] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]

        await imported(store, more_exports.makers_file(tmp_path))
        made = await store.get_conversation("mk-1")
        assert made is not None
        assert (made.title, made.metadata["summary"]) == ("Herons", "Birds")

        report = await imported(store, more_exports.tpipe_file(tmp_path))
        asked, answer = await store.get_messages("tpipe-1")
        assert (asked.content[1]["media_type"], answer.role, answer.text) == ("image/png", "agent", "A bird.")
        assert report.attachments == 1


PLUGIN = """
from hansard.importers import ForeignConversation, ForeignMessage
from hansard.model import Message


class Birds:
    name = "birds"
    title = "Notes of a bird watcher"

    def recognises(self, source):
        return source.named(".birds") != []

    def read(self, source, report):
        for name in source.named(".birds"):
            yield ForeignConversation(id=name, messages=[ForeignMessage(Message("user", "A heron", "b1"), None)])
"""


async def test_other_fields_of_training_files_are_kept(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Hello"}]
    exports.jsonl(
        tmp_path / "train.jsonl", [{"id": "t", "messages": said, "parallel_tool_calls": False, "split": "dev"}]
    )
    turns = [{"from": "human", "value": "Hello", "weight": 0.5}, {"from": "gpt", "value": "Good day."}]
    exports.jsonl(
        tmp_path / "shared.jsonl", [{"id": "s", "system": "Be kind.", "conversations": turns, "source": "us"}]
    )
    async with connect("memory://") as store:
        await imported(store, tmp_path / "train.jsonl")
        await imported(store, tmp_path / "shared.jsonl")
        kept = {each.id: each.metadata async for each in store.iter_conversations()}
        assert kept == {
            "t": {"parallel_tool_calls": False, "split": "dev", "imported_from": "openai-jsonl"},
            "s": {"source": "us", "imported_from": "sharegpt"},
        }
        assert await texts(store, "s") == [("system", "Be kind."), ("user", "Hello"), ("assistant", "Good day.")]
        assert [message.metadata for message in await store.get_messages("s")] == [None, {"weight": 0.5}, None]


async def test_an_old_log_of_llm_keeps_fragments_files_and_tools(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, exports.llm_tools_and_media(tmp_path / "logs.db"))
        system, asked, called, results, answer = await store.get_messages("llm-1")
        assert report.losses == {"attachment that is only a path": ImportLoss(1, "/home/ann/call.wav")}
    assert (system.content, answer.content) == ("Answer in verse.\nBe short.", "Another.")
    assert asked.content == [
        {"type": "text", "text": "A novel about herons.\nWhat is a heron?"},
        {"type": "image", "media_type": "image/png", "data": "iVBORw=="},
        {"type": "document", "media_type": "application/pdf", "url": "https://example.org/herons.pdf"},
    ]
    assert called.content == [
        {"type": "text", "text": "A bird."},
        {"type": "tool_call", "id": "look-0", "name": "look", "arguments": {"at": "pond"}},
        {"type": "tool_call", "id": "look-1", "name": "look", "arguments": {"at": "sky"}},
    ]
    seen = [{"type": "text", "text": "A heron"}, {"type": "image", "media_type": "image/png", "data": "iVBORw=="}]
    assert results.content == [
        {"type": "tool_result", "id": "look-0", "name": "look", "output": seen},
        {"type": "tool_result", "id": "look-1", "name": "look", "output": "Error: too bright", "is_error": True},
    ]


async def test_a_thread_of_llm_is_stored_once_with_its_branches(tmp_path: Path) -> None:
    async with connect("memory://") as store:
        report = await imported(store, exports.llm_threads(tmp_path / "logs.db"))
        assert (report.new, report.messages, report.branches, report.attachments) == (1, 5, 1, 1)
        assert (report.losses, report.problems) == ({}, [])
        asked, called, result, answer = await store.get_messages("llm-1")
        first = min(await store.list_branches("llm-1"), key=lambda branch: branch.message_count)
        assert await texts(store, "llm-1", branch=first.id) == [
            ("user", "A novel about herons. Who wrote it?"),
            ("assistant", "Nobody."),
        ]
    assert asked.text == "A novel about herons. Who wrote it?"
    assert asked.content[1] == {"type": "image", "media_type": "image/png", "data": "iVBORw=="}
    assert called.content == [
        {"type": "reasoning", "text": "I must look."},
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": "cover"}},
    ]
    assert result.content == [{"type": "tool_result", "id": "c1", "name": "look", "output": "Torn.", "is_error": True}]
    assert (answer.content, answer.usage) == (
        "Nobody knows.",
        Usage(model="gpt-5-mini", input_tokens=19, output_tokens=5),
    )
    assert [each.created_at.minute for each in (asked, called, result, answer)] == [4, 5, 6, 6]


async def test_what_a_log_of_llm_lacks_is_reported(tmp_path: Path) -> None:
    path = exports.llm_threads(tmp_path / "logs.db")
    with closing(sqlite3.connect(path)) as database:
        database.executescript("DELETE FROM fragments; DELETE FROM attachments;")
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert [(each.where, each.what) for each in report.problems] == [
            ("message 'b2:1'", "its fragment 7 is missing"),
            ("attachment 'a1'", "a message names it, but it is missing"),
        ]
        assert (await texts(store, "llm-1"))[0] == ("user", " Who wrote it?")


async def test_notes_of_claude_that_are_lost_are_counted(tmp_path: Path) -> None:
    given = exports.claude_conversation()
    given["chat_messages"][1]["content"].append({"type": "token_budget"})
    async with connect("memory://") as store:
        assert "block of the kind 'token_budget'" in (await imported(store, as_json([given])(tmp_path))).losses


async def test_a_plugin_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "bird_notes-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bird-notes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hansard.importers]\nbirds = bird_notes_importer:Birds\n")
    (tmp_path / "bird_notes_importer.py").write_text(PLUGIN)
    (tmp_path / "walk.birds").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    importers.cache_clear()
    try:
        assert importer_named("birds").title == "Notes of a bird watcher"
        async with connect("memory://") as store:
            report = await imported(store, tmp_path / "walk.birds")
            assert (report.source, report.messages) == ("birds", 1)
    finally:
        importers.cache_clear()


async def test_conversations_are_held_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that an importer has read of them counts: also lines that are no messages, and records."""
    monkeypatch.setitem(_groups.__globals__, "_GROUP_CHARACTERS", 100)  # the name of the module is also a function's
    half = "x" * 60
    line = Transcript([transcript_line(half.encode())], size=len(half))
    read = [
        [ForeignConversation(id=str(n), messages=[ForeignMessage(Message("user", half), None)]) for n in range(2)],
        [ForeignConversation(id=str(n), messages=[], transcript=line) for n in range(2)],
        [ForeignConversation(id=str(n), messages=[], records=[Put("notes", "k", {"v": half})]) for n in range(2)],
    ]
    for conversations in read:
        groups = [len(group) async for group in _groups(conversations, 10)]
        assert groups == [1, 1]
    assert [len(group) async for group in _groups([*read[0][:1], ForeignConversation(id="9", messages=[])], 10)] == [2]


async def test_a_long_conversation_is_stored_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage holds a batch several times on its way: 100 MB in one batch took 320 MB."""
    monkeypatch.setitem(_groups.__globals__, "_BATCH_CHARACTERS", 1000)  # the name of the module is also a function's
    rows = [{"thread_id": "t", "role": "user", "content": f"n{n} {'heron ' * 100}"} for n in range(7)]
    async with connect("memory://") as store:
        versions = [change.version async for change in _appends(store, exports.jsonl(tmp_path / "rows.jsonl", rows))]
        assert len(versions) == 4
        assert [text.split()[0] for _, text in await texts(store, "t")] == [f"n{n}" for n in range(7)]


async def _appends(store: Store, path: Path) -> AsyncIterator[Appended]:
    """What each append of an import returns."""
    found: list[Appended] = []
    append = store.append

    async def noted(*args: Any, **options: Any) -> Appended:
        found.append(await append(*args, **options))
        return found[-1]

    store.append = noted  # type: ignore[method-assign]
    await imported(store, path)
    for each in found:
        yield each


async def test_conversations_stored_at_once_are_counted_one_by_one(tmp_path: Path) -> None:
    rows = [
        {"thread_id": f"t{number % 40}", "role": "user", "content": f"Heron {number}", "message_id": f"m{number}"}
        for number in range(400)
    ]
    async with connect(f"sqlite:///{tmp_path}/store.db") as store:
        await imported(store, exports.jsonl(tmp_path / "rows.jsonl", rows[:390]))
        report = await imported(store, exports.jsonl(tmp_path / "rows.jsonl", rows))
        assert (report.new, report.grown, report.unchanged, report.messages) == (0, 10, 30, 10)
        assert len(await store.search("heron 399")) == 1


async def test_a_conversation_that_comes_twice_is_stored_in_order(tmp_path: Path) -> None:
    first, second = exports.chatgpt_conversation(), exports.chatgpt_conversation()
    second["mapping"]["u3"] = exports.node("u3", "a2b", "user", "And when?")
    second["current_node"] = "u3"
    async with connect("memory://") as store:
        report = await imported(store, as_json([first, second])(tmp_path))
        assert (report.new, report.grown, report.messages) == (1, 1, 10)
        assert (await texts(store, "chat-1"))[-1] == ("user", "And when?")


async def _whole(store: Store) -> dict[str, Any]:
    """All that an import has stored, branch by branch."""
    found: dict[str, Any] = {}
    async for each in store.iter_conversations(archived=None):
        branches = {
            branch.id: [
                (message.id, message.ratings) async for message in store.iter_messages(each.id, branch=branch.id)
            ]
            for branch in await store.list_branches(each.id)
        }
        found[each.id] = (each.title, each.metadata, each.branch, each.archived_at is not None, branches)
    return found


@pytest.mark.parametrize("kind", ["a zip of ChatGPT", "LibreChat", "Claude Code", "JSON Lines"])
async def test_an_import_that_breaks_off_anywhere_goes_on(kind: str, tmp_path: Path) -> None:
    path = FILES[kind][1](tmp_path)
    async with connect("memory://") as store:
        await imported(store, path)
        whole = await _whole(store)
    for at in range(1, 100):
        fault = Fault(at, "after")
        async with connect("memory://") as store:
            with suppress(Unavailable):
                await imported(Store(faulty(store.backend, fault)), path)
            if fault.struck is None:
                return
            assert (await imported(store, path)).problems == []
            assert await _whole(store) == whole, f"broke off after call {at}, {fault.struck}"
            assert (await imported(store, path)).messages == 0
    raise AssertionError("the import has more calls than this test expects")


@pytest.mark.parametrize("kind", ["a zip of ChatGPT", "LibreChat", "Claude Code", "JSON Lines"])
async def test_two_imports_of_a_file_at_once_store_it_once(kind: str, tmp_path: Path) -> None:
    path = FILES[kind][1](tmp_path)
    url = f"sqlite:///{tmp_path}/store.db"
    async with connect("memory://") as store:
        await imported(store, path)
        whole = await _whole(store)
    async with connect(url) as one, connect(url) as other:
        reports = await asyncio.gather(imported(one, path), imported(other, path))
        assert [report.problems for report in reports] == [[], []]
        assert sum(report.messages for report in reports) == FILES[kind][3]
        assert await _whole(one) == whole


def _table(text: str, head: str) -> list[list[str]]:
    """The rows of the Markdown table that begins with this cell."""
    rows = text[text.index(f"| {head} |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_the_documentation_lists_every_source_and_what_is_lost() -> None:
    text = (Path(__file__).parents[2] / "docs/howto/import.md").read_text("utf-8")
    sources = _table(text, "program")
    named = [name.strip("` ") for row in sources for name in row[2].split(",")]
    assert sorted(named) == sorted(importer.name for importer in importers())
    described = [program for row in _table(text, "source") for program in row[0].split(", ")]
    assert sorted(described) == sorted(row[0] for row in sources)
    assert all(all(row) for row in _table(text, "source"))
