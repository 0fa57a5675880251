"""Every adapter on each kind of backend, in the loop that its framework runs in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contract.backends import BACKENDS, FOR_ADAPTERS, quick_folder

import hansard
from hansard import Store


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=FOR_ADAPTERS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    with quick_folder() as folder:
        target = BACKENDS[request.param](folder)
        async with hansard.connect(str(target.where)) as opened:
            yield opened
