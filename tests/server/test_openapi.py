"""The OpenAPI document is true: requests made from it, right and wrong, are answered as it says, and never by a 500.

`HANSARD_EXAMPLES=200 pytest tests/server/test_openapi.py` looks longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.server.kit import Served, serving

from hansard.server import openapi
from hansard.server.routes import PUBLIC
from hansard.server.settings import Settings

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """A stream is text to the document: whatever text it makes up is sent."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


# A live tail does not end: it has tests of its own.
schema = schemathesis.openapi.from_dict(openapi.document(PUBLIC)).exclude(operation_id="tail_conversation")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    # With an embedder, so that every mode of search is one that this server has.
    with serving(settings=Settings(embedder="hansard.search.embedders:Spelling")) as served:
        yield served


@schema.parametrize()
@settings(
    max_examples=EXAMPLES or 8,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_requests_made_from_the_document(case: Any, server: Served) -> None:
    case.call_and_validate(base_url=server.address, checks=CHECKS)


def test_the_document_is_served(server: Served) -> None:
    served = server.get(server.address + "/api/v1/openapi.json").json()
    assert served["openapi"] == "3.1.0"
    assert len([each for path in served["paths"].values() for each in path]) == len(PUBLIC)
