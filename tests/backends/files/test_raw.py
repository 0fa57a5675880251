"""The files in the folder, read without the store."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from tests.backends.files import kit

from hansard import Message
from hansard.testing import Clock, state

MODES = ("delta", "snapshot")


def fill(root: Path, mode: str, clock: Clock) -> None:
    with kit.connect(root, clock, mode=mode) as store:
        store.append(
            "c", [Message("user", "one", id="m1"), Message("assistant", {"k": [1, 2.0]}, id="m2")], user_id="u"
        )
        store.append_message("c", "user", "two", id="m3", usage={"input_tokens": 5, "model": "m"})
        store.branch("c", at="m2", branch_id="b")
        store.append_message("c", "user", "drei ü \0 😀", id="m4")
        store.update_message("c", "m1", content="one, corrected")
        store.add_summary("c", "they talked", from_seq=1, to_seq=2)
        store.update_conversation("c", title="T", metadata={"big": 2**80})
        store.records.put(["n"], "k", {"v": 1}, conversation_id="c")


def test_a_batch_is_one_line(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append("c", [Message("user", str(number)) for number in range(5)])
        store.append("c", [Message("user", "x"), Message("user", "y")])
    found = kit.lines(kit.journal(tmp_path, "c"))
    assert [[message["content"] for message in line["messages"]] for line in found] == [
        ["0", "1", "2", "3", "4"],
        ["x", "y"],
    ]
    assert found[0]["hansard"] == 1
    assert (found[0]["kind"], found[0]["tenant"], found[0]["id"]) == ("conversation", "default", "c")


def test_delta_only_adds_to_the_end(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "first", id="m")
        path = kit.journal(tmp_path, "c")
        before, inode = path.read_bytes(), path.stat().st_ino
        sizes = []
        for number in range(50):
            store.append_message("c", "user", f"{number:3}")
            store.update_conversation("c", title=f"{number:3}")
            sizes.append(path.stat().st_size)
        store.update_message("c", "m", content="changed")
        store.branch("c", at="m")
    assert path.read_bytes().startswith(before)
    assert path.stat().st_ino == inode
    growth = [after - before for before, after in pairwise(sizes)]
    assert max(growth) - min(growth) < 10, "a line does not grow with the history"


def test_snapshot_replaces_the_file_whole(tmp_path: Path) -> None:
    with kit.connect(tmp_path, mode="snapshot") as store:
        path = kit.journal(tmp_path, "c")
        for number in range(5):
            store.append_message("c", "user", f"{number}")
            with path.open("rb") as held:
                found = kit.lines(path)
                assert [line["messages"][0]["content"] for line in found[1:-1]] == [str(n) for n in range(number + 1)]
                assert found[-1]["conversation"]["message_count"] == number + 1
                store.update_conversation("c", title=f"{number}")
                assert path.stat().st_ino != os.fstat(held.fileno()).st_ino
                assert held.read().count(b"\n") == len(found), "a reader that has it open keeps the whole old file"
    assert [each.name for each in path.parent.iterdir()] == ["c.jsonl"], "nothing temporary stays"


def test_snapshots_of_neighbouring_states_differ_in_few_lines(tmp_path: Path) -> None:
    with kit.connect(tmp_path, mode="snapshot") as store:
        for number in range(20):
            store.append_message("c", "user", f"{number}", id=f"m{number}")
        before = kit.journal(tmp_path, "c").read_text().splitlines()
        store.append_message("c", "user", "20")
        after = kit.journal(tmp_path, "c").read_text().splitlines()
        assert after[:21] == before[:21]
        store.update_message("c", "m7", content="changed")
        changed = kit.journal(tmp_path, "c").read_text().splitlines()
    differ = [number for number, pair in enumerate(zip(after, changed, strict=True)) if pair[0] != pair[1]]
    assert differ == [8, 22], "the message, and the last line"


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_both_modes_read_and_write_each_others_files(tmp_path: Path, first: str, second: str) -> None:
    fill(tmp_path, first, Clock())
    with kit.connect(tmp_path, Clock(), mode=first) as store:
        expected = state(store)
    with kit.connect(tmp_path, Clock(), mode=second) as store:
        assert state(store) == expected
        store.append_message("c", "user", "more")
    with kit.connect(tmp_path, Clock(), mode=first) as store:
        assert kit.contents(store, "c")[-1] == "more"
        assert store.check() == []
    for path in kit.journals(tmp_path):
        kit.lines(path)


def test_content_is_readable_json(tmp_path: Path) -> None:
    fill(tmp_path, "delta", Clock())
    messages = [message for line in kit.lines(kit.journal(tmp_path, "c")) for message in line.get("messages", [])]
    assert [message["content"] for message in messages] == [
        "one",
        {"k": [1, 2.0]},
        "two",
        "drei ü \0 😀",
        "one, corrected",
    ]
    assert "drei ü \\u0000 😀".encode() in kit.journal(tmp_path, "c").read_bytes()


def test_each_agent_has_a_folder(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("a", "user", "x", agent_id="Helper")
        store.append_message("b", "user", "x")
        store.tenant("acme").append_message("a", "user", "x", agent_id="helper")
    assert [str(path.relative_to(tmp_path)) for path in kit.journals(tmp_path)] == [
        "acme/helper/a.jsonl",
        "default/_no_agent/b.jsonl",
        "default/~helper/a.jsonl",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_moves_with_its_agent(tmp_path: Path, mode: str) -> None:
    with kit.connect(tmp_path, mode=mode) as store, kit.connect(tmp_path) as other:
        store.append_message("c", "user", "x", agent_id="one")
        assert kit.contents(other, "c") == ["x"]
        for agent in ("two", None, "one", "three"):
            store.update_conversation("c", agent_id=agent)
            assert kit.journals(tmp_path) == [kit.journal(tmp_path, "c", agent or "_no_agent")]
            assert kit.contents(other, "c")[0] == "x"
            other.append_message("c", "user", "y")
            assert [each.agent_id for each in other.list_conversations().items] == [agent]
        assert kit.contents(store, "c") == ["x", "y", "y", "y", "y"]
        assert store.check() == []
    assert not (tmp_path / "default" / "one").exists(), "an empty folder is removed"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["message", "clear", "conversation", "branch", "user", "tenant"])
def test_deleted_data_is_in_no_file(tmp_path: Path, mode: str, how: str) -> None:
    secret = "secret-xyzzy"
    with kit.connect(tmp_path, mode=mode) as store:
        store.append("c", [Message("user", "before", id="a"), Message("user", secret, id="b")], user_id="u", title="t")
        store.append_message("c", "user", "after")
        if how == "branch":
            store.delete_message("c", "b")
            store.branch("c", at="a", branch_id="side")
            store.append_message("c", "user", secret)
            store.switch_branch("c", "main")
        assert secret.encode() in kit.everything(tmp_path)
        receipt = {
            "message": lambda: store.delete_message("c", "b"),
            "clear": lambda: store.clear_messages("c"),
            "conversation": lambda: store.delete_conversation("c"),
            "branch": lambda: store.delete_branch("c", "side"),
            "user": lambda: store.erase_user("u"),
            "tenant": lambda: store.admin.delete_tenant("default"),
        }[how]()
        assert receipt
        assert not receipt.physically_gone, "unlinked, not overwritten"
        assert secret.encode() not in kit.everything(tmp_path)
        assert store.check() == []


def test_a_deleted_conversation_leaves_a_hash_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path, "delta", Clock())
    with kit.connect(tmp_path, Clock()) as store:
        store.delete_conversation("c")
        store.purge()
    assert kit.journals(tmp_path) == []
    for word in (b"corrected", b"they talked", b'"c"', b"m1", b'"v":1'):
        assert word not in kit.everything(tmp_path)
    log = kit.lines(tmp_path / "default" / "_tenant.jsonl")
    assert [line["tombstones"] for line in log if "tombstones" in line]


def test_records_are_stored_in_the_space_of_their_owner(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.records.put(["n"], "k", {"v": 1})
        store.user("U 1").records.put(["n"], "k", b"\0\xff")
    spaces = {path.name: kit.lines(path) for path in (tmp_path / "default" / "_records").iterdir()}
    assert sorted(spaces) == ["_common.jsonl", "~u%201.jsonl"]
    assert spaces["_common.jsonl"][0]["records"][0]["value"] == {"v": 1}
    assert spaces["~u%201.jsonl"][0]["records"][0]["data"] == "AP8="


def test_a_blob_is_a_file_named_by_its_hash(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        blob = store.blobs.put(b"bytes")
        assert (tmp_path / "default" / "_blobs" / blob.sha256[:2] / blob.sha256).read_bytes() == b"bytes"
        (tmp_path / "default" / "_blobs" / blob.sha256[:2] / blob.sha256).write_bytes(b"other")
        with pytest.raises(Exception, match="hash") as caught:
            store.blobs.get(blob.sha256)
        assert type(caught.value).__name__ == "Corrupt"
        assert [problem.what for problem in store.check()] == ["its content does not have the hash in its name"]


def test_other_files_cannot_be_read_as_blobs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with kit.connect(tmp_path / "store") as store:
        store.blobs.put(b"x")
        for name in ("../../../../secret", str(tmp_path / "secret"), "A" * 64, "", "\0"):
            with pytest.raises(Exception, match=r"no blob|NUL|empty"):
                store.blobs.get(name)


def test_a_journal_with_much_waste_is_rewritten(tmp_path: Path) -> None:
    with kit.connect(tmp_path) as store:
        store.append_message("c", "user", "x", id="m", status="in_progress")
        for number in range(300):
            store.update_message("c", "m", content=f"{number} " + "y" * 4000, status="in_progress")
        assert kit.journal(tmp_path, "c").stat().st_size < 700_000
        for number in range(2000):
            store.records.put(["n"], "k", "z" * 1000 + str(number))
        assert (tmp_path / "default" / "_records" / "_common.jsonl").stat().st_size < 900_000
        assert store.get_message("c", "m").content.startswith("299 ")
        assert store.check() == []


def test_the_folder_records_its_format(tmp_path: Path) -> None:
    kit.connect(tmp_path).close()
    assert json.loads((tmp_path / "hansard.json").read_text()) == {"store": "hansard", "format": 1}
