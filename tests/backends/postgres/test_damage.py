"""Bytes that were changed behind the store's back are reported."""

from __future__ import annotations

import pytest
from tests.backends.postgres.kit import opened, play, raw
from tests.servers import postgres

from hansard import Corrupt
from hansard.testing.contract.blobs import picture


def test_a_damaged_blob_is_reported() -> None:
    if reason := postgres.why_absent():
        pytest.skip(reason)
    schema = postgres.new_schema()

    async def scenario() -> None:
        async with opened(postgres.with_schema(schema)) as store:
            await store.append_message("c", "user", picture(1))
            await store.append_message("sound", "user", picture(2))
            assert await store.check() == []
            (message,) = await store.get_messages("c", blobs="refs")
            sha256 = message.blobs[0].sha256
            async with raw() as connection:
                await connection.execute(
                    f"UPDATE {schema}.blobs SET data = set_byte(data, 5, get_byte(data, 5) # 1) WHERE sha256 = $1",
                    sha256,
                )
            with pytest.raises(Corrupt, match=sha256):
                await store.blobs.get(sha256)
            with pytest.raises(Corrupt, match=sha256):
                await store.get_messages("c")
            assert [problem.what for problem in await store.check()] == [
                f"blob {sha256} is damaged: its bytes have another hash"
            ]
            assert len([found async for found in store.admin.check() if not isinstance(found, int)]) == 1
            assert len(await store.get_messages("sound")) == 1

    try:
        play(scenario)
    finally:
        postgres.run(postgres.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
