"""Writes a JSON array element by element."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec


async def json_array(values: AsyncIterator[object]) -> AsyncIterator[bytes]:
    yield b"["
    separator = b"\n"
    async for value in values:
        yield separator + msgspec.json.encode(value)
        separator = b",\n"
    yield b"\n]\n"
