"""Keys, tokens, limits, browsers, and the audit log."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.cli.shell import Shell
from tests.server.kit import Served, serving
from tests.server.test_rest import ok, problem, say
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hansard.backends.memory import MemoryBackend
from hansard.errors import RateLimited, Unavailable, ValidationError
from hansard.server.addresses import is_loopback
from hansard.server.app import create_app
from hansard.server.key_file import KeyFile
from hansard.server.rate_limit import RateLimiter
from hansard.server.settings import Settings
from hansard.store import Store


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Keys


def test_a_key_is_stored_as_a_hash_in_a_private_file(keys: KeyFile) -> None:
    key, token = keys.create("x", ["write", "read"], tenant="acme")
    text = keys.path.read_text()
    assert token.split("_", 2)[2] not in text
    assert key.scopes == ("read", "write")
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    with pytest.raises(ValidationError):
        keys.create("x", ["everything"], tenant="acme")


def test_a_locked_key_file_is_an_error_after_a_while(keys: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansard.server.key_file._LOCK_SECONDS", 0.1)
    _, token = keys.create("first", ["read"], tenant=None)
    with (keys.path.parent / "keys.json.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="locked by another process"):
            keys.create("second", ["read"], tenant=None)
        assert keys.find(token, datetime.now(UTC)) is not None, "reading needs no lock"
    keys.create("third", ["read"], tenant=None)
    assert [key.name for key in keys.list()] == ["first", "third"]


def test_a_change_of_keys_is_in_effect_when_it_is_done(keys: KeyFile) -> None:
    """A server does not look at the file more than once a millisecond."""
    server = KeyFile(keys.path)
    for _ in range(20):
        assert server.get("none") is None
        key, token = keys.create("a", ["read"], tenant="acme")
        assert server.find(token, datetime.now(UTC)) == key
        keys.revoke(key.id)
        assert server.find(token, datetime.now(UTC)) is None


def test_the_first_key_turns_on_auth_and_revoking_it_does_not_turn_it_off(keys: KeyFile) -> None:
    with serving(settings=Settings(keys=keys.path)) as api:
        assert api.get("/conversations").status_code == 200
        key, token = keys.create("x", ["read"], tenant="default")
        problem(api.get("/conversations"), 401, "unauthenticated")
        assert api.get("/conversations", headers=bearer(token)).status_code == 200
        keys.revoke(key.id)
        problem(api.get("/conversations", headers=bearer(token)), 401, "unauthenticated")
        problem(api.get("/conversations"), 401, "unauthenticated")


def test_keys_are_managed_by_the_command_line(shell: Shell, tmp_path: Path) -> None:
    made = shell.run(
        "keys", "create", "app", "--tenant", "acme", "--user", "u", "--scopes", "read", "--rate", "5", "--json"
    )
    assert made.code == 0, made.err
    assert made.json["key"].startswith("hsk_")
    plain = shell.run("keys", "create", "ops", "--operator", "--scopes", "read,write,admin", "--days", "1")
    assert plain.out.startswith("hsk_")
    listed = shell.run("keys", "--json").json["items"]
    assert [(key["name"], key["tenant"], key["user"]) for key in listed] == [("app", "acme", "u"), ("ops", None, None)]
    assert "sha256" not in listed[0]
    assert "app" in shell.run("keys").out
    assert shell.run("keys", "revoke", "app").code == 0
    assert shell.run("keys", "--json").json["items"][0]["revoked_at"]
    assert shell.run("keys", "revoke", "nobody").code == 4
    for name in ("--keys", "--file"):
        assert shell.run("keys", "--json", name, "other.json").json["items"] == []
    for wrong in (["create"], ["create", "x", "--rate", "0"], ["create", "x", "--scopes", "all"], ["frobnicate"]):
        assert shell.run("keys", *wrong).code == 2
    assert shell.run("keys", "create", "x", "--operator", "--tenant", "t").code == 2


def test_listening_beyond_loopback_requires_a_key(keys: KeyFile) -> None:
    store = Store(MemoryBackend())
    open_to_all = Settings(host="0.0.0.0", keys=keys.path)
    with pytest.raises(ValidationError, match="hansard keys create"):
        create_app(store, open_to_all)
    keys.create("x", ["read"], tenant="default")
    create_app(store, open_to_all)
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com", "")))


# Browsers


def test_pages_of_other_origins_are_refused(api: Served) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:80", ""):
        problem(api.get("/conversations", headers={"Host": host}), 401, "unauthenticated")
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        problem(api.get("/conversations", headers={"Origin": origin}), 403, "denied")
    assert api.get("/conversations", headers={"Host": "localhost:5", "Origin": "http://localhost:5"}).status_code == 200
    assert "access-control-allow-origin" not in api.options("/conversations").headers


def test_pages_of_configured_origins_are_accepted() -> None:
    with serving(settings=Settings(cors_origins=("https://app.example",))) as api:
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "PATCH"}
        answer = api.options("/conversations", headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        read = api.get("/conversations", headers={"Origin": "https://app.example"})
        assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, "https://app.example")
        problem(api.get("/conversations", headers={"Origin": "https://evil.example"}), 403, "denied")


# Limits


def test_requests_a_minute_are_limited(keys: KeyFile) -> None:
    token = keys.create("x", ["read"], tenant="default", rate=3)[1]
    other = keys.create("y", ["read"], tenant="default")[1]
    with serving(settings=Settings(keys=keys.path)) as api:
        for _ in range(3):
            assert api.get("/conversations", headers=bearer(token)).status_code == 200
        late = api.get("/conversations", headers=bearer(token))
        found = problem(late, 429, "rate_limited")
        assert 1 <= int(late.headers["retry-after"]) <= 20
        assert found["details"]["outcome"] == "not_applied"
        assert api.get("/conversations", headers=bearer(other)).status_code == 200


def test_bytes_a_day_are_limited(keys: KeyFile) -> None:
    token = keys.create("x", ["read", "write"], tenant="default", daily_bytes=500)[1]
    with serving(settings=Settings(keys=keys.path), headers=bearer(token)) as api:
        say(api, "c", "x" * 300)
        body = {"messages": [{"role": "user", "content": "x" * 300}]}
        problem(api.post("/conversations/c/messages", json=body), 429, "rate_limited")
        lines = {"Content-Type": "application/x-ndjson"}
        problem(api.post("/conversations/c/lines", content=b"x" * 300, headers=lines), 429, "rate_limited")
        assert ok(api.get("/conversations/c"))["message_count"] == 1


def test_a_rate_limit_recovers_with_time() -> None:
    now = [0.0]
    meter = RateLimiter(rate=60, daily_bytes=10, clock=lambda: now[0])
    for _ in range(60):
        meter.count_request()
    with pytest.raises(RateLimited):
        meter.count_request()
    now[0] += 2.0
    meter.count_request()
    meter.count_request()
    with pytest.raises(RateLimited):
        meter.count_request()
    meter.count_bytes(10)
    with pytest.raises(RateLimited) as refused:
        meter.count_bytes(1)
    assert refused.value.retry_after == 86_400 - 2
    now[0] += 86_400
    meter.count_bytes(10)


# Tokens


class Provider:
    """An identity provider: its keys in a file, and the tokens that it signs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jwks.json"
        self.private = ed25519.Ed25519PrivateKey.generate()
        public = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(self.private.public_key()))
        self.path.write_text(json.dumps({"keys": [public | {"kid": "k1", "alg": "EdDSA", "use": "sig"}]}))

    @property
    def settings(self) -> Settings:
        return Settings(jwks=str(self.path), jwt_issuer="https://issuer", jwt_audience="hansard")

    def token(self, key: Any = None, algorithm: str = "EdDSA", kid: str = "k1", **claims: Any) -> str:
        usual = {
            "sub": "ada",
            "iss": "https://issuer",
            "aud": "hansard",
            "exp": time.time() + 600,
            "hansard_tenant": "acme",
            "scope": "openid hansard:read hansard:write",
        }
        told = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(told, self.private if key is None else key, algorithm, headers={"kid": kid})


