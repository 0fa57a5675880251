"""Bytes that were changed behind the store's back are reported."""

from __future__ import annotations

import pytest
from tests.servers import redis as redis_servers

from hansard import Corrupt, sync
from hansard.testing.contract.blobs import picture


def test_a_damaged_blob_is_reported(url: str) -> None:
    client = redis_servers.shared().client(int(url.partition("db=")[2]))
    with sync.connect(url) as store:
        store.append_message("c", "user", picture(1))
        store.append_message("sound", "user", picture(2))
        assert store.check() == []
        (message,) = store.get_messages("c", blobs="refs")
        sha256 = message.blobs[0].sha256
        (key,) = client.keys(f"*:data:{sha256}")
        client.setrange(key, 5, b"?")
        with pytest.raises(Corrupt, match=sha256):
            store.blobs.get(sha256)
        with pytest.raises(Corrupt, match=sha256):
            store.get_messages("c")
        assert [problem.what for problem in store.check()] == [f"blob {sha256} is damaged: its bytes have another hash"]
        assert len(store.get_messages("sound")) == 1
