"""Routes declare themselves: the decorator has method and path, the handler's annotations the rest."""

from __future__ import annotations

import pytest
from msgspec import Struct

from hansard.errors import Conflict
from hansard.server.endpoints import NDJSON, HttpResponse, NoQuery, Routes
from hansard.server.request import Request
from hansard.server.router import Router


class Query(Struct):
    limit: int = 1


class Body(Struct):
    text: str


class Made(Struct):
    version: int


def test_types_are_read_from_the_annotations() -> None:
    routes = Routes()

    @routes.get("/things/{id}")
    async def get_thing(request: Request[Query, None]) -> Made | HttpResponse:
        """One thing."""
        return Made(1)

    @routes.post("/things", status=201, errors=(Conflict,))
    async def import_(request: Request[NoQuery, Body]) -> Made:
        """Makes a thing."""
        return Made(1)

    got, made = routes
    assert (got.method, got.path, got.name, got.scope) == ("GET", "/things/{id}", "get_thing", "read")
    assert (got.query, got.body, got.response, got.parameters) == (Query, None, Made, ["id"])
    assert (made.method, made.name, made.scope, made.summary) == ("POST", "import", "write", "Makes a thing.")
    assert (made.query, made.body, made.response, made.status) == (NoQuery, Body, Made, 201)


def test_a_stream_has_no_deadline_and_no_type() -> None:
    routes = Routes()

    @routes.post("/lines", consumes=NDJSON, produces=NDJSON, scope="admin")
    async def take_lines(request: Request[NoQuery, None]) -> HttpResponse:
        """Takes lines."""
        return HttpResponse()

    [endpoint] = routes
    assert (endpoint.is_slow, endpoint.body, endpoint.response, endpoint.scope) == (True, None, None, "admin")


def test_the_same_route_is_declared_once() -> None:
    routes = Routes()
    for _ in range(2):

        @routes.delete("/things/{id}")
        async def delete_thing(request: Request[NoQuery, None]) -> Made:
            """Deletes a thing."""
            return Made(1)

    with pytest.raises(ValueError, match="declared twice"):
        Router(routes)
