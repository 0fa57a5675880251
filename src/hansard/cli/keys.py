"""`keys`: who may use a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from msgspec import structs

from hansard.cli import output
from hansard.cli.session import Given, Session
from hansard.errors import ValidationError
from hansard.model import DEFAULT_TENANT
from hansard.server.keys import Key, KeyFile, default_path


def keys(
    action: Annotated[
        Literal["list", "create", "revoke"], Parameter(name="ACTION", help="list, create or revoke.")
    ] = "list",
    name: Annotated[
        str | None, Parameter(name="NAME", help="What the new key is for; or the id or name of the one to revoke.")
    ] = None,
    /,
    *,
    scopes: Annotated[str, Parameter(help="What it may: read, write, admin, with commas between.")] = "read,write",
    operator: Annotated[
        bool, Parameter(negative="", help="Bound to no tenant: it opens all of them, and the routes under /admin.")
    ] = False,
    rate: Annotated[int | None, Parameter(help="Requests a minute.")] = None,
    daily_bytes: Annotated[int | None, Parameter(help="Bytes that it may send a day.")] = None,
    days: Annotated[float | None, Parameter(help="How long it is valid. Without it: until it is revoked.")] = None,
    file: Annotated[
        Path | None,
        Parameter(name=("--keys", "--file"), help="The file of keys: $HANSARD_KEYS, else hansard-keys.json."),
    ] = None,
    session: Given,
) -> None:
    """Make, list and revoke the keys of a server.

    A key is bound to the tenant and the user that --tenant and --user name. Its secret is shown once, and kept nowhere.
    """
    found = KeyFile(file or default_path())
    if action == "list":
        _list(found, session)
    elif name is None:
        raise ValidationError(f"keys {action} needs a NAME")
    elif action == "revoke":
        ended = found.revoke(name)
        output.emit(_shown(ended)) if session.json else output.note(f"Revoked {ended.id} ({ended.name}).")
    else:
        wanted = [word.strip() for word in scopes.split(",")]
        _create(found, name, wanted, session, operator=operator, rate=rate, daily_bytes=daily_bytes, days=days)


def _list(found: KeyFile, session: Session) -> None:
    listed = [_shown(key) for key in found.list()]
    if session.json:
        output.emit({"items": listed})
        return
    columns = ("id", "name", "scopes", "tenant", "user", "rate", "daily_bytes", "expires_at", "revoked_at")
    rows = [[", ".join(key[name]) if name == "scopes" else key[name] for name in columns] for key in listed]
    output.table(columns, rows, numbers=("rate", "daily_bytes"))


def _create(
    found: KeyFile,
    name: str,
    scopes: list[str],
    session: Session,
    *,
    operator: bool,
    rate: int | None,
    daily_bytes: int | None,
    days: float | None,
) -> None:
    if operator and (session.tenant is not None or session.user is not None):
        raise ValidationError("an operator's key is bound to no tenant and no user: leave --tenant and --user out")
    for limit, what in ((rate, "--rate"), (daily_bytes, "--daily-bytes"), (days, "--days")):
        if limit is not None and limit <= 0:
            raise ValidationError(f"{what} is {limit}: it must be more than 0")
    key, token = found.create(
        name,
        scopes,
        tenant=None if operator else session.tenant or DEFAULT_TENANT,
        user=session.user,
        rate=rate,
        daily_bytes=daily_bytes,
        expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
    )
    if session.json:
        output.emit({"key": token, **_shown(key)})
        return
    output.say(token)
    output.note(f"This is the only time that the key {key.id} is shown. It may {', '.join(key.scopes)}.")


def _shown(key: Key) -> dict[str, Any]:
    """Everything but the hash."""
    shown = structs.asdict(key)
    del shown["sha256"]
    return shown
