"""Administration pages: keys, tenants, retention, erasure, check, audit log."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hansard.errors import Denied, Unsupported, ValidationError
from hansard.executor import run_in_thread
from hansard.model import DEFAULT_TENANT, EPOCH
from hansard.server.audit import AuditEntry
from hansard.server.endpoints import SCOPES, HttpResponse, Id, NoQuery
from hansard.server.key_file import KeyFile
from hansard.server.store_keys import StoreKeys
from hansard.server.web import overview
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.server.web.words import say

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


@routes.page("/admin", scope="admin")
async def see_admin(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The administration page."""
    return await _admin(request)


async def _admin(request: PageRequest[Any, Any], **more: Any) -> HttpResponse:
    operator = request.known_caller.is_operator
    checked = await overview.last_check(request.store)
    values: dict[str, Any] = {
        "keys": _keys(request).list() if operator and request.context.auth.keys is not None else None,
        "tenants": await request.root.admin.tenants() if operator else None,
        "has_audit": operator and request.context.settings.audit_log is not None,
        "checked": checked.value if checked is not None else None,
        "checked_at": checked.updated_at if checked is not None else None,
        "scopes": SCOPES,
        "is_first_key": not request.context.auth.needs_key,
        "made": None,
        "token": None,
        "would_go": None,
        "days": None,
        "now": datetime.now(UTC),
    }
    return request.render("admin.html", **(values | more))


def _keys(request: PageRequest[Any, Any]) -> KeyFile | StoreKeys:
    if (keys := request.context.auth.keys) is None:
        raise Unsupported("this server was started without keys", capability="keys")
    return keys


async def _change_keys(change: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Changes keys of the store, or of the file in a thread: another process may have locked that."""
    if iscoroutinefunction(change):
        return await change(*args, **options)
    return await run_in_thread(partial(change, *args, **options))


# Keys, for operators only


@routes.form("/admin/keys", scope="admin", operator=True)
async def do_make_key(request: PageRequest[NoQuery, NewKeyForm]) -> HttpResponse:
    """Creates a key. Its secret is shown once."""
    form = request.body
    if form.operator and (form.tenant or form.user):
        raise ValidationError("an operator's key is bound to no tenant and no user: leave both empty")
    if not request.context.auth.needs_key and not (form.operator and "admin" in form.scopes):
        raise ValidationError(
            "the first key must be an operator's key with the scope admin: with any other you would lock yourself out"
        )
    made, token = await _change_keys(
        _keys(request).create,
        form.name,
        form.scopes,
        tenant=None if form.operator else form.tenant or DEFAULT_TENANT,
        user=form.user,
        rate=form.rate,
        expires_at=None if form.days is None else datetime.now(UTC) + timedelta(days=form.days),
    )
    return await _admin(request, made=made, token=token)


@routes.form("/admin/keys/revoke", scope="admin", operator=True)
async def do_revoke_key(request: PageRequest[NoQuery, KeyIdForm]) -> HttpResponse:
    """Revokes a key immediately, in every worker."""
    if request.body.id == request.known_caller.name:
        raise Denied("you are signed in with this key: use another key to revoke it")
    await _change_keys(_keys(request).revoke, request.body.id)
    return request.redirect("admin")


# Retention


@routes.form("/admin/purge", scope="admin")
async def do_purge(request: PageRequest[NoQuery, PurgeForm]) -> HttpResponse:
    """Counts conversations without messages for `days` days; with a confirmation, deletes them."""
    days = request.body.days
    if request.body.sure is None:
        counted = await request.store.purge(timedelta(days=days), dry_run=True)
        return await _admin(request, would_go=counted, days=days)
    receipt = await request.store.purge(timedelta(days=days))
    request.services.forget()
    return request.render("receipt.html", receipt=receipt, what=say("What was not touched for {days} days", days=days))


@routes.form("/admin/erase", scope="admin")
async def do_erase(request: PageRequest[NoQuery, EraseForm]) -> HttpResponse:
    """Erases a user."""
    _require_confirmation(request.body.sure)
    receipt = await request.store.erase_user(request.body.user)
    request.services.forget()
    return request.render("receipt.html", receipt=receipt, what=say("The user {name}", name=request.body.user))


@routes.form("/admin/tenants/delete", scope="admin", operator=True)
async def do_delete_tenant(request: PageRequest[NoQuery, DeleteTenantForm]) -> HttpResponse:
    """Deletes a tenant and all its data."""
    _require_confirmation(request.body.sure)
    receipt = await request.root.admin.delete_tenant(request.body.tenant)
    request.services.forget()
    return request.render("receipt.html", receipt=receipt, what=say("The tenant {name}", name=request.body.tenant))


def _require_confirmation(sure: str | None) -> None:
    if sure is None:
        raise ValidationError("nothing was deleted: tick the box to confirm")


@routes.form("/admin/check", scope="admin")
async def do_check(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Checks all data of the tenant, and stores the result for the overview."""
    problems = await request.store.check()
    found = [{"where": each.where, "what": each.what} for each in problems[:_MOST_PROBLEMS]]
    if request.store.capabilities.records and request.store.user_id is None:
        await request.store.records.put(overview.CHECKS, "last", {"problems": len(problems), "found": found})
    return request.render("check_result.html", problems=found, total=len(problems))


# The audit log


@routes.page("/admin/audit", scope="admin", operator=True)
async def see_audit(request: PageRequest[AuditQuery, NoForm]) -> HttpResponse:
    """The newest lines of the audit log."""
    path = request.context.settings.audit_log
    if path is None:
        raise Unsupported("this server was started without --audit-log", capability="audit")
    query = request.query
    entries = [each for each in _newest(path) if _is_wanted(each, query)]
    return request.render("audit.html", entries=entries[:_LINES], q=query)


def _is_wanted(entry: AuditEntry, query: AuditQuery) -> bool:
    return (query.caller is None or entry.caller == query.caller) and (
        query.action is None or entry.action == query.action
    )


def _newest(path: Path) -> list[AuditEntry]:
    """Returns the last entries of the log, newest first. Reads a bounded part of it."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = deque(file.read().splitlines())
    if size > _TAIL_BYTES and lines:
        lines.popleft()  # it is incomplete
    return [_entry(line) for line in reversed(lines) if line]


def _entry(line: bytes) -> AuditEntry:
    """Decodes a line of the log. A line that a full disk cut off is shown as unreadable, and does not hide others."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return AuditEntry(EPOCH, "?", 0, code="unreadable")
