"""For those who look after a store: keys, tenants, retention, erasure, the check, the audit log."""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hansard.errors import Denied, Unsupported, ValidationError
from hansard.model import DEFAULT_TENANT, EPOCH
from hansard.server.audit import Entry
from hansard.server.calls import Answer, NoQuery
from hansard.server.keys import KeyFile
from hansard.server.scopes import SCOPES
from hansard.server.web import overview
from hansard.server.web.looks import Look, NoForm, do, see

Id = Annotated[str, Meta(min_length=1, max_length=256)]
_TAIL_BYTES = 400_000
_LINES = 200
_MOST_PROBLEMS = 100
_decoder = msgspec.json.Decoder(Entry)


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    caller: str | None = None
    action: str | None = None


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    scopes: list[str] = []
    tenant: Id | None = None
    user: Id | None = None
    operator: Literal["yes"] | None = None
    rate: Annotated[int, Meta(ge=1)] | None = None
    days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    id: Id


class Purge(Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=36_500)]
    sure: Literal["yes"] | None = None


class Erase(Struct, frozen=True, forbid_unknown_fields=True):
    user: Id
    sure: Literal["yes"] | None = None


class DeleteTenant(Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Id
    sure: Literal["yes"] | None = None


async def see_admin(look: Look[NoQuery, NoForm]) -> Answer:
    """What there is to look after."""
    return await _admin(look)


async def _admin(look: Look[Any, Any], **more: Any) -> Answer:
    operator = look.caller.is_operator
    checked = await overview.last_check(look.store)
    values: dict[str, Any] = {
        "keys": _keys(look).list() if operator and look.services.settings.keys is not None else None,
        "tenants": await look.services.store.admin.tenants() if operator else None,
        "has_audit": operator and look.services.settings.audit_log is not None,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "scopes": SCOPES,
        "made": None,
        "token": None,
        "would_go": None,
        "days": None,
        "now": datetime.now(UTC),
    }
    return look.show("admin.html", **(values | more))


def _keys(look: Look[Any, Any]) -> KeyFile:
    if look.services.settings.keys is None:
        raise Unsupported("this server was started without a file of keys", capability="keys")
    return KeyFile(look.services.settings.keys)


# Keys: an operator's affair


async def do_make_key(look: Look[NoQuery, NewKey]) -> Answer:
    """Makes a key. Its secret is shown now, and never again."""
    form = look.form
    if form.operator and (form.tenant or form.user):
        raise ValidationError("an operator's key is bound to no tenant and no user: leave both empty")
    made, token = _keys(look).create(
        form.name,
        form.scopes,
        tenant=None if form.operator else form.tenant or DEFAULT_TENANT,
        user=form.user,
        rate=form.rate,
        expires_at=None if form.days is None else datetime.now(UTC) + timedelta(days=form.days),
    )
    return await _admin(look, made=made, token=token)


async def do_revoke_key(look: Look[NoQuery, Named]) -> Answer:
    """Ends a key at once, in every worker."""
    if look.form.id == look.caller.name:
        raise Denied("this is the key that you came in with: revoke it with another one")
    _keys(look).revoke(look.form.id)
    return look.go("admin")


# What is kept


async def do_purge(look: Look[NoQuery, Purge]) -> Answer:
    """Counts what has not been touched for so many days; with a second word, deletes it."""
    days = look.form.days
    if look.form.sure is None:
        counted = await look.store.purge(timedelta(days=days), dry_run=True)
        return await _admin(look, would_go=counted, days=days)
    receipt = await look.store.purge(timedelta(days=days))
    look.services.books.forget()
    return look.show("receipt.html", receipt=receipt, what=f"what was not touched for {days} days")


async def do_erase(look: Look[NoQuery, Erase]) -> Answer:
    """Erases a user."""
    _sure(look.form.sure)
    receipt = await look.store.erase_user(look.form.user)
    look.services.books.forget()
    return look.show("receipt.html", receipt=receipt, what=f"the user {look.form.user}")


async def do_delete_tenant(look: Look[NoQuery, DeleteTenant]) -> Answer:
    """Deletes a tenant with everything that it holds."""
    _sure(look.form.sure)
    receipt = await look.services.store.admin.delete_tenant(look.form.tenant)
    look.services.books.forget()
    return look.show("receipt.html", receipt=receipt, what=f"the tenant {look.form.tenant}")


def _sure(sure: str | None) -> None:
    if sure is None:
        raise ValidationError("nothing was deleted: tick the box to say that you are sure")


async def do_check(look: Look[NoQuery, NoForm]) -> Answer:
    """Looks at everything that the tenant holds, and remembers what it found."""
    problems = await look.store.check()
    found = [{"where": each.where, "what": each.what} for each in problems[:_MOST_PROBLEMS]]
    if look.store.capabilities.records and look.store.user_id is None:
        await look.store.records.put(overview.CHECKS, "last", {"problems": len(problems), "found": found})
    return look.show("checked.html", problems=found, total=len(problems))


# Who did what


async def see_audit(look: Look[AuditQuery, NoForm]) -> Answer:
    """The newest lines of the audit log."""
    path = look.services.settings.audit_log
    if path is None:
        raise Unsupported("this server was started without --audit-log", capability="audit")
    query = look.query
    entries = [each for each in _newest(path) if _is_wanted(each, query)]
    return look.show("audit.html", entries=entries[:_LINES], q=query)


def _is_wanted(entry: Entry, query: AuditQuery) -> bool:
    return (query.caller is None or entry.caller == query.caller) and (
        query.action is None or entry.action == query.action
    )


def _newest(path: Path) -> list[Entry]:
    """The end of the log, newest first: as much as can be looked at, however long the log is."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = deque(file.read().splitlines())
    if size > _TAIL_BYTES and lines:
        lines.popleft()  # the first one is cut
    return [_entry(line) for line in reversed(lines) if line]


def _entry(line: bytes) -> Entry:
    """A line of the log. One that a full disk cut off is shown as such: it must not hide the others."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Entry(EPOCH, "?", 0, code="unreadable")


PAGES = (
    see("/admin", see_admin, scope="admin"),
    see("/admin/audit", see_audit, query=AuditQuery, scope="admin", operator=True),
    do("/admin/keys", do_make_key, NewKey, scope="admin", operator=True),
    do("/admin/keys/revoke", do_revoke_key, Named, scope="admin", operator=True),
    do("/admin/tenants/delete", do_delete_tenant, DeleteTenant, scope="admin", operator=True),
    do("/admin/purge", do_purge, Purge, scope="admin"),
    do("/admin/erase", do_erase, Erase, scope="admin"),
    do("/admin/check", do_check, scope="admin"),
)
