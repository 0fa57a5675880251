"""Shares: read-only snapshots of a branch, under a token that cannot be guessed.

A share names its messages and the hash of each; a redacted one also holds their redacted form. It shows a message only
while that is stored with the same content: nothing deleted, and nothing written later. Two records belong to the
conversation, and end with it or when the share expires:

- `("hansard", "shares", conversation id)`, share id: the share.
- `("hansard", "share tokens")`, hash of the token: where the share is.

A token names its tenant, unless that is the default one, so that a token is looked up in one place: anybody may try
one, and to list the tenants for each would cost as much as the store is large.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, convert, structs, to_builtins

from hansard import codec, ids, rules
from hansard.contract.backend import Backend
from hansard.contract.types import Context, MessageQuery, RecordQuery, RecordWrite
from hansard.errors import Conflict, NotFound, ValidationError
from hansard.limits import Limits
from hansard.model import DEFAULT_TENANT, Message, Participant, Record, Share, SharedConversation
from hansard.store import checks, marks, read_query
from hansard.store.core import StorePart, outcome_unknown_on_failure

SHARES = ("hansard", "shares")
TOKENS = ("hansard", "share tokens")
_MOST = 1000
_SECRET_BYTES = 24
_TENANT_SIGN = "~"
"""What is before the tenant in a token."""


class _Entry(Struct, frozen=True, array_like=True):
    """A message of a share."""

    id: str
    digest: str
    redacted: dict[str, Any] | None = None


class _Stored(Struct, frozen=True):
    share: Share
    token_hash: str
    title: str | None
    entries: list[_Entry]


class ShareMethods(StorePart):
    async def share(
        self,
        conversation_id: str | int,
        *,
        branch: str | None = None,
        expires_at: datetime | timedelta | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> Share:
        """Makes a snapshot that anybody with the token may read, and returns it with the `token`.

        - `conversation_id`: which conversation; `Denied` through the view of a user who does not own it.
        - `branch`: which branch; None for the active one. Its newest 1,000 messages are shared, without
          instructions: messages of the roles `system` and `developer`, and hidden ones.
        - `expires_at`: a time or an age after which the share ends; None for never.
        - `redact`: a function that every text passes through. Pictures and native content are then left out.
        """
        self._require_records()
        context = self._view.context()
        conversation = await self._owned(context, conversation_id)
        name = conversation.branch if branch is None else checks.id_of(branch, "branch", self.limits)
        query = MessageQuery(branch=name, newest_first=True, limit=_MOST)
        messages = (await self._backend.get_messages(context, conversation.id, query)).messages[::-1]
        messages = [message for message in messages if _is_shown(message)]
        redaction = _redaction(checks.function(redact, "redact"))
        token = secrets.token_urlsafe(_SECRET_BYTES) + _tenant_sign(self._view.tenant)
        share = Share(
            id=ids.new_id("share_"),
            conversation_id=conversation.id,
            branch=name,
            version=conversation.version,
            message_count=len(messages),
            created_at=context.now,
            expires_at=checks.deadline(expires_at, context.now, "expires_at"),
            redacted=redaction is not None,
        )
        entries = [_entry(message, redaction) for message in messages]
        title = conversation.title if redaction is None else redaction.conversation(conversation).title
        await self._store(context, _Stored(share, codec.digest(token), title, entries))
        if redaction is not None:
            # A removal looks at the shares after it: it may have done so before this one was stored.
            with outcome_unknown_on_failure():
                await forget_removed(self._backend, context, conversation.id)
        return structs.replace(share, token=token)

    async def list_shares(self, conversation_id: str | int) -> list[Share]:
        """Returns the shares of `conversation_id` that have not ended, oldest first, without their tokens."""
        self._require_records()
        context = self._view.context()
        conversation = await self._owned(context, conversation_id)
        return [each.share for each in await _shares_of(self._backend, context, conversation.id)]

    async def unshare(self, conversation_id: str | int, share_id: str) -> bool:
        """Ends a share at once; False if there was none.

        `conversation_id`, `share_id`: which share of which conversation.
        """
        self._require_records()
        context = self._view.context()
        conversation = await self._owned(context, conversation_id)
        for each in await _shares_of(self._backend, context, conversation.id):
            if each.share.id == share_id:
                writes = [RecordWrite((*SHARES, conversation.id), share_id, delete=True)]
                writes.append(RecordWrite(TOKENS, each.token_hash, delete=True))
                await self._backend.write_records(marks.shared(context), writes)
                return True
        return False

    async def open_share(self, token: str) -> SharedConversation:
        """Returns what the share of `token` shows; `NotFound` if there is none, or if it has ended."""
        given = checks.text(token, "token")
        tenant = _tenant_of(given, self.limits)
        if not marks.can_index(self._backend) or (self._view.walled and tenant != self._view.tenant):
            raise _no_share()
        context = Context(tenant, self._view.clock())
        (found,) = await self._backend.get_records(context, [(TOKENS, codec.digest(given))])
        if found is None:
            raise _no_share()
        return await self._open(context, *found.value)

    async def _open(self, context: Context, id: str, share_id: str) -> SharedConversation:
        (record,) = await self._backend.get_records(context, [((*SHARES, id), share_id)])
        if record is None:
            raise _no_share()
        stored = _decoded(record)
        found = await self._backend.find_messages(context, id, [each.id for each in stored.entries])
        there = {message.id: message for message in found if message.status != "in_progress"}
        same = [each for each in stored.entries if each.id in there and _digest(there[each.id]) == each.digest]
        if stored.share.redacted:
            shown = [convert(each.redacted, Message) for each in same]
        else:
            shown = await read_query.with_blobs(self._view, context, [there[each.id] for each in same], "inline")
        return SharedConversation(stored.title, stored.share.created_at, [_public(message) for message in shown])

    async def _owned(self, context: Context, conversation_id: str | int) -> Any:
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        conversation = await self._backend.get_conversation(context, id)
        if conversation is None:
            raise rules.not_found(id)
        rules.check_owner(conversation, context)
        return conversation

    def _require_records(self) -> None:
        self._view.require(marks.can_index(self._backend), "records", "share a conversation")

    async def _store(self, context: Context, stored: _Stored) -> None:
        share = stored.share
        place: dict[str, Any] = {"expires_at": share.expires_at, "conversation_id": share.conversation_id}
        writes = [
            RecordWrite((*SHARES, share.conversation_id), share.id, to_builtins(stored), **place),
            RecordWrite(TOKENS, stored.token_hash, [share.conversation_id, share.id], **place),
        ]
        await self._backend.write_records(marks.shared(context), writes)


def is_share(record: Record) -> bool:
    """Returns whether a record belongs to a share, which ends with its store."""
    return record.namespace[:2] in (SHARES, TOKENS)


def _tenant_sign(tenant: str) -> str:
    """Returns the end of the tokens of a tenant."""
    if tenant == DEFAULT_TENANT:
        return ""
    return _TENANT_SIGN + base64.urlsafe_b64encode(tenant.encode()).decode().rstrip("=")


def _tenant_of(token: str, limits: Limits) -> str:
    _, sign, name = token.partition(_TENANT_SIGN)
    if not sign:
        return DEFAULT_TENANT
    try:
        return checks.id_of(base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode(), "tenant", limits)
    except (ValueError, ValidationError):
        raise _no_share() from None


def _no_share() -> NotFound:
    return NotFound("there is no such share: it may have ended")


def _redaction(redact: Callable[[str], str] | None) -> Any:
    from hansard.exporters.redaction import Redaction  # imported late: it loads every format

    return None if redact is None else Redaction(redact)


def _entry(message: Message, redaction: Any) -> _Entry:
    redacted = None if redaction is None else to_builtins(_public(redaction.message(message)))
    return _Entry(message.id, _digest(message), redacted)


def _is_shown(message: Message) -> bool:
    """Returns whether a share shows a message: not instructions, which no participant has said or seen."""
    return message.role not in ("system", "developer") and not (message.metadata or {}).get("hidden")


def _digest(message: Message) -> str:
    """Returns a hash of everything that a share shows of a message."""
    blobs = [ref.sha256 for ref in message.blobs]
    return codec.sha256_of(codec.encode([message.role, message.format, message.content, blobs]).encode())


def _public(message: Message) -> Message:
    """Returns only what a share shows: who said what, and when."""
    who = message.participant
    named = Participant(who.kind, who.display_name, who.display_name) if who is not None and who.display_name else None
    return Message(
        message.role,
        message.content,
        format=message.format,
        participant=named,
        status=message.status,
        created_at=message.created_at,
    )


def _decoded(record: Record) -> _Stored:
    return convert(record.value, _Stored)


async def _shares_of(backend: Backend, context: Context, id: str) -> list[_Stored]:
    query = RecordQuery(prefix=(*SHARES, id), exact=True, limit=_MOST)
    found, _ = await backend.scan_records(marks.shared(context), query)
    return [_decoded(record) for record in found]


async def forget_removed(backend: Backend, context: Context, id: str) -> None:
    """Removes from redacted shares the messages that are no longer stored. Other shares hold no content."""
    if not marks.can_index(backend):
        return
    shared = marks.shared(context)
    found, _ = await backend.scan_records(shared, RecordQuery(prefix=(*SHARES, id), exact=True, limit=_MOST))
    for record in found:
        stored = _decoded(record)
        if stored.share.redacted and (left := await _left(backend, shared, id, stored.entries)) is not None:
            value = to_builtins(structs.replace(stored, entries=left))
            write = RecordWrite(record.namespace, record.key, value, False, record.revision, record.expires_at, id)
            try:
                await backend.write_records(shared, [write])
            except Conflict:
                await forget_removed(backend, context, id)  # another removal was quicker
                return


async def _left(backend: Backend, context: Context, id: str, entries: Sequence[_Entry]) -> list[_Entry] | None:
    """Returns the entries whose messages are stored; None if all are."""
    there = {message.id for message in await backend.find_messages(context, id, [each.id for each in entries])}
    left = [each for each in entries if each.id in there]
    return left if len(left) < len(entries) else None
