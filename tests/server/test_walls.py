"""No route crosses the walls. The requests are built from the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.kit import Served, serving
from tests.server.requests_of import ID, OWNER, request_of
from tests.server.walls import ALL, Walled, walled_in

from hansard import sync
from hansard.server.app import ENDPOINTS
from hansard.server.endpoints import Endpoint
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.server.tail import EVENTS
from hansard.testing.contract.walls import SECRET

NAMED = [
    endpoint
    for endpoint in ENDPOINTS
    # Appending lines creates a missing conversation, so the two answers differ rightly.
    if "conversation_id" in endpoint.parameters and endpoint.name != "append_lines"
]
every_route = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)


class Routes(Walled):
    """Also has the keys of the owner's tenant, and of two users without data."""

    def __init__(self, api: Served, keys: KeyFile, store: sync.Store) -> None:
        super().__init__(api, keys, store)
        self.tokens |= {
            "acme": self.key(ALL, tenant="acme"),
            "bare": self.key(ALL, tenant="bare"),
            "mallory": self.key(ALL, tenant="acme", user="mallory"),
        }

    def ask(self, endpoint: Endpoint, token: str | None, id: str = ID, **headers: str) -> httpx.Response:
        request = request_of(endpoint, conversation_id=id)
        given = {"Authorization": f"Bearer {token}"} if token is not None else {}
        request["headers"] = request.get("headers", {}) | given | headers
        with self.api.stream(**request) as answer:
            # A live tail does not end: its first bytes are enough.
            live = endpoint.produces == EVENTS and answer.status_code == 200
            content = next(answer.iter_bytes()) if live else answer.read()
            plain = {name: answer.headers[name] for name in answer.headers if name != "content-encoding"}
        return httpx.Response(answer.status_code, headers=plain, content=content)


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routes]:
    with walled_in(tmp_path_factory.mktemp("walled"), Routes) as made:
        yield made


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert SECRET not in answer.text


@every_route
def test_every_route_refuses_a_missing_or_invalid_key(walled: Routes, endpoint: Endpoint) -> None:
    before = walled.behind()
    revoked = walled.key(ALL)
    walled.keys.revoke(revoked.split("_")[1])
    expired = walled.key(ALL, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    good = walled.tokens["acme"]
    for token in (None, "x", "hsk_", "hsk_x_y", good[:-1], good + "x", good.upper(), revoked, expired, "a.b.c"):
        answer = walled.ask(endpoint, token)
        refused(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    refused(walled.ask(endpoint, None, Authorization=f"Basic {good}"), 401, "unauthenticated")
    assert walled.behind() == before


@every_route
def test_every_route_refuses_a_key_without_its_scope(walled: Routes, endpoint: Endpoint) -> None:
    before = walled.behind()
    others = [scope for scope in ALL if scope != endpoint.scope]
    refused(walled.ask(endpoint, walled.key(others)), 403, "denied")
    if endpoint.operator:
        refused(walled.ask(endpoint, walled.tokens["acme"]), 403, "denied")
    assert walled.behind() == before


@every_route
def test_no_route_shows_data_of_another_tenant_or_user(walled: Routes, endpoint: Endpoint) -> None:
    before = walled.behind()
    for who in ("evil", "eve", "evil ada"):
        answer = walled.ask(endpoint, walled.tokens[who])
        assert answer.status_code < 500, answer.text
        assert SECRET not in answer.text, who
        assert walled.behind() == before, who


@every_route
def test_no_key_can_name_another_tenant_or_user(walled: Routes, endpoint: Endpoint) -> None:
    before = walled.behind()
    named: dict[str, dict[str, str]] = {
        "evil": {"Hansard-Tenant": "acme"},
        "eve": {"Hansard-User": OWNER},
        "evil ada": {"Hansard-Tenant": "acme", "Hansard-User": OWNER},
    }
    for who, headers in named.items():
        refused(walled.ask(endpoint, walled.tokens[who], ID, **headers), 403, "denied")
    assert walled.behind() == before


@pytest.mark.parametrize("endpoint", NAMED, ids=lambda endpoint: endpoint.name)
def test_errors_do_not_show_whether_a_conversation_exists(walled: Routes, endpoint: Endpoint) -> None:
    for who in ("bare", "mallory"):
        answers = []
        for id in (ID, "never-1"):
            answer = walled.ask(endpoint, walled.tokens[who], id)
            text = answer.text.replace(id, "…").replace(answer.headers["request-id"], "")
            answers.append((answer.status_code, _timeless(re.sub(r"cursor:[\w-]+", "", text))))
        assert answers[0] == answers[1], who


def _timeless(text: str) -> Any:
    """Returns an answer without its time."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return text
    return {key: value for key, value in found.items() if key != "at"} if isinstance(found, dict) else found


def test_appending_to_another_users_conversation_is_not_found(walled: Routes) -> None:
    before = walled.behind()
    headers = {"Authorization": f"Bearer {walled.tokens['eve']}"}
    body = {"messages": [{"role": "user", "content": "x"}]}
    refused(walled.api.post(f"/conversations/{ID}/messages", json=body, headers=headers), 404, "conversation_not_found")
    assert walled.behind() == before


def test_an_operator_opens_every_tenant(walled: Routes) -> None:
    headers = {"Authorization": f"Bearer {walled.key(ALL, tenant=None)}"}
    assert "acme" in walled.api.get("/admin/tenants", headers=headers).json()["items"]
    found = walled.api.get(f"/conversations/{ID}", headers=headers | {"Hansard-Tenant": "acme"})
    assert found.json()["title"] == SECRET


def test_the_document_and_health_need_no_key(walled: Routes) -> None:
    for path in ("/api/v1/openapi.json", "/healthz", "/readyz"):
        answer = walled.api.get(walled.api.address + path)
        assert answer.status_code == 200
        assert SECRET not in answer.text


def test_a_damaged_key_file_refuses_every_request(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    token = keys.create("x", ALL, tenant="acme")[1]
    with serving(settings=Settings(keys=keys.path)) as api:
        keys.path.write_text("{")
        for headers in ({}, {"Authorization": f"Bearer {token}"}):
            answer = api.get("/conversations", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert str(tmp_path) not in answer.text
