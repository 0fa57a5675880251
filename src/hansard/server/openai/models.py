"""`GET /models`: the models of the endpoint, passed on unchanged. Some clients list them before any other request."""

from __future__ import annotations

from urllib.parse import quote

from hansard.server.endpoints import HttpResponse
from hansard.server.openai.responses import encoded, object_of
from hansard.server.openai.upstream import whole
from hansard.server.openai.wire_errors import not_found
from hansard.server.openai.wire_request import WireRequest, WireRoutes

routes = WireRoutes()

_STEPS = frozenset((".", ".."))


@routes.get("/models", is_slow=True)
async def list_models(request: WireRequest) -> HttpResponse:
    """The models of the endpoint."""
    return await _passed(request, "/models")


@routes.get("/models/{model}", is_slow=True)
async def get_model(request: WireRequest) -> HttpResponse:
    """One model of the endpoint."""
    id = request.path[0]
    if not id or not _STEPS.isdisjoint(id.replace("\\", "/").split("/")):
        # Refuse path traversal: the request has the operator's key.
        raise not_found("Model", id)
    return await _passed(request, "/models/" + quote(id, safe=""))


async def _passed(request: WireRequest, path: str) -> HttpResponse:
    async with request.services.upstream.ask(path) as answer:
        return HttpResponse(encoded(object_of(await whole(answer))))
