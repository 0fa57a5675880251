"""Branches, forks and summaries."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, NotFound, QuotaExceeded, Unsupported
from hansard.model import Branch, Conversation, Receipt, Summary
from hansard.server import idempotency
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request

_ALL = "/conversations/{conversation_id}/branches"
_SUMMARIES = "/conversations/{conversation_id}/summaries"
_MISSING = (ConversationNotFound, MessageNotFound, NotFound)
routes = Routes()


class NewBranchBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The branch shares the messages of `source` up to `at`, before `before`, or all; with `empty`, none."""

    id: Id | None = None
    at: Id | None = None
    before: Id | None = None
    empty: bool = False
    source: Id | None = None
    activate: bool = True


class BranchList(Struct, frozen=True):
    items: list[Branch]


class ActiveBranchBody(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id


class NewForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    at: Id | None = None
    branch: Id | None = None
    new_id: Id | None = None
    metadata: dict[str, Any] | None = None


class BranchQuery(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id | None = None


class NewSummaryBody(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1)]
    from_seq: Annotated[int, Meta(ge=1)]
    to_seq: Annotated[int, Meta(ge=1)]
    branch: Id | None = None
    model: str | None = None
    prompt_id: str | None = None
    token_count: Annotated[int, Meta(ge=0)] | None = None


class SummaryList(Struct, frozen=True):
    items: list[Summary]


@routes.get(_ALL)
async def list_branches(request: Request[NoQuery, None]) -> BranchList:
    """The branches of a conversation, oldest first; empty if there is no such conversation."""
    return BranchList(await request.store.list_branches(request.path[0]))


@routes.post(_ALL, status=201, versioned=True, repeat="key", errors=(Conflict, Unsupported, *_MISSING))
async def create_branch(request: Request[NoQuery, NewBranchBody]) -> Branch:
    """Creates a branch, which shares its first messages without copying them, and makes it active."""
    given = structs.asdict(request.body)
    id = given.pop("id")
    if request.key is None or id is not None:
        return await request.store.branch(request.path[0], branch_id=id, expected_version=request.version, **given)
    id = idempotency.id_from(request.key, "br_", request.path[0], _body(request))
    for branch in await request.store.list_branches(request.path[0]):
        if branch.id == id:
            return branch
    return await request.store.branch(request.path[0], branch_id=id, expected_version=request.version, **given)


@routes.put("/conversations/{conversation_id}/branch", etag="version", versioned=True, errors=(Conflict, *_MISSING))
async def switch_branch(request: Request[NoQuery, ActiveBranchBody]) -> Conversation:
    """Makes another branch the active one."""
    return await request.store.switch_branch(request.path[0], request.body.branch, expected_version=request.version)


@routes.delete(_ALL + "/{branch}", versioned=True, errors=(Conflict, *_MISSING))
async def delete_branch(request: Request[NoQuery, None]) -> Receipt:
    """Deletes a branch and the messages that only it contains. 409 if it is active or other branches start from it."""
    return await request.store.delete_branch(*request.path, expected_version=request.version)


@routes.post(
    "/conversations/{conversation_id}/fork",
    status=201,
    etag="version",
    repeat="key",
    errors=(Conflict, QuotaExceeded, *_MISSING),
)
async def fork_conversation(request: Request[NoQuery, NewForkBody]) -> Conversation:
    """Copies a branch, up to and including the message `at`, to a new, independent conversation."""
    given = structs.asdict(request.body)
    if request.key is not None and given["new_id"] is None:
        new_id = idempotency.id_from(request.key, "conv_", request.path[0], _body(request))
        made = await request.store.get_conversation(new_id)
        if made is not None:
            return made
        given["new_id"] = new_id
    return await request.store.fork(request.path[0], **given)


def _body(request: Request[Any, Any]) -> str:
    """Returns the body as text, so that the same key with another body does not return the first result."""
    return msgspec.json.encode(request.body).decode()


@routes.get(_SUMMARIES)
async def list_summaries(request: Request[BranchQuery, None]) -> SummaryList:
    """Summaries, oldest first, of one branch or of all."""
    return SummaryList(await request.store.list_summaries(request.path[0], branch=request.query.branch))


@routes.post(_SUMMARIES, status=201, repeat="no", errors=_MISSING)
async def add_summary(request: Request[NoQuery, NewSummaryBody]) -> Summary:
    """Stores a summary of the messages from `from_seq` to `to_seq`. The messages stay."""
    given = structs.asdict(request.body)
    return await request.store.add_summary(request.path[0], given.pop("text"), **given)
