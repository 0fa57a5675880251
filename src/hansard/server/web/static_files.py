"""The style sheet, the script and the icon, which browsers cache until they change."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

from starlette.types import Scope, Send

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_NAMES = ("hansard.css", "hansard.js", "import.js", "mark.svg", "api.css")
_FOLDER = "/static/"


@cache
def address(name: str) -> str:
    """Returns the path of a file, which contains a hash of its content."""
    return f"static/{hashlib.sha256(content(name)).hexdigest()[:12]}/{name}"


@cache
def content(name: str) -> bytes:
    return (files("hansard.server.web") / "static" / name).read_bytes()


@cache
def packed(name: str) -> bytes:
    return gzip.compress(content(name), mtime=0)


async def send(scope: Scope, send: Send) -> bool:
    """Answers a request for one of the files. Returns false for other requests."""
    path = scope["path"][len(scope.get("root_path", "")) :]
    if scope["type"] != "http" or not path.startswith(_FOLDER) or scope["method"] not in ("GET", "HEAD"):
        return False
    name = path.rpartition("/")[2]
    if name not in _NAMES or path != "/" + address(name):
        return False
    accepted = b",".join(value for header, value in scope["headers"] if header == b"accept-encoding")
    is_packed = b"gzip" in accepted and b"gzip;q=0" not in accepted.replace(b" ", b"")
    body = packed(name) if is_packed else content(name)
    headers = [
        (b"content-type", _TYPES[name.rpartition(".")[2]].encode()),
        (b"content-length", str(len(body)).encode()),
        (b"vary", b"accept-encoding"),
        *([(b"content-encoding", b"gzip")] if is_packed else []),
        (b"cache-control", b"public, max-age=31536000, immutable"),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
    return True
