"""A provider of OpenID Connect on a real socket. It checks what a client sends, and can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "hansard-page", "s3cret/+ :%"
CLAIMS = {"sub": "ada", "hansard_tenant": "acme", "hansard_user": "ada", "scope": "hansard:read hansard:write"}


class Provider:
    """The state of a provider. Tests change its fields."""

    def __init__(self) -> None:
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.address = ""
        self.codes: dict[str, dict[str, str]] = {}
        self.signed_out: list[dict[str, str]] = []
        self.behave()

    def behave(self) -> None:
        """Resets what a test has changed."""
        self.claims: dict[str, Any] = {}
        """Replaces claims of the next tokens; None removes one."""
        self.signer: tuple[Any, str, str] = (self.private, "RS256", "k1")
        """The key, the algorithm and the key id of the next tokens."""
        self.secret: str | None = SECRET
        """The secret of the client; None for a public client."""
        self.denies: str | None = None
        """The error with which a person comes back."""
        self.token_answer: tuple[int, bytes] | None = None
        """Replaces the answer of the token endpoint."""
        self.document: dict[str, Any] = {}
        """Replaces fields of the discovery document."""

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": self.address + "/authorize?kind=people",
            "token_endpoint": self.address + "/token",
            "jwks_uri": self.address + "/jwks",
            "end_session_endpoint": self.address + "/end",
        } | self.document

    def jwks(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.private.public_key()))
        return {"keys": [public | {"kid": "k1", "use": "sig", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Returns where a person who has signed in is redirected to."""
        assert query["kind"] == "people"
        assert (query["response_type"], query["client_id"]) == ("code", CLIENT)
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        if self.denies is not None:
            return query["redirect_uri"] + "?" + urlencode({"error": self.denies, "state": query["state"]})
        code = secrets.token_urlsafe()
        self.codes[code] = query
        return query["redirect_uri"] + "?" + urlencode({"code": code, "state": query["state"], "session_state": "x"})

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """Returns the answer of the token endpoint. A code is valid once, for the client that it was issued to."""
        if self.token_answer is not None:
            return self.token_answer
        if not self._is_client(form, authorization):
            return 401, b'{"error": "invalid_client"}'
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or form["grant_type"] != "authorization_code"
            or (challenge, form["redirect_uri"]) != (asked["code_challenge"], asked["redirect_uri"])
        ):
            return 400, b'{"error": "invalid_grant", "error_description": "no such code"}'
        return 200, json.dumps({"token_type": "Bearer", "id_token": self.token(nonce=asked["nonce"])}).encode()

    def _is_client(self, form: dict[str, str], authorization: str) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT and "client_secret" not in form
        if "client_secret_post" in self.document.get("token_endpoint_auth_methods_supported", ()):
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, self.secret)
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (CLIENT, self.secret)

    def token(self, **more: Any) -> str:
        now = time.time()
        usual = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 300, **CLAIMS, **more}
        told = {name: value for name, value in (usual | self.claims).items() if value is not None}
        key, algorithm, kid = self.signer
        return jwt.encode(told, key, algorithm, headers={"kid": kid})


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            if parts.path == "/.well-known/openid-configuration":
                self._answer(200, json.dumps(provider.discovery()).encode())
            elif parts.path == "/jwks":
                self._answer(200, json.dumps(provider.jwks()).encode())
            elif parts.path == "/authorize":
                self._redirect(provider.authorize(query))
            elif parts.path == "/end":
                provider.signed_out.append(query)
                self._redirect(query["post_logout_redirect_uri"])
            else:
                self._answer(404, b"{}")

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
            self._answer(*provider.redeem(form, self.headers.get("authorization", "")))

        def _redirect(self, where: str) -> None:
            self.send_response(302)
            self.send_header("location", where)
            self.send_header("content-length", "0")
            self.end_headers()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        provider.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join(60)
