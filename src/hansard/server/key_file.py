"""API keys, in a file outside the store. Several machines keep them in the store instead: see `store_keys`.

Keys belong to the operator of a server. They must not be part of copies, exports and backups of tenants' data. The file
contains the SHA-256 of each secret, never the secret: 256 random bits need no slow hash. The file's status is checked
before every use, except within a millisecond of the last check. A process that changes the file waits for that
long, so new and revoked keys are in effect in every worker when the change is done.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hansard.errors import Conflict, Corrupt, NotFound, Unavailable, ValidationError
from hansard.server.endpoints import SCOPES, Scope

PREFIX = "hsk_"
_FRESH_SECONDS = 0.001
"""How long the file's status is not checked again. Each check lets another thread run, in the middle of a request."""
_LOCK_SECONDS = 5.0
"""How long to wait for another process that changes the file."""
DEFAULT_FILE = "hansard-keys.json"


class Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key. A key without a tenant is an operator's, and is valid for every tenant."""

    id: str
    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    tenant: str | None = None
    user: str | None = None
    rate: int | None = None
    """Requests per minute."""
    daily_bytes: int | None = None
    """Bytes that its holder may send per day."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class _KeyFileData(Struct, kw_only=True):
    hansard: str = "keys"
    version: int = 1
    keys: list[Key] = []


class KeySet:
    """Keys, by their ids."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}

    def _current(self) -> dict[str, Key]:
        """Returns the keys, read again if they may have changed."""
        return self._keys

    def find(self, token: str, now: datetime) -> Key | None:
        """Returns the key of a token; None if there is none or it is not valid."""
        id, _, secret = token.removeprefix(PREFIX).partition("_")
        key = self._current().get(id)
        # Compare even if there is no such key, so that timing does not reveal which ids exist.
        is_right = hmac.compare_digest(_hash(secret), key.sha256 if key else "")
        return key if key is not None and is_right and key.is_valid(now) else None

    def get(self, id: str) -> Key | None:
        return self._current().get(id)

    @property
    def is_empty(self) -> bool:
        """Whether no key was ever created. Revoked keys count: revoking the last key must not open the server."""
        return not self._current()

    def list(self) -> list[Key]:
        return [*self._current().values()]


def new_key(
    name: str,
    scopes: Sequence[str],
    *,
    tenant: str | None,
    user: str | None = None,
    rate: int | None = None,
    daily_bytes: int | None = None,
    expires_at: datetime | None = None,
) -> tuple[Key, str]:
    """Returns a new key with its token, which is shown once and not stored."""
    secret = secrets.token_urlsafe(32)
    key = Key(
        id=secrets.token_hex(6),
        name=name,
        sha256=_hash(secret),
        scopes=_checked(scopes),
        tenant=tenant,
        user=user,
        rate=rate,
        daily_bytes=daily_bytes,
        created_at=datetime.now(UTC),
        expires_at=expires_at,
    )
    return key, f"{PREFIX}{key.id}_{secret}"


def revoke_in(keys: list[Key], id: str, where: str) -> tuple[Key, list[Key]]:
    """Returns the revoked key and all keys. It stays in the list, so that ids in the audit log can be resolved."""
    found = [key for key in keys if key.id == id or (key.name == id and key.revoked_at is None)]
    if not found:
        raise NotFound(f"there is no key {id!r} in {where}")
    if len(found) > 1:
        raise Conflict(f"several keys are named {id!r}: pass the id")
    ended = structs.replace(found[0], revoked_at=found[0].revoked_at or datetime.now(UTC))
    return ended, [ended if key.id == ended.id else key for key in keys]


class KeyFile(KeySet):
    """The keys of a server, in a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._stamp: tuple[int, ...] | None = None
        self._fresh_until = 0.0

    def _current(self) -> dict[str, Key]:
        now = time.monotonic()
        if now < self._fresh_until:
            return self._keys
        stamp = self._current_stamp()
        if stamp != self._stamp:
            self._keys = {key.id: key for key in self._read().keys}
            self._stamp = stamp
        self._fresh_until = now + _FRESH_SECONDS
        return self._keys

    def _current_stamp(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - runs for every request, and Path.stat takes twice as long
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> _KeyFileData:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_KeyFileData)
        except FileNotFoundError:
            return _KeyFileData()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(f"{self.path} is not a key file: {error}", where=str(self.path)) from error

    # Writing

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        tenant: str | None,
        user: str | None = None,
        rate: int | None = None,
        daily_bytes: int | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[Key, str]:
        """Creates a key. Returns it with its token, which is shown once and not stored."""
        key, token = new_key(
            name, scopes, tenant=tenant, user=user, rate=rate, daily_bytes=daily_bytes, expires_at=expires_at
        )
        with self._locked() as file:
            file.keys.append(key)
        return key, token

    def revoke(self, id: str) -> Key:
        """Revokes a key by its id or name."""
        with self._locked() as file:
            ended, file.keys = revoke_in(file.keys, id, str(self.path))
        return ended

    @contextmanager
    def _locked(self) -> Iterator[_KeyFileData]:
        """Yields the content to change, under a lock between processes, and replaces the file atomically."""
        lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            self._wait_for(lock)
            file = self._read()
            yield file
            self._write(msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
            time.sleep(_FRESH_SECONDS)  # until every worker looks again
        finally:
            os.close(lock)

    def _wait_for(self, lock: int) -> None:
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > end:
                    raise Unavailable(
                        f"{self.path} is locked by another process that changes keys: try again", outcome="not_applied"
                    ) from error
                time.sleep(0.02)
            else:
                return

    def _write(self, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=self.path.name, dir=self.path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
            self._fresh_until = 0.0
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _checked(scopes: Sequence[str]) -> tuple[Scope, ...]:
    wanted = [scope for scope in SCOPES if scope in scopes]
    if not scopes or set(scopes) - set(SCOPES):
        raise ValidationError(f"the scopes are {', '.join(SCOPES)}, not {', '.join(scopes) or 'none'}")
    return tuple(wanted)