def test_signed_tokens_are_accepted_and_forged_ones_refused(tmp_path: Path) -> None:
    provider = Provider(tmp_path)
    with serving(settings=provider.settings) as api:
        problem(api.get("/about"), 401, "unauthenticated")
        about = ok(api.get("/about", headers=bearer(provider.token(hansard_user="ada"))))
        assert (about["tenant"], about["user"], about["scopes"]) == ("acme", "ada", ["read", "write"])
        problem(api.get("/check", headers=bearer(provider.token())), 403, "denied")
        other = ed25519.Ed25519PrivateKey.generate()
        wrong = {
            "expired": provider.token(exp=time.time() - 1),
            "no end": provider.token(exp=None),
            "an end that is text": provider.token(exp=str(int(time.time() + 60))),
            "an end that is a list": provider.token(exp=[1]),
            "an end that is none": provider.token(exp=float("inf")),
            "a beginning that is a list": provider.token(nbf=[1]),
            "for another": provider.token(aud="other"),
            "from another": provider.token(iss="other"),
            "no tenant": provider.token(hansard_tenant=None),
            "a tenant that is none": provider.token(hansard_tenant=7),
            "an empty user": provider.token(hansard_user=""),
            "signed by another": provider.token(key=other),
            "an unknown key": provider.token(kid="k2"),
            "not signed": provider.token(key="", algorithm="none"),
            "signed with the public key": provider.token(key="x" * 64, algorithm="HS256"),
            "not a token": "a.b.c",
        }
        for why, token in wrong.items():
            answer = api.get("/about", headers=bearer(token))
            assert answer.status_code == 401, why
        problem(api.get("/about", headers=bearer(provider.token(scope=None))), 403, "denied")


