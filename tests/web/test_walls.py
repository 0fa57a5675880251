"""No page crosses the walls. The requests are built from the table of pages."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.kit import Served, serving
from tests.server.requests_of import BRANCH, ID, MESSAGE, OWNER
from tests.server.walls import ALL, Walled, walled_in
from tests.web.kit import Reader, parse

from hansard import sync
from hansard.server.endpoints import Endpoint
from hansard.server.key_file import KeyFile
from hansard.server.web import cookies
from hansard.server.web.app import PAGES
from hansard.testing.contract.walls import SECRET

SEED = "s" * 43
PLACES = {"conversation_id": ID, "message_id": MESSAGE, "number": "0", "file_name": "export.zip"}
FORMS: dict[str, dict[str, Any]] = {
    "do_begin": {"text": "x"},
    "do_say": {"text": "x"},
    "do_rename": {"title": "mine"},
    "do_archive": {"archived": "yes"},
    "do_delete": {"sure": "yes"},
    "do_switch": {"branch": BRANCH},
    "do_edit": {"text": "x", "how": "place"},
    "do_delete_message": {"sure": "yes"},
    "do_rate": {"value": "1"},
    "do_label": {"add": "x"},
    "do_label_message": {"add": "x"},
    "do_add_member": {"user": "eve"},
    "do_remove_member": {"user": OWNER},
    "do_share": {"expires": "day"},
    "do_unshare": {"share": "share_x"},
    "do_make_key": {"name": "x", "scopes": "read"},
    "do_revoke_key": {"id": "x"},
    "do_delete_tenant": {"tenant": "acme", "sure": "yes"},
    "do_purge": {"days": "1", "sure": "yes"},
    "do_erase": {"user": OWNER, "sure": "yes"},
}
QUERIES = {
    "see_conversations": {"q": SECRET},
    "see_facets": {"q": SECRET},
    "see_search": {"q": SECRET},
    "see_why": {"agent": "a"},
}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


class Pages(Walled):
    """The key of one within as well."""

    def __init__(self, api: Served, keys: KeyFile, store: sync.Store) -> None:
        super().__init__(api, keys, store)
        self.tokens["acme"] = self.key(ALL, tenant="acme")

    def ask(
        self,
        page: Endpoint,
        key: str | None,
        *,
        before: str = "",
        proof: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Asks for a page as a browser does that has signed in, and has the proof if none is given."""
        held = {cookies.SEED: SEED} | ({cookies.KEY: key} if key is not None else {})
        reader = Reader(self.api.address, cookies=held)
        try:
            reader.client.follow_redirects = False
            path = before + page.path.format(**PLACES)
            if page.method == "GET":
                given = {"params": QUERIES.get(page.name, {}), "headers": headers or {}}
                with reader.client.stream("GET", path, **given) as answer:  # type: ignore[arg-type]
                    live = page.name == "see_tail" and answer.status_code == 200
                    content = next(answer.iter_bytes()) if live else answer.read()
                return httpx.Response(answer.status_code, headers={}, content=content)
            if proof is None:
                proof = hmac.new(SEED.encode(), b"form\0" + (key or "").encode(), "sha256").hexdigest()
            return reader.client.post(path, data=FORMS.get(page.name, {}) | {"proof": proof}, headers=headers)
        finally:
            reader.client.close()

    def behind(self) -> Any:
        self.acme.erase_user("eve")
        return super().behind()


@pytest.fixture(scope="module")
def walled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with walled_in(tmp_path_factory.mktemp("walled"), Pages) as made:
        yield made


def test_every_form_is_tested() -> None:
    assert set(FORMS) <= {page.name for page in PAGES}
    for page in PAGES:
        assert page.method == "GET" or page.name.startswith("do_")
        assert (page.scope == "read") == (page.method == "GET" and not page.path.startswith("/admin")), page.name


