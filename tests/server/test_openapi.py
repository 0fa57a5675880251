"""The OpenAPI document is true: requests made from it, right and wrong, are answered as it says, and never by a 500.

`HANSARD_EXAMPLES=200 pytest tests/server/test_openapi.py` looks longer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import openapi_spec_validator
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from tests.server.documented_requests import send_all
from tests.server.kit import Served, serving

from hansard.server import openapi
from hansard.server.app import PUBLIC
from hansard.server.settings import Settings

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


@pytest.fixture(scope="module")
def document() -> Any:
    # A live tail does not end: it has tests of its own.
    return schemathesis.openapi.from_dict(openapi.document(PUBLIC)).exclude(operation_id="tail_conversation")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    # With an embedder, so that every mode of search is one that this server has.
    with serving(settings=Settings(embedder="hansard.search.embedders:Spelling")) as served:
        yield served


@pytest.mark.timeout(3600)  # as many tests as there are operations
def test_requests_made_from_the_document(document: Any, server: Served, subtests: pytest.Subtests) -> None:
    assert send_all(document, server.address, CHECKS, subtests, examples=4) > 40


def test_the_document_is_valid() -> None:
    openapi_spec_validator.validate(json.loads(msgspec.json.encode(openapi.document(PUBLIC))))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_reference_leads_somewhere() -> None:
    document = openapi.document(PUBLIC)
    found = set(references(document))
    assert found
    for reference in found:
        at: Any = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in at, reference
            at = at[step]


def test_every_error_is_a_problem_and_its_body_is_checked(document: Any, server: Served) -> None:
    """A document whose errors could not be resolved would let any body pass."""
    operation = document["/api/v1/conversations/{conversation_id}"]["GET"]
    case = operation.Case(path_parameters={"conversation_id": "never"})
    answer = case.call(base_url=server.address)
    assert answer.status_code == 404
    case.validate_response(answer, checks=[response_schema_conformance])
    answer = case.call(base_url=server.address)
    answer.content = b'{"code": 5}'
    with pytest.raises(FailureGroup, match="schema"):
        case.validate_response(answer, checks=[response_schema_conformance])


def test_headers_that_name_a_tenant_or_a_user(server: Served) -> None:
    """The pattern in the document is the rule of the server."""
    for name in ("Hansard-Tenant", "Hansard-User"):
        pattern = openapi.document(PUBLIC)["components"]["parameters"][name]["schema"]["pattern"]
        for value in ("u_1", "u%201", "m%C3%BCnchen", "{}", "z/|I", "ann@example.com"):
            assert re.search(pattern, value)
            assert server.get("/conversations", headers={name: value}).status_code == 200, value
        for value in ("", "u 1", "100%", "%4", "%zz"):
            assert not re.search(pattern, value)
            answer = server.get("/conversations", headers={name: value})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), value


def test_a_day_is_one_of_the_calendar(server: Served) -> None:
    parameters = openapi.document(PUBLIC)["paths"]["/api/v1/usage"]["get"]["parameters"]
    since = next(each["schema"] for each in parameters if each.get("name") == "since")
    assert since == {"type": "string", "format": "date"}
    for day, status in (("2026-02-28", 200), ("0000-00-00", 400), ("2026-02-30", 400), ("2026-2-1", 400)):
        assert server.get("/usage", params={"since": day}).status_code == status, day


def test_the_document_is_served(server: Served) -> None:
    served = server.get(server.address + "/api/v1/openapi.json").json()
    assert served["openapi"] == "3.1.0"
    assert len([each for path in served["paths"].values() for each in path]) == len(PUBLIC)
