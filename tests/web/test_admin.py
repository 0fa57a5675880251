"""The pages for operators: keys, tenants, retention, erasure, the check, the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.web.kit import Reader, Site, sited

from hansard import Message
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Site]:
    settings = Settings(keys=tmp_path / "keys.json", audit_log=tmp_path / "audit.jsonl")
    with sited(f"sqlite:///{tmp_path}/chats.db", settings) as site:
        yield site


def test_the_first_key_turns_on_auth(kept: Site, tmp_path: Path) -> None:
    page = kept.get("/admin")
    assert "There are no keys yet" in page
    made = page.send("/admin/keys", name="ops", scopes=["read", "write", "admin"], operator="yes")
    token = made.tree.one("code", "secret").words
    assert token.startswith("hsk_")
    assert kept.get("/admin").status == 401
    assert "Conversations" in kept.reader.sign_in(token)
    page = kept.get("/admin")
    assert token not in page.tree.text
    assert "all (operator)" in page
    (key,) = KeyFile(tmp_path / "keys.json").list()
    assert (key.name, key.scopes, key.tenant) == ("ops", ("read", "write", "admin"), None)


def test_the_defaults_of_the_first_key_do_not_lock_the_admin_out(kept: Site, tmp_path: Path) -> None:
    page = kept.get("/admin")
    form = next(each for each in page.tree.all("form") if each["action"].endswith("/admin/keys"))
    ticked = [each for each in form.all("input", type="checkbox") if "checked" in each.attributes]
    chosen: dict[str, Any] = {"scopes": [each["value"] for each in ticked if each["name"] == "scopes"]}
    chosen |= {each["name"]: each["value"] for each in ticked if each["name"] != "scopes"}
    for wrong in ({"scopes": chosen["scopes"]}, {"scopes": ["read", "write"], "operator": "yes"}):
        refused = page.send("/admin/keys", name="x", **wrong)
        assert refused.status == 400
        assert "lock yourself out" in refused
    assert KeyFile(tmp_path / "keys.json").list() == []
    token = page.send("/admin/keys", name="first", **chosen).tree.one("code", "secret").words
    kept.reader.sign_in(token)
    page = kept.get("/admin")
    assert page.status == 200
    assert "checked" not in page.tree.one("input", name="operator").attributes
    assert "checked" not in page.tree.one("input", name="scopes", value="admin").attributes
    assert page.send("/admin/keys", name="second", scopes="read").status == 200


def test_keys_are_created_and_revoked(kept: Site, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    mine = keys.create("mine", ["read", "write", "admin"], tenant=None)[1]
    kept.reader.sign_in(mine)
    page = kept.get("/admin").send(
        "/admin/keys", name="phone", scopes="read", tenant="acme", user="ada", rate="60", days="7"
    )
    made = next(key for key in keys.list() if key.name == "phone")
    assert (made.scopes, made.tenant, made.user, made.rate) == (("read",), "acme", "ada", 60)
    token = page.tree.one("code", "secret").words
    phone = Reader(kept.api.address)
    try:
        assert phone.sign_in(token).status == 200
        assert phone.get("/admin").status == 403
        form = {"id": made.id, "proof": page.tree.all("input", name="proof")[0]["value"]}
        assert kept.reader.post("/admin/keys/revoke", form).status == 200
        assert phone.get("/").status == 401
    finally:
        phone.client.close()
    own = next(key for key in keys.list() if key.name == "mine")
    assert kept.reader.post("/admin/keys/revoke", form | {"id": own.id}).status == 403
    assert page.send("/admin/keys", name="x", scopes="emperor").status == 400
    assert page.send("/admin/keys", name="x").status == 400
    assert page.send("/admin/keys", name="x", scopes="read", operator="yes", tenant="acme").status == 400


def test_tenants_are_listed_and_deleted(kept: Site) -> None:
    kept.store.tenant("acme").append_message("c", "user", "in acme")
    kept.store.append_message("d", "user", "in default")
    page = kept.get("/admin")
    assert {"acme", "default"} <= {link.words for link in page.tree.one("ul", "tenants").all("a")}
    acme = page.follow("acme")
    assert "in acme" in acme
    assert "in default" not in acme
    assert "in acme" in acme.follow("Conversations")
    assert "in acme" in kept.get("/t/acme/c/c")
    assert kept.get("/t/acme/c/d").status == 404
    assert kept.get("/t/acme").url.endswith("/t/acme/")
    receipt = kept.reader.get("/admin")
    form = {"tenant": "acme", "sure": "yes", "proof": receipt.tree.all("input", name="proof")[0]["value"]}
    assert "Deleted" in kept.reader.post("/admin/tenants/delete", form)
    assert kept.store.admin.tenants() == ["default"]


def test_a_purge_is_previewed_by_the_times_of_messages(kept: Site) -> None:
    old = datetime.now(UTC) - timedelta(days=400)
    kept.store.append("old", [Message("user", "x", created_at=old)])
    kept.store.append("new", [Message("user", "x")])
    counted = kept.get("/admin").send("/admin/purge", days="1")
    # By the times of messages, so that an imported archive can be purged by age.
    assert "1 conversation" in counted
    assert kept.store.stats().conversations == 2
    assert kept.get("/admin").send("/admin/purge", days="0").status == 400


def test_erasure_shows_a_receipt(kept: Site) -> None:
    kept.store.append("hers", [Message("user", "x")], user_id="ada")
    kept.store.append("ours", [Message("user", "y")], user_id="ben")
    assert kept.get("/admin").send("/admin/erase", user="ada").status == 400
    receipt = kept.get("/admin").send("/admin/erase", user="ada", sure="yes")
    assert "The user ada" in receipt
    assert "Physically gone" in receipt
    assert [each.id for each in kept.store.list_conversations().items] == ["ours"]


def test_the_result_of_a_check_is_shown_again(kept: Site) -> None:
    kept.store.append("c", [Message("user", "x")])
    assert "never" in kept.get("/")
    assert "Nothing is wrong" in kept.get("/").send("/admin/check")
    assert "nothing wrong" in kept.get("/")
    assert "nothing wrong" in kept.get("/admin")


def test_the_audit_log_is_shown_to_operators(kept: Site, tmp_path: Path) -> None:
    kept.store.append("c", [Message("user", "a secret")])
    kept.get("/c/c")
    kept.get("/c/nothing")
    page = kept.get("/admin").follow("Audit log")
    rows = [row.words for row in page.tree.one("tbody").all("tr")]
    assert any("see_conversation" in row and "404" in row for row in rows)
    assert "a secret" not in page.tree.text
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:0\n')  # what a full disk cut off
    assert any("unreadable" in row.words for row in kept.get("/admin/audit").tree.one("tbody").all("tr"))
    only = kept.get("/admin/audit?action=see_admin")
    assert {row.all("td")[3].words for row in only.tree.one("tbody").all("tr")} == {"see_admin"}
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:00:00Z","request_id":"x","status":200,"action":"old"}\n' * 20_000)
    assert len(kept.get("/admin/audit").tree.one("tbody").all("tr")) == 200


def test_without_an_audit_log_there_is_no_page_of_it(site: Site) -> None:
    assert site.get("/admin/audit").status == 501
    assert [link for link in site.get("/admin").tree.all("a") if link.words == "Audit log"] == []


def test_a_users_key_shows_only_the_users_data(kept: Site, tmp_path: Path) -> None:
    kept.store.tenant("acme").append("hers", [Message("user", "mine")], user_id="ada")
    kept.store.tenant("acme").append("his", [Message("user", "not mine")], user_id="ben")
    token = KeyFile(tmp_path / "keys.json").create("x", ["read", "write", "admin"], tenant="acme", user="ada")[1]
    page = kept.reader.sign_in(token)
    assert "mine" in page
    assert "not mine" not in page
    assert kept.get("/c/his").status == 404
    admin = kept.get("/admin")
    assert "API keys" not in admin
    assert "Tenants" not in admin
    assert admin.send("/admin/erase", user="ben", sure="yes").status == 403