@every_page
def test_every_page_refuses_a_missing_or_invalid_key(walled: Pages, page: Endpoint) -> None:
    before = walled.behind()
    revoked = walled.key(ALL)
    walled.keys.revoke(revoked.split("_")[1])
    for key in (None, revoked, walled.tokens["acme"] + "x", "nonsense"):
        answer = walled.ask(page, key)
        assert answer.status_code == 401
        assert "Sign in" in answer.text
        assert SECRET not in answer.text.replace(f"?q={SECRET}", "")  # where to go on after signing in
    assert walled.behind() == before


@every_page
def test_every_page_refuses_a_key_without_its_scope(walled: Pages, page: Endpoint) -> None:
    before = walled.behind()
    others = [scope for scope in ALL if scope != page.scope]
    answer = walled.ask(page, walled.key(others))
    assert answer.status_code == 403
    assert SECRET not in answer.text
    if page.operator:
        assert walled.ask(page, walled.tokens["acme"]).status_code == 403
    assert walled.behind() == before


@every_page
def test_no_page_shows_data_of_another_tenant_or_user(walled: Pages, page: Endpoint) -> None:
    before = walled.behind()
    for who in ("evil", "eve", "evil ada"):
        answer = walled.ask(page, walled.tokens[who])
        assert answer.status_code < 500, answer.text
        # The search box and links show the query itself.
        shown = answer.text.replace(f'value="{SECRET}"', "").replace(f"<title>{SECRET}", "")
        assert SECRET not in shown.replace(f"q={SECRET}", ""), who
        assert walled.behind() == before, who


@every_page
def test_no_key_can_name_another_tenant(walled: Pages, page: Endpoint) -> None:
    before = walled.behind()
    for who in ("evil", "evil ada"):
        answer = walled.ask(page, walled.tokens[who], before="/t/acme")
        assert answer.status_code == 403
        assert SECRET not in answer.text
    assert walled.behind() == before


FORM_PAGES = pytest.mark.parametrize(
    "page", [each for each in PAGES if each.method == "POST"], ids=lambda each: each.name
)


