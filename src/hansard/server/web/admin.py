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
from hansard.server.audit import AuditEntry
from hansard.server.endpoints import SCOPES, HttpResponse, Id, NoQuery
from hansard.server.keys import KeyFile
from hansard.server.web import overview
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes

routes = PageRoutes()

_TAIL_BYTES = 400_000
_LINES = 200
_MOST_PROBLEMS = 100
_decoder = msgspec.json.Decoder(AuditEntry)


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    caller: str | None = None
    action: str | None = None


class NewKeyForm(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    scopes: list[str] = []
    tenant: Id | None = None
    user: Id | None = None
    operator: Literal["yes"] | None = None
    rate: Annotated[int, Meta(ge=1)] | None = None
    days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class KeyIdForm(Struct, frozen=True, forbid_unknown_fields=True):
    id: Id


class PurgeForm(Struct, frozen=True, forbid_unknown_fields=True):
    days: Annotated[int, Meta(ge=1, le=36_500)]
    sure: Literal["yes"] | None = None


class EraseForm(Struct, frozen=True, forbid_unknown_fields=True):
    user: Id
    sure: Literal["yes"] | None = None


class DeleteTenantForm(Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Id
    sure: Literal["yes"] | None = None


@routes.see("/admin", scope="admin")
async def see_admin(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """What there is to look after."""
    return await _admin(visit)


async def _admin(visit: PageRequest[Any, Any], **more: Any) -> HttpResponse:
    operator = visit.known_caller.is_operator
    checked = await overview.last_check(visit.store)
    values: dict[str, Any] = {
        "keys": _keys(visit).list() if operator and visit.parts.settings.keys is not None else None,
        "tenants": await visit.root.admin.tenants() if operator else None,
        "has_audit": operator and visit.parts.settings.audit_log is not None,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "scopes": SCOPES,
        "made": None,
        "token": None,
        "would_go": None,
        "days": None,
        "now": datetime.now(UTC),
    }
    return visit.show("admin.html", **(values | more))


def _keys(visit: PageRequest[Any, Any]) -> KeyFile:
    if visit.parts.settings.keys is None:
        raise Unsupported("this server was started without a file of keys", capability="keys")
    return KeyFile(visit.parts.settings.keys)


# Keys: an operator's affair


@routes.do("/admin/keys", scope="admin", operator=True)
async def do_make_key(visit: PageRequest[NoQuery, NewKeyForm]) -> HttpResponse:
    """Makes a key. Its secret is shown now, and never again."""
    form = visit.body
    if form.operator and (form.tenant or form.user):
        raise ValidationError("an operator's key is bound to no tenant and no user: leave both empty")
    made, token = _keys(visit).create(
        form.name,
        form.scopes,
        tenant=None if form.operator else form.tenant or DEFAULT_TENANT,
        user=form.user,
        rate=form.rate,
        expires_at=None if form.days is None else datetime.now(UTC) + timedelta(days=form.days),
    )
    return await _admin(visit, made=made, token=token)


@routes.do("/admin/keys/revoke", scope="admin", operator=True)
async def do_revoke_key(visit: PageRequest[NoQuery, KeyIdForm]) -> HttpResponse:
    """Ends a key at once, in every worker."""
    if visit.body.id == visit.known_caller.name:
        raise Denied("this is the key that you came in with: revoke it with another one")
    _keys(visit).revoke(visit.body.id)
    return visit.go("admin")


# What is kept


@routes.do("/admin/purge", scope="admin")
async def do_purge(visit: PageRequest[NoQuery, PurgeForm]) -> HttpResponse:
    """Counts what has not been touched for so many days; with a second word, deletes it."""
    days = visit.body.days
    if visit.body.sure is None:
        counted = await visit.store.purge(timedelta(days=days), dry_run=True)
        return await _admin(visit, would_go=counted, days=days)
    receipt = await visit.store.purge(timedelta(days=days))
    visit.services.totals.forget()
    return visit.show("receipt.html", receipt=receipt, what=f"what was not touched for {days} days")


@routes.do("/admin/erase", scope="admin")
async def do_erase(visit: PageRequest[NoQuery, EraseForm]) -> HttpResponse:
    """Erases a user."""
    _sure(visit.body.sure)
    receipt = await visit.store.erase_user(visit.body.user)
    visit.services.totals.forget()
    return visit.show("receipt.html", receipt=receipt, what=f"the user {visit.body.user}")


@routes.do("/admin/tenants/delete", scope="admin", operator=True)
async def do_delete_tenant(visit: PageRequest[NoQuery, DeleteTenantForm]) -> HttpResponse:
    """Deletes a tenant with everything that it holds."""
    _sure(visit.body.sure)
    receipt = await visit.root.admin.delete_tenant(visit.body.tenant)
    visit.services.totals.forget()
    return visit.show("receipt.html", receipt=receipt, what=f"the tenant {visit.body.tenant}")


def _sure(sure: str | None) -> None:
    if sure is None:
        raise ValidationError("nothing was deleted: tick the box to say that you are sure")


@routes.do("/admin/check", scope="admin")
async def do_check(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Looks at everything that the tenant holds, and remembers what it found."""
    problems = await visit.store.check()
    found = [{"where": each.where, "what": each.what} for each in problems[:_MOST_PROBLEMS]]
    if visit.store.capabilities.records and visit.store.user_id is None:
        await visit.store.records.put(overview.CHECKS, "last", {"problems": len(problems), "found": found})
    return visit.show("checked.html", problems=found, total=len(problems))


# Who did what


@routes.see("/admin/audit", scope="admin", operator=True)
async def see_audit(visit: PageRequest[AuditQuery, NoForm]) -> HttpResponse:
    """The newest lines of the audit log."""
    path = visit.parts.settings.audit_log
    if path is None:
        raise Unsupported("this server was started without --audit-log", capability="audit")
    query = visit.query
    entries = [each for each in _newest(path) if _is_wanted(each, query)]
    return visit.show("audit.html", entries=entries[:_LINES], q=query)


def _is_wanted(entry: AuditEntry, query: AuditQuery) -> bool:
    return (query.caller is None or entry.caller == query.caller) and (
        query.action is None or entry.action == query.action
    )


def _newest(path: Path) -> list[AuditEntry]:
    """The end of the log, newest first: as much as can be looked at, however long the log is."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = deque(file.read().splitlines())
    if size > _TAIL_BYTES and lines:
        lines.popleft()  # the first one is cut
    return [_entry(line) for line in reversed(lines) if line]


def _entry(line: bytes) -> AuditEntry:
    """A line of the log. One that a full disk cut off is shown as such: it must not hide the others."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return AuditEntry(EPOCH, "?", 0, code="unreadable")
