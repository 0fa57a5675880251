"""Signing in with a provider of OpenID Connect: people get a session, and every wrong answer gets a clear page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import Browser
from tests.server.kit import serving
from tests.wait import until
from tests.web.browser import Visitor, needs_chromium
from tests.web.kit import Page, Reader, Site, sited
from tests.web.provider import CLIENT, SECRET, Provider, providing

from hansard.server import oidc, tokens
from hansard.server.settings import Settings
from hansard.server.web import cookies, sign_in


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.behave()
    return running


def settings_of(provider: Provider, **more: Any) -> Settings:
    given = {"oidc": provider.address, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    return Settings(**(given | more))


@pytest.fixture(scope="module")
def site(running: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with sited(f"sqlite:///{folder}/chats.db", settings_of(running, audit_log=folder / "audit.jsonl")) as made:
        made.store.tenant("acme").user("ada").append_message("c", "user", "PLUGH")
        yield made


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    reader = Reader(site.api.address)
    yield reader
    reader.client.close()


def sent_to_provider(reader: Reader, path: str = "/c/c") -> str:
    """Follows the link of the sign-in page, and returns the address at the provider that it leads to."""
    reader.client.follow_redirects = False
    page = reader.get(path)
    assert page.status == 401
    answer = page.follow("Sign in with 127.0.0.1").answer
    assert answer.status_code == 303
    reader.client.follow_redirects = True
    return answer.headers["location"]


def callback(reader: Reader, path: str = "/c/c") -> str:
    """Signs in at the provider, and returns the address of the callback."""
    return httpx.get(sent_to_provider(reader, path)).headers["location"]


def is_signed_in(reader: Reader) -> bool:
    return reader.get("/c/c").status == 200


def refused(page: Page, problem: str, status: int = 401) -> None:
    """The page says what was wrong, leads on, and nothing was set."""
    assert page.status == status, page.tree.words
    assert problem in page.main.one(role="alert").words
    assert page.main.one("a", "button").words == "Sign in with 127.0.0.1"
    links = [link["href"] for link in page.main.one("p", "brand").all("a")]
    assert links == ["../"]
    given = [each.partition("=")[0] for each in page.answer.headers.get_list("set-cookie")]
    assert set(given) <= {cookies.SEED}


# A session


@needs_chromium
def test_a_person_signs_in_works_and_signs_out(site: Site, provider: Provider, browser: Browser) -> None:
    visitor = Visitor(browser, elsewhere=provider.address)
    visitor.expected = ("401",)
    page = visitor.open(site.api.address, "/c/c?branch=main")
    page.get_by_role("link", name="Sign in with 127.0.0.1").click()
    page.wait_for_url("**/c/c?branch=main")
    assert page.get_by_text("PLUGH").first.is_visible()
    assert page.locator(".whoami .chip").all_inner_texts() == ["acme", "ada"]
    (session,) = [each for each in page.context.cookies() if each["name"] == cookies.KEY]
    assert (session["httpOnly"], session["sameSite"], session["path"]) == (True, "Lax", "/")
    assert 200 < session["expires"] - time.time() <= 300
    page.goto(site.api.address + "/c/c")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in with 127.0.0.1").wait_for()
    assert page.url == site.api.address + "/"
    ended = provider.signed_out.pop()
    assert (ended["client_id"], ended["id_token_hint"]) == (CLIENT, session["value"])
    assert [each["name"] for each in page.context.cookies() if each["name"] != cookies.SEED] == []
    visitor.close()


def test_a_session_is_a_token_as_any_other(site: Site, reader: Reader, provider: Provider) -> None:
    reader.get(callback(reader))
    assert is_signed_in(reader)
    assert reader.get("/admin").status == 403
    token = reader.client.cookies[cookies.KEY]
    about = httpx.get(f"{site.api.address}/api/v1/about", headers={"Authorization": f"Bearer {token}"}).json()
    assert (about["tenant"], about["user"], about["scopes"]) == ("acme", "ada", ["read", "write"])


def test_the_start_binds_the_sign_in_to_the_browser(site: Site, reader: Reader, provider: Provider) -> None:
    query = dict(parse_qsl(urlsplit(sent_to_provider(reader)).query))
    assert query["redirect_uri"] == site.api.address + "/sign-in/callback"
    assert min(len(query[name]) for name in ("state", "nonce", "code_challenge")) >= 43
    again = dict(parse_qsl(urlsplit(sent_to_provider(reader)).query))
    assert all(query[name] != again[name] for name in ("state", "nonce", "code_challenge"))
    started = httpx.get(site.api.address + "/sign-in/oidc").headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"):
        assert word in started
    safe = httpx.get(site.api.address + "/sign-in/oidc", headers={"X-Forwarded-Proto": "https"})
    assert safe.headers["set-cookie"].startswith(sign_in.HOST_ATTEMPT + "=")
    assert "Secure" in safe.headers["set-cookie"]
    assert "redirect_uri=https%3A%2F%2F127.0.0.1" in safe.headers["location"]


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/", "\t//evil.example", "x" * 5000],
)
def test_a_return_path_stays_on_the_site(site: Site, reader: Reader, provider: Provider, to: str) -> None:
    reader.client.follow_redirects = False
    where = reader.get("/sign-in/oidc?" + urlencode({"to": to})).answer.headers["location"]
    back = reader.get(httpx.get(where).headers["location"]).answer
    assert back.status_code == 303
    assert back.headers["location"].startswith("../")
    assert back.next_request is not None
    assert back.next_request.url.host == "127.0.0.1"


def test_a_public_client_and_one_with_its_secret_in_the_form(provider: Provider) -> None:
    for secret in (None, SECRET):
        provider.secret = secret
        provider.document = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        with serving(settings=settings_of(provider, oidc_client_secret=secret)) as api:
            reader = Reader(api.address)
            assert reader.get(callback(reader, "/")).status == 200
            reader.client.close()


# What is wrong gets a clear page


def wrong_tokens() -> dict[str, tuple[dict[str, Any], tuple[Any, str, str] | None, str]]:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = time.time()
    return {
        "expired": ({"exp": now - 60}, None, "The token is not valid"),
        "for another": ({"aud": "other"}, None, "The token is not valid"),
        "from another": ({"iss": "https://other.example"}, None, "The token is not valid"),
        "no end": ({"exp": None}, None, "The token is not valid"),
        "a wrong nonce": ({"nonce": "other"}, None, "its nonce is wrong"),
        "no nonce": ({"nonce": None}, None, "its nonce is wrong"),
        "issued to another": ({"aud": [CLIENT, "x"], "azp": "x"}, None, "issued to another client"),
        "not signed": ({}, ("", "none", "k1"), "The token is not valid"),
        "a shared secret": ({}, (SECRET * 8, "HS256", "k1"), "The token is not valid"),
        "signed by another": ({}, (other, "RS256", "k1"), "The token is not valid"),
        "an unknown key": ({}, (other, "RS256", "k9"), "The token is not valid"),
        "no tenant": ({"hansard_tenant": None}, None, "claim 'hansard_tenant' is missing"),
        "no scope": ({"scope": "openid"}, None, "has no scope 'read'"),
        "too large": ({"groups": "g" * 5000}, None, "too large for a cookie"),
    }


def test_a_wrong_token_sets_no_session(reader: Reader, provider: Provider, subtests: pytest.Subtests) -> None:
    for why, (claims, signer, problem) in wrong_tokens().items():
        with subtests.test(why):
            provider.behave()
            provider.claims, provider.signer = claims, signer or provider.signer
            refused(reader.get(callback(reader)), problem)
            assert not is_signed_in(reader)
    provider.behave()
    reader.get(callback(reader))
    assert is_signed_in(reader)


def test_a_wrong_answer_of_the_provider_sets_no_session(
    reader: Reader, provider: Provider, subtests: pytest.Subtests
) -> None:
    answers = {
        "a wrong secret": ((401, b'{"error": "invalid_client"}'), "does not accept this server's client id", 401),
        "a used code": ((400, b'{"error": "invalid_grant"}'), "refused the sign-in (invalid_grant)", 401),
        "a failure": ((500, b"oops"), "cannot be used to sign in at the moment", 503),
        "no JSON": ((200, b"<html>"), "cannot be used to sign in at the moment", 503),
        "no token": ((200, b'{"access_token": "x"}'), "cannot be used to sign in at the moment", 503),
        "a token that is none": ((200, b'{"id_token": "a.b.c"}'), "The token is not valid", 401),
        "bytes": ((400, b"\xff\xfe"), "cannot be used to sign in at the moment", 503),
    }
    for why, (answer, problem, status) in answers.items():
        with subtests.test(why):
            provider.token_answer = answer
            refused(reader.get(callback(reader)), problem, status)
            assert not is_signed_in(reader)


def test_a_wrong_callback_sets_no_session(
    site: Site, reader: Reader, provider: Provider, subtests: pytest.Subtests
) -> None:
    here = site.api.address + "/sign-in/callback"
    not_begun = "not begun in this browser"
    with subtests.test("without a start"):
        refused(reader.get(here + "?code=x&state=y"), not_begun)
        refused(reader.get(here), not_begun)
    with subtests.test("in another browser"):
        other = Reader(site.api.address)
        refused(other.get(callback(reader)), not_begun)
        other.client.close()
    with subtests.test("a wrong state"):
        refused(reader.get(re.sub("state=[^&]*", "state=other", callback(reader))), not_begun)
        refused(reader.get(re.sub("&state=[^&]*", "", callback(reader))), not_begun)
    with subtests.test("a cookie that is none"):
        for value in ("x", "e30=", "=", "bnVsbA=="):
            headers = {"Cookie": f"{sign_in.ATTEMPT}={value}"}
            refused(Page(reader, httpx.get(here + "?code=x&state=", headers=headers)), not_begun)
    with subtests.test("cancelled"):
        provider.denies = "access_denied"
        refused(reader.get(callback(reader)), "The sign-in with 127.0.0.1 was cancelled")
    with subtests.test("refused"):
        provider.denies = "<script>alert(1)</script>"
        page = reader.get(callback(reader))
        refused(page, "refused the sign-in (<script>")
        assert "<script>alert" not in page.answer.text
    with subtests.test("too many parameters"):
        assert reader.get(here + "?" + "a=b&" * 200).status == 400
    assert not is_signed_in(reader)
    provider.behave()
    with subtests.test("used twice"):
        where = callback(reader)
        assert reader.get(where).status == 200
        refused(reader.get(where), not_begun)
        assert is_signed_in(reader), "the session of the first time stays"


def test_a_provider_that_is_away_or_wrong_prevents_only_signing_in(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(oidc, "_AGAIN", 0.0)
    wrong: dict[str, dict[str, Any]] = {
        "away": {},
        "another issuer": {"issuer": "https://other.example"},
        "a file": {"jwks_uri": "file:///etc/passwd"},
        "no address": {"token_endpoint": None},
        "two lines": {"authorization_endpoint": provider.address + "/a\r\nSet-Cookie: x=y"},
    }
    for why, document in wrong.items():
        with subtests.test(why):
            provider.document = document
            gone = {"oidc": "http://127.0.0.1:9"} if why == "away" else {}
            with serving(settings=settings_of(provider, **gone)) as api:
                reader = Reader(api.address)
                refused(reader.get("/sign-in/oidc"), "127.0.0.1 cannot be used to sign in at the moment", 503)
                assert reader.get("/").status == 401
                assert httpx.get(api.address + "/healthz").status_code == 200
                provider.behave()
                if why != "away":
                    assert reader.get(callback(reader, "/")).status == 200
                reader.client.close()


def test_a_session_outlives_a_provider_that_is_away(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(settings=settings_of(provider)) as api:
        reader = Reader(api.address)
        monkeypatch.setattr(oidc, "_FRESH", 0.0)
        assert reader.get(callback(reader, "/")).status == 200
        provider.document = {"issuer": "https://other.example"}
        monkeypatch.setattr(tokens, "_FRESH", 0.0)
        assert reader.get("/").status == 200
        assert reader.get("/sign-in/oidc").status == 503
        reader.client.close()


def test_an_expired_session_leads_to_sign_in_and_back(reader: Reader, provider: Provider) -> None:

    def sign_in(seconds: float) -> bool:
        provider.claims = {"exp": time.time() + seconds}
        return reader.get(callback(reader)).status == 200

    # A busy machine may need longer to sign in than the shortest of them lasts.
    assert any(map(sign_in, (2, 10, 50)))
    token = reader.client.cookies[cookies.KEY]
    until(lambda: not is_signed_in(reader))  # without the cookie, which ends with the token
    headers = {"Cookie": f"{cookies.KEY}={token}"}
    answer = until(lambda: (got := reader.client.get("/c/c?branch=main", headers=headers)).status_code == 401 and got)
    assert answer
    page = Page(reader, answer)
    assert "The token is not valid" in page
    assert page.main.one("a", "button")["href"] == "../sign-in/oidc?to=c/c%3Fbranch%3Dmain"


# Claims


def test_settings_replace_claims(provider: Provider) -> None:
    provider.claims = {"hansard_tenant": None, "hansard_user": None, "scope": None, "email": "ada@example.com"}
    given = {"oidc_tenant": "globex", "oidc_user_claim": "email", "oidc_scopes": ("read",)}
    with serving(settings=settings_of(provider, **given)) as api:
        reader = Reader(api.address)
        refused(reader.get(callback(reader, "/")), "has not verified the address in 'email'")
        provider.claims["email_verified"] = True
        assert reader.get(callback(reader, "/")).status == 200
        token = reader.client.cookies[cookies.KEY]
        about = api.get("/about", headers={"Authorization": f"Bearer {token}"}).json()
        assert (about["tenant"], about["user"], about["scopes"]) == ("globex", "ada@example.com", ["read"])
        provider.claims["email"] = None
        reader.client.cookies.clear()
        refused(reader.get(callback(reader, "/")), "its claim 'email' is missing or no name")
        reader.client.close()


def test_behind_a_prefix_the_setting_names_the_callback(provider: Provider) -> None:
    given = settings_of(provider, oidc_redirect="http://127.0.0.1/history/sign-in/callback")
    with serving(settings=given) as api:
        started = httpx.get(api.address + "/sign-in/oidc")
        assert "Path=/history;" in started.headers["set-cookie"]
        query = dict(parse_qsl(urlsplit(started.headers["location"]).query))
        assert query["redirect_uri"] == given.oidc_redirect
        back = httpx.get(started.headers["location"]).headers["location"]
        sent = {"Cookie": started.headers["set-cookie"].partition(";")[0]}
        signed = httpx.get(f"{api.address}/sign-in/callback?{urlsplit(back).query}", headers=sent)
        assert signed.status_code == 303
        (session,) = [each for each in signed.headers.get_list("set-cookie") if each.startswith(cookies.KEY)]
        assert "Path=/history;" in session


def test_both_kinds_of_tokens_are_accepted(provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(provider.jwks()))
    api_tokens = {"jwks": str(tmp_path / "jwks.json"), "jwt_issuer": "https://api.example", "jwt_audience": "api"}
    with serving(settings=settings_of(provider, **api_tokens)) as api:
        claims = {"iss": "https://api.example", "aud": "api", "sub": "x", "exp": time.time() + 600}
        token = jwt.encode(
            claims | {"hansard_tenant": "acme", "scope": "hansard:read"}, provider.private, "RS256", {"kid": "k1"}
        )
        for each in (token, provider.token()):
            assert api.get("/about", headers={"Authorization": f"Bearer {each}"}).status_code == 200
        crossed = jwt.encode(
            claims | {"aud": CLIENT, "hansard_tenant": "acme"}, provider.private, "RS256", {"kid": "k1"}
        )
        assert api.get("/about", headers={"Authorization": f"Bearer {crossed}"}).status_code == 401
