"""The pages of shares: what they show, and that they lead nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.kit import Served, serving

from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

HOSTILE = "<script>alert(1)</script> **lamp** ![x](https://evil.example/x.png)"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    with serving(f"sqlite:///{tmp_path}/a.db") as served:
        yield served


def share(api: Served, **body: Any) -> Any:
    sent = {
        "messages": [
            {"role": "system", "content": "SECRET"},
            {"role": "user", "content": HOSTILE, "participant": {"kind": "user", "id": "SECRET"}},
            {"role": "assistant", "content": "It left.", "metadata": {"a": "SECRET"}},
        ],
        "user_id": "SECRET",
        "agent_id": "SECRET",
        "metadata": {"a": "SECRET"},
    }
    assert api.post("/conversations/SECRET-id/messages", json=sent).status_code == 200
    made = api.post("/conversations/SECRET-id/shares", json=body)
    assert made.status_code == 201, made.text
    return made.json()


def page(api: Served, token: str) -> httpx.Response:
    """Asks without a key."""
    return httpx.get(f"{api.address}/s/{token}")


def test_a_share_is_a_page_that_leads_nowhere(api: Served) -> None:
    found = page(api, share(api)["token"])
    assert (found.status_code, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<strong>lamp</strong>" in found.text
    assert "It left." in found.text
    for absent in ("SECRET", "<script", 'href="/', "127.0.0.1", "src=", "<form", "<iframe"):
        assert absent not in found.text
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "noindex" in found.headers["x-robots-tag"]
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cache-control"] == "no-store"


def test_a_share_is_json(api: Served) -> None:
    found = page(api, share(api)["token"] + ".json")
    assert found.headers["content-type"] == "application/json"
    assert [each["content"] for each in found.json()["messages"]] == [HOSTILE, "It left."]
    assert "SECRET" not in found.text
    assert "noindex" in found.headers["x-robots-tag"]


def test_an_ended_share_is_as_one_that_never_was(api: Served) -> None:
    made = share(api)
    assert [each["id"] for each in api.get("/conversations/SECRET-id/shares").json()["items"]] == [made["id"]]
    assert made["token"] not in api.get("/conversations/SECRET-id/shares").text
    ended = api.delete(f"/conversations/SECRET-id/shares/{made['id']}")
    assert ended.json() == {"ended": True}
    shown = [page(api, token) for token in (made["token"], "x" * 40, "%00")]
    coded = [page(api, token + ".json") for token in (made["token"], "x" * 40, "%00")]
    assert {answer.status_code for answer in (*shown, *coded, page(api, "a%2Fb"))} == {404}
    assert len({answer.text for answer in shown}) == len({answer.text for answer in coded}) == 1
    assert coded[0].json()["code"] == "not_found"
    # People who open the link get a page, not JSON.
    assert shown[0].headers["content-type"] == "text/html; charset=utf-8"
    assert "This share is not here" in shown[0].text


def test_a_share_needs_no_key_but_making_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeyFile(tmp_path / "keys")
    _, key = keys.create("k", ["read", "write"], tenant="acme")
    with serving(f"sqlite:///{tmp_path}/a.db", Settings(keys=tmp_path / "keys")) as served:
        where = f"{served.address}/api/v1/conversations/c"
        signed = {"Authorization": f"Bearer {key}"}
        body = {"messages": [{"role": "user", "content": "lamp"}]}
        assert httpx.post(f"{where}/messages", json=body, headers=signed).status_code == 200
        assert httpx.post(f"{where}/shares", json={}).status_code == 401
        token = httpx.post(f"{where}/shares", json={}, headers=signed).json()["token"]
        # Anybody may try a token, so none may cost more than a lookup in one tenant.
        monkeypatch.setattr(served.store.backend, "list_tenants", None)
        assert "lamp" in page(served, token).text
        secret = token.partition("~")[0]
        assert {page(served, wrong).status_code for wrong in (secret, secret + "~b3RoZXI", secret + "~AA")} == {404}
