"""The OpenAPI 3.1 document, derived from the declared routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from hansard import __version__
from hansard.errors import (
    Denied,
    HansardError,
    NotFound,
    RateLimited,
    TimedOut,
    Unauthenticated,
    Unavailable,
    ValidationError,
)
from hansard.server.auth import ENCODED
from hansard.server.endpoints import BYTES, JSON, NDJSON, Endpoint
from hansard.server.problems import MEDIA_TYPE, HttpProblem

_EVERYWHERE: tuple[type[HansardError], ...] = (
    ValidationError,
    Unauthenticated,
    Denied,
    RateLimited,
    Unavailable,
    TimedOut,
)
_HEADERS = {
    "If-Match": "The expected version, in quotes. If it differs, the status is 412 and nothing is written.",
    "Idempotency-Key": "Repeated requests with the same key are stored once.",
    "Hansard-Tenant": "The tenant that an operator chooses, percent-encoded. The default is `default`.",
    "Hansard-User": "Use the view of this user, percent-encoded.",
}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Returns the whole document."""
    schemas, components = _schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault("/api/v1" + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hansard",
            "version": __version__,
            "summary": "The conversation store for AI agents.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "parameters": {name: _header(name, text) for name, text in _HEADERS.items()},
        },
        # A server on loopback needs no key.
        "security": [{"key": []}, {}],
    }


class _Schemas:
    def __init__(self, known: dict[Any, dict[str, Any]], components: dict[str, Any]) -> None:
        self._known = known
        self._components = components

    def of(self, kind: Any) -> dict[str, Any]:
        return self._known[kind]

    def fields(self, kind: type[Struct]) -> tuple[dict[str, Any], list[str]]:
        name = self._known[kind]["$ref"].rpartition("/")[2]
        schema = self._components[name]
        return schema["properties"], schema.get("required", [])


def _schemas(endpoints: Sequence[Endpoint]) -> tuple[_Schemas, dict[str, Any]]:
    kinds: list[Any] = [HttpProblem]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.query, endpoint.body, endpoint.response) if kind is not None]
    kinds = list(dict.fromkeys(kinds))
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return _Schemas(dict(zip(kinds, found, strict=True)), components), components


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[1]],
        "x-scope": endpoint.scope,
        "parameters": [*_path(endpoint), *_query(endpoint, schemas), *_conditions(endpoint)],
        "responses": {
            str(endpoint.status): _success(endpoint, schemas),
            **_more_successes(endpoint),
            **_errors(endpoint, schemas),
        },
    }
    if endpoint.body is not None:
        content = {JSON: {"schema": schemas.of(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    elif endpoint.consumes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {endpoint.consumes: {"schema": _raw(endpoint.consumes)}},
        }
    return operation


def _path(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name in endpoint.parameters:
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 256},
        }


def _query(endpoint: Endpoint, schemas: _Schemas) -> Iterable[dict[str, Any]]:
    properties, required = schemas.fields(endpoint.query)
    for name, schema in properties.items():
        plain = _without_null(schema)
        yield {"name": name, "in": "query", "required": name in required, "schema": plain}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema without null: a query string has none."""
    rest = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in rest:
        kinds = [kind for kind in rest.pop("anyOf") if kind != {"type": "null"}]
        rest |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if "enum" in rest:
        rest["enum"] = [value for value in rest["enum"] if value is not None]
    return rest


def _conditions(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    names = ["Hansard-Tenant", "Hansard-User"]
    names += ["If-Match"] if endpoint.versioned else []
    names += ["Idempotency-Key"] if endpoint.repeat == "key" else []
    return ({"$ref": f"#/components/parameters/{name}"} for name in names)


def _header(name: str, text: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 256}
    if name == "If-Match":
        schema = {"type": "string", "pattern": '^"[0-9]{1,18}"$'}
    elif name.startswith("Hansard-"):
        # An id of 256 bytes, each of which may be percent-encoded.
        schema |= {"pattern": ENCODED, "maxLength": 3 * 256}
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _success(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(endpoint.response) if endpoint.response is not None else _raw(endpoint.produces)
    content = {endpoint.produces: {"schema": schema}} | {
        media_type: {"schema": _raw(media_type)} for media_type in endpoint.also_produces
    }
    answer: dict[str, Any] = {"description": endpoint.summary, "content": content}
    if endpoint.etag is not None:
        answer["headers"] = {"ETag": {"required": True, "schema": {"type": "string"}}}
    return answer


def _more_successes(endpoint: Endpoint) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if endpoint.produces == BYTES:
        more["206"] = {"description": "The requested range.", "content": {BYTES: {"schema": _raw(BYTES)}}}
    if endpoint.name == "get_conversation":
        more["304"] = {"description": "The version is the one in `If-None-Match`."}
    return more


def _errors(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    """Returns the error responses by status, each with its possible error codes."""
    found: dict[int, list[str]] = {}
    kinds: list[type[HansardError]] = [*_EVERYWHERE, *endpoint.errors, *([NotFound] if endpoint.parameters else [])]
    for kind in dict.fromkeys(kinds):
        found.setdefault(kind.status, []).append(kind.code)
    has_body = endpoint.body is not None or endpoint.consumes is not None
    more = {405: "invalid"} | ({408: "timed_out", 413: "quota_exceeded", 415: "invalid"} if has_body else {})
    if endpoint.versioned:
        more[412] = "conflict"
    if endpoint.produces == BYTES:
        more[416] = "invalid"
    if endpoint.consumes == NDJSON:
        more[422] = "corrupt"
    for status, code in more.items():
        found.setdefault(status, []).append(code)
    content = {MEDIA_TYPE: {"schema": schemas.of(HttpProblem)}}
    return {
        str(status): {"description": ", ".join(dict.fromkeys(codes)), "content": content}
        for status, codes in sorted(found.items())
    }


def _raw(media_type: str) -> dict[str, Any]:
    return {"type": "string"} if re.search("json|text", media_type) else {"type": "string", "format": "binary"}