@FORM_PAGES
def test_a_form_of_another_origin_is_refused(walled: Pages, page: Endpoint) -> None:
    before = walled.behind()
    operator = walled.key(ALL, tenant=None)
    for proof in ("", "x", "0" * 64):
        assert walled.ask(page, operator, before="/t/acme", proof=proof).status_code == 403
    for site in ("cross-site", "same-site"):
        answer = walled.ask(page, operator, before="/t/acme", headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 403
    assert walled.behind() == before


def test_the_key_is_in_a_cookie_that_no_script_reads(walled: Pages) -> None:
    reader = Reader(walled.api.address)
    try:
        reader.client.follow_redirects = False
        signed = reader.sign_in(walled.tokens["acme"], "/c/victim?branch=side")
        assert signed.status == 303
        assert signed.answer.headers["location"] == "./c/victim?branch=side"
        (cookie,) = [each for each in signed.answer.headers.get_list("set-cookie") if each.startswith(cookies.KEY)]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Path" not in cookie
        assert "Secure" not in cookie
        assert reader.get("/c/victim").status == 200
        out = reader.get("/").send("sign-out")
        assert out.status == 303
        assert reader.get("/c/victim").status == 401
        proof = reader.get("/").tree.one("input", name="proof")["value"]
        form = {"key": walled.tokens["acme"], "proof": proof}
        safe = reader.post("/sign-in", form, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" in safe.answer.headers["set-cookie"]
    finally:
        reader.client.close()


@pytest.mark.parametrize(
    "others",
    [
        "a[b]=c; {x",
        'theme="a; b',
        "é=\xff",
        ";;=;",
        'json={"a":"b,c"}',
        "x" * 4000,
        f"{cookies.KEY}x=y; my{cookies.KEY}=z",
    ],
)
def test_cookies_of_other_applications_end_no_session(walled: Walled, others: str) -> None:
    """Another application on the same host may set any cookie, and a browser sends all of them."""
    ours = f"{cookies.KEY}={walled.tokens['acme']}"
    for sent in (f"{others}; {ours}", f"{ours}; {others}"):
        answer = httpx.get(f"{walled.api.address}/c/victim", headers=[(b"cookie", sent.encode("latin-1"))])
        assert answer.status_code == 200, sent


@pytest.mark.parametrize(
    ("shown_at", "named", "name"),
    [
        ("/", "https://h.example/", cookies.HOST_KEY),
        ("/c/victim?branch=side", "https://h.example/c/victim?branch=side", cookies.HOST_KEY),
        ("/c/victim", "https://h.example/sign-in", cookies.HOST_KEY),
        ("/", "https://h.example/history/", cookies.KEY),
        ("/c/victim", "https://h.example/history/c/victim", cookies.KEY),
        ("/", "", cookies.KEY),
        ("/c/victim", "https://[/c", cookies.KEY),
    ],
)
def test_over_tls_no_other_host_can_set_the_key(walled: Walled, shown_at: str, named: str, name: str) -> None:
    """Unless a proxy has put a prefix before the page: the cookie would go to all that is behind other prefixes."""
    headers = {"X-Forwarded-Proto": "https", "Cookie": f"{cookies.SEED}={SEED}"}
    form = parse(httpx.get(walled.api.address + shown_at, headers=headers).text).one("form")
    fields = {each["name"]: each["value"] for each in form.all("input")} | {"key": walled.tokens["acme"]}
    sent = headers | ({"Referer": named} if named else {})
    signed = httpx.post(f"{walled.api.address}/sign-in", headers=sent, data=fields)
    given = [each for each in signed.headers.get_list("set-cookie") if "Max-Age=0" not in each]
    assert [each.partition("=")[0] for each in given] == [name]
    assert "Secure" in given[0]
    assert ("Path=/" in given[0]) == (name == cookies.HOST_KEY)


def test_the_host_cookie_counts_and_signing_out_removes_it(walled: Walled) -> None:
    sent = f"{cookies.KEY}=hsk_another; {cookies.HOST_KEY}={walled.tokens['acme']}; {cookies.SEED}={SEED}"
    headers = {"Cookie": sent, "X-Forwarded-Proto": "https"}
    page = httpx.get(f"{walled.api.address}/c/victim", headers=headers)
    assert page.status_code == 200
    proof = parse(page.text).all("input", name="proof")[0]["value"]
    out = httpx.post(f"{walled.api.address}/sign-out", headers=headers, data={"proof": proof})
    gone = {each.partition("=")[0] for each in out.headers.get_list("set-cookie") if "Max-Age=0" in each}
    assert gone == {cookies.KEY, cookies.HOST_KEY}


@pytest.mark.parametrize("by_tls", [{"X-Forwarded-Proto": "https"}, {}])
def test_an_old_cookie_does_not_prevent_signing_in(walled: Walled, by_tls: dict[str, str]) -> None:
    """For a visitor with an invalid old key, where a prefix is possible."""
    with httpx.Client(base_url=walled.api.address, headers=by_tls) as client:
        before = {"Cookie": f"{cookies.HOST_KEY}=hsk_revoked; {cookies.SEED}={SEED}"}
        form = parse(client.get("/", headers=before).text).one("form")
        fields = {each["name"]: each["value"] for each in form.all("input")} | {"key": walled.tokens["acme"]}
        signed = client.post("/sign-in", headers=before, data=fields)
        given = {each.partition("=")[0]: each for each in signed.headers.get_list("set-cookie")}
        assert given.keys() == {cookies.HOST_KEY, cookies.KEY}
        # A browser removes a cookie with this prefix only if all its attributes are repeated.
        assert {"Max-Age=0", "Path=/", "Secure"} <= set(given[cookies.HOST_KEY].split("; "))
        assert walled.tokens["acme"] in given[cookies.KEY]


def test_the_cached_frame_of_a_page_is_separate_for_each_caller(walled: Pages) -> None:
    """The frame is cached for one caller only."""
    tokens = (walled.key(ALL), walled.key(["read"]))
    shown = []
    for path in ("/c/victim", "/search?q=x"):
        for token in (*tokens, *tokens):
            headers = {"Cookie": f"{cookies.KEY}={token}; {cookies.SEED}={SEED}"}
            tree = parse(httpx.get(walled.api.address + path, headers=headers).text)
            proofs = {each["value"] for each in tree.one("header", "top").all("input", name="proof")}
            shown.append((any(link.words == "Admin" for link in tree.all("a")), frozenset(proofs)))
    assert [is_admin for is_admin, _ in shown] == [True, False] * 4
    assert len({proofs for _, proofs in shown}) == 2


def test_the_first_of_two_cookies_counts(walled: Walled) -> None:
    """A browser sends the one with the longer path first."""
    sent = f"{cookies.KEY}={walled.tokens['acme']}; {cookies.KEY}=hsk_another"
    assert httpx.get(f"{walled.api.address}/c/victim", headers={"Cookie": sent}).status_code == 200


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "\r\nX: y"]
)
def test_signing_in_redirects_only_within_the_site(walled: Pages, to: str) -> None:
    reader = Reader(walled.api.address)
    try:
        reader.client.follow_redirects = False
        proof = reader.get("/").tree.one("input", name="proof")["value"]
        answer = reader.post("/sign-in", {"key": walled.tokens["acme"], "to": to, "proof": proof}).answer
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("./")
        assert "x" not in answer.headers
        assert answer.headers["location"][2:3] not in ("/", "\\")
    finally:
        reader.client.close()