def test_tokens_require_issuer_audience_and_keys() -> None:
    with pytest.raises(ValidationError):
        create_app(Store(MemoryBackend()), Settings(jwks="x"))


def test_an_unreachable_identity_provider_is_unavailable(tmp_path: Path) -> None:
    provider = Provider(tmp_path)
    provider.path.unlink()
    with serving(settings=provider.settings) as api:
        problem(api.get("/about", headers=bearer(provider.token())), 503, "unavailable")


# The audit log


def test_requests_are_audited_and_no_log_contains_a_secret(
    keys: KeyFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, token = keys.create("x", ["read", "write"], tenant="acme")
    path = tmp_path / "audit.jsonl"
    with serving(settings=Settings(keys=keys.path, audit_log=path), headers=bearer(token)) as api:
        say(api, "c", "PLUGH")
        api.get("/conversations/c/messages")
        api.delete("/conversations/c")
        api.get("/check")
        api.get("/conversations", headers=bearer("hsk_forged_secret"))
        api.get("/nothing")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each.get("action"), each["status"]) for each in entries] == [
        ("append_messages", 200),
        ("get_messages", 200),
        ("delete_conversation", 200),
        ("check", 403),
        (None, 401),
        (None, 404),
    ]
    first = entries[0]
    assert (first["caller"], first["tenant"], first["scope"], first["on"]) == (
        key.id,
        "acme",
        "write",
        {"conversation_id": "c"},
    )
    logged = path.read_text() + "\n".join(record.getMessage() for record in caplog.records if record.name != "httpx")
    for secret in ("PLUGH", token.split("_", 2)[2], "hsk_forged_secret"):
        assert secret not in logged


