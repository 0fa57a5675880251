"""A server with OpenAI's Conversations API that returns constants: `python -m benchmarks.wire`.

Our server is compared with it: it has the same framework and the same responses, but does no work.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import msgspec

from benchmarks.server import serve_bare, started

TEXT = "Where is my order? I have been waiting for a week, and nobody answers. " * 3
PAGE = 20
"""Default items of a page."""


def bare_wire() -> AbstractContextManager[tuple[str, int]]:
    return started("-m", "benchmarks.wire")


def item(number: int) -> dict[str, object]:
    """Returns an item."""
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": TEXT}],
        "status": "completed",
        "id": f"msg_{number:048x}",
    }


def main() -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    def page(count: int) -> bytes:
        data = [item(number) for number in range(count)]
        ids = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return msgspec.json.encode({"object": "list", "data": data, **ids, "has_more": False})

    one, many = page(1), page(PAGE)

    async def create(request: Request) -> Response:
        await request.body()
        return Response(one, media_type="application/json")

    async def read(request: Request) -> Response:
        return Response(many, media_type="application/json")

    path = "/v1/conversations/{id}/items"
    serve_bare(Starlette(routes=[Route(path, create, methods=["POST"]), Route(path, read)]))


if __name__ == "__main__":
    main()