def test_the_sign_in_error_shows_nothing_about_a_key(walled: Pages) -> None:
    reader = Reader(walled.api.address)
    try:
        for key in ("hsk_x_y", walled.tokens["acme"][:-1] + "é", "a" * 5000, "x\ny"):
            page = reader.sign_in(key)
            assert page.status == 401
            assert "The key is not valid." in page
    finally:
        reader.client.close()


def test_the_api_accepts_no_cookie(walled: Pages) -> None:
    """A browser sends cookies with every request: the API, whose requests have no proof, ignores them."""
    headers = {"Cookie": f"{cookies.KEY}={walled.tokens['acme']}"}
    assert httpx.get(f"{walled.api.address}/api/v1/conversations", headers=headers).status_code == 401


def test_without_keys_other_origins_are_refused() -> None:
    """Without keys: not under a name of its own that points here, and not from where it was loaded."""
    with serving() as api:
        assert httpx.get(f"{api.address}/conversations", headers={"Host": "evil.example"}).status_code == 401
        proof = {"Origin": "http://evil.example"}
        assert httpx.post(f"{api.address}/sample", headers=proof, data={"proof": "x"}).status_code == 403
        assert httpx.post(f"{api.address}/sample", data={"proof": "x"}).status_code == 403


def test_actions_are_audited(walled: Pages, tmp_path_factory: pytest.TempPathFactory) -> None:
    operator = walled.key(ALL, tenant=None)
    (page,) = [each for each in PAGES if each.name == "see_conversation"]
    assert walled.ask(page, operator, before="/t/acme").status_code == 200
    (audit,) = [each for each in PAGES if each.name == "see_audit"]
    shown = walled.ask(audit, operator).text
    assert "see_conversation" in shown
    assert operator.split("_")[1] in shown
    assert operator not in shown


def test_signing_in_is_audited(walled: Pages) -> None:
    operator = walled.key(ALL, tenant=None)
    reader = Reader(walled.api.address)
    try:
        reader.sign_in("hsk_wrong_key")
        reader.sign_in(operator).send("sign-out")
        reader.sign_in(operator)
        rows = [[cell.words for cell in row.all("td")] for row in reader.get("/admin/audit").tree.all("tr")]
    finally:
        reader.client.close()
    key = operator.split("_")[1]
    done = [(row[1], row[3], row[5]) for row in rows if row and row[3].startswith("sign")]
    assert done[:4] == [
        (key, "sign_in", "303"),
        ("", "sign_out", "303"),
        (key, "sign_in", "303"),
        ("", "sign_in", "401"),
    ]
