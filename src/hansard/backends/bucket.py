"""A bucket of S3-compatible storage, for blobs and backups: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.

The credentials are those of the environment (`AWS_ACCESS_KEY_ID`, …). Methods block; every failure of the bucket is
`Unavailable`, and says which bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from hansard.errors import Unavailable, Unsupported, ValidationError

T = TypeVar("T")

_MACHINE_ROLES = "//169.254.169.254/"
"""Where machines at Amazon get credentials, if the environment has none."""
_NO_BUCKET = "NoSuchBucket"
"""How S3 names the reason, in an answer with a body: that to HEAD has none."""


def _is_web_address(endpoint: str) -> bool:
    """Others make the driver panic, with the first request."""
    parts = urlsplit(endpoint)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class Bucket:
    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import S3Store
        except ModuleNotFoundError as error:
            raise Unsupported("a bucket needs an extra: pip install 'hansard[s3]'", capability="s3") from error
        if not isinstance(url, str):
            raise ValidationError(f"the URL of a bucket must be text, not a {type(url).__name__}")
        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        endpoint, region = options.pop("endpoint", None), options.pop("region", None)
        if parts.scheme != "s3" or not parts.netloc or options:
            raise ValidationError(f"{url!r} is not s3://BUCKET/PREFIX?endpoint=URL&region=NAME")
        if endpoint is not None and not _is_web_address(endpoint):
            raise ValidationError(f"endpoint={endpoint!r} in {url!r} is not a URL that begins with https:// or http://")
        more: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        more |= {"region": region} if region else {}
        allow_http = bool(endpoint and endpoint.startswith("http://"))
        self.url = url
        self._obstore = obstore
        self._store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"allow_http": allow_http, "timeout": "60s"},
            retry_config={"max_retries": 2},
            **more,
        )

    def put(self, name: str, data: bytes | Path) -> None:
        self._call(lambda: self._obstore.put(self._store, name, data))

    def get(self, name: str) -> bytes | None:
        """Returns None if there is no such object."""
        return self._find(lambda: bytes(self._obstore.get(self._store, name).bytes()))

    def download(self, name: str, file: Path) -> None:
        def download() -> None:
            with file.open("wb") as target:
                for chunk in self._obstore.get(self._store, name):
                    target.write(chunk)

        self._call(download)

    def has(self, name: str) -> bool:
        return self._find(lambda: self._obstore.head(self._store, name)) is not None

    def copy(self, name: str, to: str) -> bool:
        """Copies an object inside the bucket. Returns False if it does not exist."""
        return self._find(lambda: self._obstore.copy(self._store, name, to) or True) is not None

    def list(self, prefix: str | None = None) -> Iterator[tuple[str, datetime]]:
        """Yields the name of each object, and when it was stored."""
        pages = iter(self._call(lambda: self._obstore.list(self._store, prefix)))
        while (page := self._call(lambda: next(pages, None))) is not None:
            yield from ((each["path"], each["last_modified"]) for each in page)

    def remove(self, name: str) -> None:
        """Removes an object, if it exists."""
        self._find(lambda: self._obstore.delete(self._store, name))

    def _find(self, call: Callable[[], T]) -> T | None:
        """Returns None if the object does not exist."""
        try:
            return self._call(call)
        except Unavailable as error:
            if isinstance(error.__cause__, FileNotFoundError) and _NO_BUCKET not in str(error.__cause__):
                return None
            raise

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # the errors of obstore have no common base
            reason = str(error).partition("\n")[0]  # the rest is for those who debug obstore
            if _NO_BUCKET in str(error):
                reason = "it does not exist; create it, or check its name"
            elif _MACHINE_ROLES in str(error):
                reason = f"no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY ({reason})"
            raise Unavailable(f"the bucket {self.url} failed: {reason}") from error
