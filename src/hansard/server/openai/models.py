"""`GET /models`: what the model endpoint has to offer, as it says it. Clients look there before they ask anything."""

from __future__ import annotations

from urllib.parse import quote

from hansard.server.calls import Answer
from hansard.server.openai.calls import WireCall, WireEndpoint
from hansard.server.openai.failures import not_found
from hansard.server.openai.responses import encoded, object_of
from hansard.server.openai.upstream import whole

_STEPS = frozenset((".", ".."))


async def list_models(call: WireCall) -> Answer:
    """The models of the endpoint."""
    return await _passed(call, "/models")


async def get_model(call: WireCall) -> Answer:
    """One of them."""
    id = call.path[0]
    if not id or not _STEPS.isdisjoint(id.replace("\\", "/").split("/")):
        # It would lead elsewhere, there or on the way, with a key that is only for what is passed on.
        raise not_found("Model", id)
    return await _passed(call, "/models/" + quote(id, safe=""))


async def _passed(call: WireCall, path: str) -> Answer:
    async with call.upstream.ask(path) as answer:
        return Answer(encoded(object_of(await whole(answer))))


ROUTES = (
    WireEndpoint(method="GET", path="/models", handler=list_models, scope="read", is_slow=True),
    WireEndpoint(method="GET", path="/models/{model}", handler=get_model, scope="read", is_slow=True),
)
