"""Nobody crosses the walls on the wire of OpenAI either. The requests are made from the table of routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from tests.server.kit import serving
from tests.server.openai_wire.conftest import client_of
from tests.server.requests_of import ID, MESSAGE, OWNER
from tests.server.walls import ALL, Walled, walled_in

from hansard.server.endpoints import Endpoint
from hansard.server.openai.app import ENDPOINTS, MODELS
from hansard.testing.contract.walls import SECRET

BODIES: dict[str, dict[str, Any]] = {
    "openai_create_items": {"items": [{"role": "user", "content": "x"}]},
    "openai_update_conversation": {"metadata": {"a": "b"}},
    "openai_create_message": {"role": "user", "content": "x"},
    "openai_update_message": {"metadata": {"a": "b"}},
    "openai_update_thread": {"metadata": {"a": "b"}},
    "openai_update_completion": {"metadata": {"a": "b"}},
}
every_route = pytest.mark.parametrize("endpoint", [*ENDPOINTS, *MODELS], ids=lambda endpoint: endpoint.name)
NAMED = [endpoint for endpoint in ENDPOINTS if endpoint.parameters]


class Wire(Walled):
    def ask(self, endpoint: Endpoint, token: str | None, id: str = ID, **headers: str) -> httpx.Response:
        path = endpoint.path
        for name in endpoint.parameters:
            path = path.replace(f"{{{name}}}", id if name in ("conversation_id", "thread_id") else MESSAGE)
        given = {"Authorization": f"Bearer {token}"} if token is not None else {}
        body = {"json": BODIES.get(endpoint.name, {})} if endpoint.body is not None else {}
        return self.api.request(
            endpoint.method,
            f"{self.api.address}/v1{path}",
            headers=given | headers,
            **body,  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with walled_in(tmp_path_factory.mktemp("walled"), Wire) as made:
        yield made


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert SECRET not in answer.text


@every_route
def test_without_a_key_that_holds(walled: Wire, endpoint: Endpoint) -> None:
    before = walled.behind()
    for token in (None, "sk-anything", "hsk_", "hsk_x_y"):
        refused(walled.ask(endpoint, token), 401, "invalid_api_key")
    assert walled.behind() == before


@every_route
def test_without_the_scope(walled: Wire, endpoint: Endpoint) -> None:
    before = walled.behind()
    others = [scope for scope in ALL if scope != endpoint.scope]
    refused(walled.ask(endpoint, walled.key(others)), 403, "permission_denied")
    assert walled.behind() == before


@every_route
def test_from_another_tenant_or_user(walled: Wire, endpoint: Endpoint) -> None:
    before = walled.behind()
    for token in walled.tokens.values():
        answer = walled.ask(endpoint, token)
        assert answer.status_code < 500 or answer.json()["error"]["code"] == "no_upstream", answer.text
        assert SECRET not in answer.text
    for who, headers in {"evil": {"Hansard-Tenant": "acme"}, "eve": {"Hansard-User": OWNER}}.items():
        refused(walled.ask(endpoint, walled.tokens[who], **headers), 403, "permission_denied")
    assert walled.behind() == before


@pytest.mark.parametrize("endpoint", NAMED, ids=lambda endpoint: endpoint.name)
def test_what_is_behind_looks_as_if_it_were_not_there(walled: Wire, endpoint: Endpoint) -> None:
    for token in walled.tokens.values():
        answers = [walled.ask(endpoint, token, id) for id in (ID, "never-1")]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].text.replace(ID, "…") == answers[1].text.replace("never-1", "…")


def test_on_loopback_any_key_will_do_as_long_as_there_is_none() -> None:
    with serving() as api:
        for key in ("sk-anything", "My API Key"):
            with client_of(api, key) as client:
                assert client.conversations.create().id
        with client_of(api, "hsk_x_y") as client, pytest.raises(openai.AuthenticationError):
            client.conversations.create()
        page = {"Authorization": "Bearer x", "Origin": "https://elsewhere.example"}
        assert api.post(api.address + "/v1/conversations", json={}, headers=page).status_code == 403


def test_the_sdk_in_a_tenant(walled: Wire) -> None:
    with (
        client_of(walled.api, walled.key(ALL, tenant="t1")) as one,
        client_of(walled.api, walled.key(ALL, tenant="t2")) as two,
    ):
        id = one.conversations.create(items=[{"role": "user", "content": SECRET}]).id
        assert len(one.conversations.items.list(id).data) == 1
        with pytest.raises(openai.NotFoundError):
            two.conversations.items.list(id)


def test_a_key_bound_to_a_user_makes_conversations_of_that_user(walled: Wire) -> None:
    with client_of(walled.api, walled.key(ALL, user="eve")) as eve:
        empty, begun = (
            eve.conversations.create().id,
            eve.conversations.create(items=[{"role": "user", "content": "x"}]).id,
        )
        for id in (empty, begun):
            found = walled.acme.get_conversation(id)
            assert found is not None
            assert found.user_id == "eve"


def test_too_fast(walled: Wire) -> None:
    token = walled.keys.create("slow", ALL, tenant="acme", rate=2)[1]
    with client_of(walled.api, token) as client:
        for _ in range(2):
            client.conversations.create()
        with pytest.raises(openai.RateLimitError) as caught:
            client.conversations.create()
    assert int(caught.value.response.headers["retry-after"]) > 0
    assert caught.value.code == "rate_limit_exceeded"
