"""What a reading connection remembers, and the ways through the index: none of it may change what is found."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hansard.search
import hansard.sync
from hansard.backends.shared.full_text import user_term
from hansard.backends.sqlite import read_cache, search
from hansard.model import Message


@pytest.fixture(autouse=True)
def _index_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search indexes what was appended before it."""
    monkeypatch.setattr(search, "TAIL", 0)


def words(found: hansard.search.Hits) -> list[str]:
    return [hit.message.text for hit in found]


def test_what_is_remembered_is_forgotten_with_the_next_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with hansard.sync.connect(url) as one, hansard.sync.connect(f"{url}?durability=normal") as two:
        # Another durability is another engine: as another process would be.
        for number in range(5):
            one.append_message("c", "user", f"needle {number}", user_id="ann")
            two.append_message("d", "user", f"needle {number}", user_id="ben")
            for store in (one, two):
                assert len(store.search("needle", limit=100)) == 2 * (number + 1)
                assert len(store.search("needle", conversation_id="c", limit=100)) == number + 1
                assert len(store.search("needle", user_id="ben", limit=100)) == number + 1
        two.update_conversation("c", title="another")
        assert one.search("needle", conversation_id="c")[0].conversation.title == "another"
        two.delete_conversation("c")
        assert one.search("needle", conversation_id="c") == []
        assert len(one.search("needle")) == 5
        two.append_message("c", "user", "needle again")
        assert words(one.search("needle", conversation_id="c")) == ["needle again"]


def test_what_is_given_away_can_be_changed(tmp_path: Path) -> None:
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        store.create_conversation("c")
        store.create_conversation("d", metadata={"deep": {"kind": "chat"}})
        for id in ("c", "d"):
            store.append_message(id, "user", "needle")
        for _ in range(3):
            for scope in ({"conversation_id": "c"}, {"conversation_id": "d"}, {}):
                for hit in store.search("needle", order="newest", **scope):  # type: ignore[arg-type]
                    metadata = hit.conversation.metadata
                    assert metadata == ({"deep": {"kind": "chat"}} if hit.conversation.id == "d" else {})
                    metadata.setdefault("deep", {})["kind"] = "changed"


def test_what_has_expired_is_not_remembered(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}", clock=lambda: now[0]) as store:
        store.create_conversation("c", expires_at=now[0] + timedelta(hours=1))
        store.append_message("c", "user", "needle")
        for scope in ({"conversation_id": "c"}, {}):
            assert len(store.search("needle", **scope)) == 1  # type: ignore[arg-type]
        now[0] += timedelta(hours=2)
        for scope in ({"conversation_id": "c"}, {}):
            assert store.search("needle", **scope) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("few", [0, 3, 1000])
def test_rare_and_common_words_are_found_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """By picking from all that match, and by the conversation's own term: over branches, filters and pages."""
    monkeypatch.setattr(read_cache, "_FEW", few)
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for number in range(12):
            store.append_message("c", "user", f"needle {number}", id=f"m{number}", user_id="ann")
            store.append_message("d", "assistant", f"needle and hay {number}", user_id="ann")
        store.branch("c", at="m5")
        store.append_message("c", "assistant", "needle on the side")
        for order in ("newest", "relevance"):
            here = store.search("needle", conversation_id="c", order=order, limit=100)
            assert sorted(words(here)) == sorted([*(f"needle {number}" for number in range(6)), "needle on the side"])
        assert words(store.search("needle", conversation_id="c", order="newest", limit=3)) == [
            "needle on the side",
            "needle 5",
            "needle 4",
        ]
        assert len(store.search("needle", conversation_id="c", branch="main", limit=100)) == 12
        assert len(store.search("needle", conversation_id="c", all_branches=True, limit=100)) == 13
        assert words(store.search("needle", conversation_id="c", roles=["assistant"])) == ["needle on the side"]
        paged: list[str] = []
        page = store.search("needle", conversation_id="d", order="newest", limit=5)
        while page:
            paged += words(page)
            if page.next_cursor is None:
                break
            page = store.search("needle", conversation_id="d", order="newest", limit=5, cursor=page.next_cursor)
        assert paged == [f"needle and hay {number}" for number in reversed(range(12))]


def test_words_that_look_like_owners(tmp_path: Path) -> None:
    """The terms of conversations and users lie in the same index: they are never found as words."""
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as store:
        for number in range(9):
            store.append_message(f"chat-{number}", "user", "hay", user_id="ann")
        terms = [*(f"c{number}" for number in range(12)), user_term("ann"), "c*", "u*"]
        for term in terms:
            assert store.search(term) == [], term
        store.append_message("chat-0", "user", "the vitamin c1 and c2", user_id="ann")
        assert words(store.search("c1")) == ["the vitamin c1 and c2"]
        assert len(store.search("c*")) == 1


def test_the_same_time_in_many_conversations(tmp_path: Path) -> None:
    """Where times are the same, the seq and then the id of the conversation decide, however many there are."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with hansard.sync.connect(f"sqlite:///{tmp_path / 'a.db'}", clock=lambda: at) as store:
        for id in ("b", "c", "a"):
            store.append(id, [Message("user", f"needle {id}{number}") for number in range(4)])
        expected = [f"needle {id}{number}" for number in (3, 2, 1, 0) for id in ("c", "b", "a")]
        for limit in range(1, 13):
            assert words(store.search("needle", order="newest", limit=limit, token_cap=None)) == expected[:limit]


def test_a_large_fill_ends_in_one_piece(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    def pieces() -> int:
        with closing(sqlite3.connect(path)) as raw:
            count: int = raw.execute("SELECT count(DISTINCT segid) FROM search_idx").fetchone()[0]
            return count

    with hansard.sync.connect(f"sqlite:///{path}") as store:
        texts = [Message("user", f"needle {number} in hay {number * 7919 % 1013}") for number in range(6000)]
        for start in range(0, len(texts), 500):
            store.append(f"c{start}", texts[start : start + 500])
            store.search("needle", limit=1)
        assert pieces() > 1
        for _ in store.admin.reindex():
            pass
        assert pieces() == 1
        assert len(store.search('"needle 17"')) == 1
        assert [found for found in store.admin.check() if isinstance(found, hansard.Problem)] == []
