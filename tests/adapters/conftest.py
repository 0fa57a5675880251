"""Every adapter on every backend that keeps something, in the loop that its framework runs in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contract.backends import BACKENDS, BY_URL, quick_folder

import hansard
from hansard import Store


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=[name for name in BY_URL if name != "files-snapshot"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    with quick_folder() as folder:
        target = BACKENDS[request.param](folder)
        async with hansard.connect(str(target.where)) as opened:
            yield opened