def test_a_request_whose_audit_line_is_cut_off_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an almost full disk, a write may store a part of a line, and reports only the number of bytes."""
    path = tmp_path / "audit.jsonl"
    with serving(settings=Settings(audit_log=path)) as api:
        write = os.write

        def half(file: int, data: bytes) -> int:
            return write(file, data[: len(data) // 2] if b"request_id" in data else data)

        monkeypatch.setattr("hansard.server.audit.os.write", half)
        problem(api.get("/conversations"), 503, "unavailable")
        monkeypatch.undo()


def test_idempotency_keys_are_separate_for_each_user(keys: KeyFile) -> None:
    ada, eve = (bearer(keys.create(user, ["read", "write"], tenant="acme", user=user)[1]) for user in ("ada", "eve"))
    key = {"Idempotency-Key": "1"}
    with serving(settings=Settings(keys=keys.path)) as api:
        made = [ok(api.post("/conversations", json={}, headers=who | key), 201) for who in (ada, eve, ada, eve)]
    ids = [each["id"] for each in made]
    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]


def test_a_request_that_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    with serving(settings=Settings(audit_log=full)) as api:
        found = problem(api.get("/conversations"), 503, "unavailable")
        assert found["details"]["outcome"] == "not_applied"


def test_errors_of_the_storage_are_shown_only_to_operators(keys: KeyFile, tmp_path: Path) -> None:
    from hansard import sync

    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store"
    with sync.connect(url) as store:
        store.append_message("c", "user", {"k": "damaged-xyzzy"})
    for path in (tmp_path / "store").rglob("c.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"damaged-xyzzy"', b'"damaged-xyzzy:'))
    tenants = keys.create("x", ["read"], tenant="default")[1]
    operators = keys.create("y", ["read"], tenant=None)[1]
    with serving(url, Settings(keys=keys.path)) as api:
        hidden = problem(api.get("/conversations/c/messages", headers=bearer(tenants)), 500, "corrupt")
        assert "c.jsonl" not in json.dumps(hidden)
        assert hidden["details"] == {}
        told: httpx.Response = api.get("/conversations/c/messages", headers=bearer(operators))
        assert "xyzzy" not in told.text
        assert told.json()["details"]["where"]


@pytest.mark.parametrize("header", ["Hansard-Tenant", "Hansard-User"])
def test_an_empty_tenant_or_user_header_is_refused(header: str) -> None:
    """An unset variable in a script must not mean the tenant `default`."""
    models = {"Accept": "application/json, text/event-stream", header: ""}
    with serving() as api:
        say(api, "c", "hello", user_id="zed")
        problem(api.post("/users/zed/erase", headers={header: ""}), 400, "invalid")
        wire = api.get(api.address + "/v1/conversations", headers={header: ""})
        assert (wire.status_code, wire.json()["error"]["code"]) == (400, "invalid")
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert api.post(api.address + "/mcp", json=call, headers=models).status_code == 400
        for path in ("/api/v1/conversations/c/tail", "/v1/realtime"):
            with pytest.raises(InvalidStatus) as refused:
                connect(api.address.replace("http", "ws") + path, additional_headers={header: ""})
            assert refused.value.response.status_code == 400
        assert api.get(api.address + "/t//").status_code == 400, "the page names the tenant in the path"
        assert ok(api.get("/stats"))["messages"] == 1


def test_a_refused_handshake_is_not_logged_as_an_error(keys: KeyFile, caplog: pytest.LogCaptureFixture) -> None:
    """Clients without a key must not be able to fill the log."""
    keys.create("x", ["read"], tenant="acme")
    paths = ("/api/v1/conversations/c/tail", "/v1/realtime", "/v1/responses", "/elsewhere")
    with serving(settings=Settings(keys=keys.path)) as api, caplog.at_level(logging.INFO):
        for path in paths:
            with pytest.raises(InvalidStatus) as refused:
                connect(api.address.replace("http", "ws") + path)
            assert refused.value.response.status_code == 401
            assert refused.value.response.body
        assert api.get("/conversations").status_code == 401, "it goes on"
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
