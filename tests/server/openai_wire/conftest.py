"""The official SDK, unchanged but for its address. It checks every answer against its own types.

Beside it, every answer of every server in these tests is checked by OpenAI's published document.
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from tests.server import kit
from tests.server.kit import Served, serving
from tests.server.openai_wire import published, schema_check


@pytest.fixture(scope="module", autouse=True)
def noting() -> Iterator[None]:
    """Before the servers of a module, and not before those of other packages, whose answers may be wrong on purpose."""
    try:
        published.document()
    except published.Absent:
        yield  # test_published says so
        return
    kit.BEFORE_ALL.append(schema_check.Noting)
    yield
    kit.BEFORE_ALL.remove(schema_check.Noting)


@pytest.fixture(autouse=True)
def checked(noting: None) -> Iterator[None]:
    """What a test was answered must be what OpenAI's document says."""
    schema_check.SEEN.clear()
    yield
    found = schema_check.take()
    assert not found, "\n".join(sorted(set(found)))


def client_of(api: Served, key: str = "sk-anything", **options: object) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=api.address + "/v1",
        api_key=key,
        **{"max_retries": 0, "timeout": 30, "_strict_response_validation": True, **options},  # type: ignore[arg-type]
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
