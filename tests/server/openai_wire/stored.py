"""A server with a model endpoint behind it, and an async and a blocking client: for the tests of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import openai
from tests.server.kit import Served, serving
from tests.server.openai_wire.conftest import client_of
from tests.server.openai_wire.endpoint import Endpoint, endpoint

from hansard.server.settings import Settings


class Kit(NamedTuple):
    api: Served
    client: openai.OpenAI
    model: Endpoint

    def ask(self, input: Any = "Where is my order?", **more: Any) -> Any:
        return self.client.responses.create(model="m-1", input=input, **more)

    def complete(self, text: str = "Where is my order?", **more: Any) -> Any:
        return self.client.chat.completions.create(
            model="m-1", messages=[{"role": "user", "content": text}], **{"store": True, **more}
        )

    def of(self, **options: Any) -> openai.OpenAI:
        """Another client of the same server."""
        return client_of(self.api, **options)


@contextmanager
def kit(url: str = "memory://", **settings: Any) -> Iterator[Kit]:
    with (
        endpoint() as model,
        serving(url, Settings(upstream=model.address, **settings)) as api,
        client_of(api) as client,
    ):
        yield Kit(api, client, model)


def missing(call: Any, *given: Any, **named: Any) -> bool:
    """Whether an id is answered with 404, in OpenAI's words."""
    try:
        call(*given, **named)
    except openai.NotFoundError as error:
        return error.code == "not_found"
    return False


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]
