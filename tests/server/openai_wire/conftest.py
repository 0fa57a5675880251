"""The official SDK, unchanged but for its address. It checks every answer against its own types."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from tests.server.kit import Served, serving


def client_of(api: Served, key: str = "sk-anything", **options: object) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=api.address + "/v1",
        api_key=key,
        _strict_response_validation=True,
        **{"max_retries": 0, "timeout": 30, **options},  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    """One server for a module: a client takes longer to make than most tests. Each makes conversations of its own."""
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def client(api: Served) -> Iterator[openai.OpenAI]:
    with client_of(api) as client:
        yield client
