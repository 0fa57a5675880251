"""Shares that are made while messages are removed."""

from __future__ import annotations

from pathlib import Path

from hansard import sync


def test_a_redacted_share_keeps_nothing_that_is_deleted_while_it_is_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with sync.connect(url) as store, sync.connect(url) as other:
        gone = store.append_message("c", "user", "call Zelda at 555")
        store.append_message("c", "user", "stays")

        def redacted(text: str) -> str:
            other.delete_message("c", gone)
            return text.replace("Zelda", "…")

        share = store.share("c", redact=redacted)
        assert "555" not in repr(list(store.records.iter(["hansard"])))
        assert [each.text for each in store.open_share(share.token or "").messages] == ["stays"]
