"""The Backend contract over HTTP, for the `http` backend: one route per method, derived from `hansard.wire`.

Not part of the public API: clients must have the same version. Authorization is the same as for every route. A backend
relies on the checks of its Store, so this module repeats them: it checks ids, sizes, hashes and numbers, and that the
context is the view of the key. Keys that are bound to a user are refused: users' views are enforced by the Store, above
the contract.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from hansard import codec, wire
from hansard.analysis import Lookup, Matches, Ranking
from hansard.contract.backend import Indexed
from hansard.contract.types import Append, Context, Draft, Image, MessageChange, Replace, Restore
from hansard.errors import Denied, ValidationError
from hansard.limits import Limits
from hansard.model import ROLES
from hansard.search import scan
from hansard.server.endpoints import NDJSON, HttpResponse, NoQuery, Routes
from hansard.server.request import Request
from hansard.store import Store, checks, search_modes

routes = Routes()

_LONGEST_WAIT = 20.0
_MOST = 1 << 62
_WORKER = secrets.randbits(20) << 40
"""Identifies this process in the counters of `wait`: a counter of another worker has no meaning here."""


def _handler(method: wire.Method) -> Callable[[Request[NoQuery, Any]], Awaitable[HttpResponse]]:
    async def handle(request: Request[NoQuery, Any]) -> HttpResponse:
        arguments = [wire.unpack(value) for value in structs.astuple(request.body)]
        _guard(request, arguments)
        for name, value in zip(request.body.__struct_fields__, arguments, strict=True):
            _check(value, request.root.limits, name)
        if method.name == "put_blob":
            _check_blobs({arguments[1]: arguments[2]})
        found = await _ask(request.root, method.name, arguments)
        return HttpResponse(msgspec.json.encode(wire.pack(found)))

    handle.__name__ = f"backend_{method.name}"
    handle.__doc__ = f"`Backend.{method.name}`."
    return handle


def _guard(request: Request[NoQuery, Any], arguments: list[Any]) -> None:
    """Refuses calls whose context is not the view of the key."""
    if request.known_caller.user is not None:
        raise _bound_to_user()
    context = arguments[0] if arguments else None
    if not isinstance(context, Context):
        # `stats` has an optional tenant, `list_tenants` has no argument.
        _guard_tenant(request, context)
    elif (context.tenant, context.user) != (request.store.tenant_id, request.store.user_id):
        raise Denied("the call is for another tenant or user than its headers")
    elif context.with_expired and "admin" not in request.known_caller.scopes:
        raise Denied("with_expired is for erasure, which needs the scope admin")


def _bound_to_user() -> Denied:
    return Denied("a key that is bound to a user cannot use the backend routes")


def _guard_tenant(request: Request[NoQuery, Any], tenant: str | None) -> None:
    if tenant is None and not request.known_caller.is_operator:
        raise Denied("access to all tenants needs an operator's key")
    if tenant is not None and tenant != request.store.tenant_id:
        raise Denied("the call is for another tenant than its header")


async def _ask(root: Store, name: str, arguments: list[Any]) -> Any:
    if name == "wait":
        return await _wait(root, *arguments)
    if name in ("search", "rank"):
        return await _search(root, name, *arguments)
    return await getattr(root.backend, name)(*arguments)


async def _search(root: Store, name: str, context: Context, lookup: Lookup) -> Matches | Ranking:
    """Searches the index or, if there is none, scans the messages here, close to the storage."""
    if lookup.limit < 1 or (lookup.branch is not None and (lookup.conversation_id is None or lookup.all_branches)):
        raise ValidationError("a search needs a limit, and a branch needs its conversation")
    is_ranked = name == "rank"
    if not lookup.query:
        return Ranking([]) if is_ranked else Matches([])
    search_modes.check_size(lookup.query.text, root.limits)
    if search_modes.has_index(root.capabilities, lookup):
        index = cast(Indexed, root.backend)
        return await (index.rank if is_ranked else index.search)(context, lookup)
    return await (scan.rank if is_ranked else scan.find)(root.backend, context, lookup)


async def _wait(root: Store, context: Context, id: str, seen: int, timeout: float) -> int:
    known = seen - _WORKER if seen & ~((1 << 40) - 1) == _WORKER else 0
    return _WORKER + await root.backend.wait(context, id, known, min(max(timeout, 0.0), _LONGEST_WAIT))


@routes.post("/backend/check", scope="admin", produces=NDJSON, is_public=False)
async def backend_check(request: Request[NoQuery, wire.CheckCall]) -> HttpResponse:
    """`Backend.check`, as JSON Lines."""
    _guard(request, [request.body.tenant])
    return HttpResponse(_found(request.root, request.body.tenant), media_type=NDJSON)


async def _found(root: Store, tenant: str | None) -> AsyncIterator[bytes]:
    async for found in root.backend.check(tenant):
        yield msgspec.json.encode(found) + b"\n"


@routes.post("/backend/catch_up", produces=NDJSON, is_public=False)
async def backend_catch_up(request: Request[NoQuery, wire.IndexCall]) -> HttpResponse:
    """`Backend.catch_up`; sends one line when it is done. It reveals nothing of what it indexes."""
    if request.known_caller.user is not None:
        raise _bound_to_user()
    return HttpResponse(_caught_up(request.root), media_type=NDJSON)


async def _caught_up(root: Store) -> AsyncIterator[bytes]:
    if root.capabilities.search == "index":
        await cast(Indexed, root.backend).catch_up()
    yield b"0\n"


@routes.post("/backend/reindex", scope="admin", operator=True, produces=NDJSON, is_public=False)
async def backend_reindex(request: Request[NoQuery, wire.IndexCall]) -> HttpResponse:
    """`Backend.reindex`, as JSON Lines."""
    return HttpResponse(_reindexed(request.root), media_type=NDJSON)


async def _reindexed(root: Store) -> AsyncIterator[bytes]:
    async for done in root.admin.reindex():
        yield b"%d\n" % done


# Checks that the Store would have done


def _check(value: Any, limits: Limits, name: str) -> None:
    if isinstance(value, Draft):
        _check_draft(value, limits)
    elif isinstance(value, Context):
        _check_context(value, limits)
    elif isinstance(value, Struct):
        _check_whole(value)
        for field in value.__struct_fields__:
            if field not in _ANYTHING:
                _check(getattr(value, field), limits, field)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, limits, name)
    elif isinstance(value, int):
        if not (0 if name in _COUNTS else -_MOST) <= value <= _MOST:
            raise ValidationError(f"{name} is out of range")
    elif isinstance(value, str) and name in _IDS:
        checks.id_of(value, name, limits)


_ANYTHING = frozenset({"value", "metadata", "content"})
"""User data: any JSON, including integers of any size."""
_COUNTS = frozenset({"limit", "offset", "max_bytes", "max_messages"})
_IDS = frozenset({"id", "tenant", "user", "user_id", "agent_id", "conversation_id", "branch", "key"})


def _check_whole(value: Struct) -> None:
    """Checks the fields of a value against each other."""
    if isinstance(value, Append | Replace | MessageChange | Restore):
        _check_blobs(value.blobs)
    if isinstance(value, Append) and not value.drafts:
        raise ValidationError("an append without messages")
    if isinstance(value, Image):
        _check_image(value)


def _check_context(context: Context, limits: Limits) -> None:
    for field in ("tenant", "user"):
        _check(getattr(context, field), limits, field)
    # Storages add days to it and subtract days from it.
    if not 1900 < context.now.year < 9000:
        raise ValidationError("the time of the call is out of range")


def _check_image(image: Image) -> None:
    """Refuses an inconsistent conversation, which later reads would report as damaged."""
    branches, head = image.branches, image.conversation
    numbers = [
        image.seq,
        head.version,
        head.message_count,
        *(each for branch in branches for each in (branch.segment, branch.count)),
    ]
    numbers += [each for branch in branches for step in branch.path for each in step]
    names, lines = {branch.id for branch in branches}, {branch.segment for branch in branches}
    if head.branch not in names or not len(branches) == len(names) == len(lines) or min(numbers) < 0:
        raise ValidationError("the branches of the conversation are inconsistent")


def _check_draft(draft: Draft, limits: Limits) -> None:
    if draft.message.role not in ROLES:
        raise ValidationError(f"unknown role {draft.message.role!r}")
    checks.message_id(draft.message.id, limits)
    size = len(draft.body.encode())
    moved = sum(ref.size for ref in draft.message.blobs)
    if size > limits.content_bytes or not 0 <= draft.size <= max(limits.content_bytes, 2 * (size + moved)):
        raise ValidationError("the size of a message is wrong or exceeds the limit")
    # The call names the conversation, so it may be empty here.
    for field in ("seq", "branch", "usage", "blobs"):
        _check(getattr(draft.message, field), limits, field)


def _check_blobs(blobs: Mapping[str, bytes]) -> None:
    for sha256, data in blobs.items():
        if codec.sha256_of(data) != sha256:
            raise ValidationError("the hash of a blob does not match its bytes")


for _method in wire.METHODS.values():
    routes.post(
        f"/backend/{_method.name}",
        scope="admin" if _method.need == "operator" else _method.need,
        operator=_method.need == "operator",
        body=_method.arguments,
        is_batch=_method.name == "append",
        is_public=False,
    )(_handler(_method))
