"""The Backend contract on the wire, for the `http` backend and the server.

The methods of `contract.backend.Backend` are the protocol: their arguments and results are msgspec values, sent as
JSON, typed on both sides. Four values change on the way. A draft's content is left out, because its body has the same
as text. A record's value may be bytes, which JSON cannot distinguish from text: so JSON is sent inside a list of one,
and bytes as base64. `NOT_YET` is recognised by identity, so it is restored. And a query is sent as typed text, because
an index trusts the terms of a query, and a client could send any.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Struct, structs

from hansard import codec
from hansard.analysis import Lookup, Matches, Query, Ranking, parse_pieces, parse_query, relaxed
from hansard.contract.backend import Indexed
from hansard.contract.types import Append, Draft, MessageChange, RecordWrite, Replace, Restore, RestoredRow
from hansard.errors import Corrupt, ValidationError
from hansard.model import NOT_YET, Conversation, Problem, Record

B = TypeVar("B", Append, Replace)
Need = Literal["read", "write", "admin", "operator"]

_NEEDS: dict[Need, str] = {
    "read": """get_conversation list_conversations get_messages find_messages list_branches list_summaries get_records
        scan_records get_blobs read_image read_rows record_owners participations usage stats wait search rank""",
    "write": """create_conversation update_conversation delete_conversation append replace_messages update_message
        remove_messages create_branch delete_branch put_summary write_records put_blob restore""",
    "admin": "erase_user_data",
    "operator": "list_tenants delete_tenant sweep",
}


class Method(Struct, frozen=True):
    """A method of the contract, as it is sent."""

    name: str
    need: Need
    arguments: type[Struct]
    answer: Any


class TypedLookup(Struct, frozen=True, forbid_unknown_fields=True):
    """A lookup as it is sent: the query as typed, and whether any one word is sufficient, or a piece of it."""

    text: str
    any: bool
    where: Lookup
    """The other fields; its own query is empty."""
    part: bool = False


def _method(name: str, need: Need) -> Method:
    method = getattr(Indexed, name)
    hints = get_type_hints(method, localns={"Lookup": Lookup, "Matches": Matches, "Ranking": Ranking})
    answer = hints.pop("return")
    defaults = method.__defaults__ or ()
    optional = dict(zip(list(hints)[len(hints) - len(defaults) :], defaults, strict=True))
    title = "".join(word.capitalize() for word in name.split("_")) + "Call"
    kinds = {field: TypedLookup if kind is Lookup else kind for field, kind in hints.items()}
    fields = [(field, kind, optional[field]) if field in optional else (field, kind) for field, kind in kinds.items()]
    arguments = msgspec.defstruct(title, fields, frozen=True, forbid_unknown_fields=True)
    return Method(name, need, arguments, answer)


METHODS: dict[str, Method] = {name: _method(name, need) for need, names in _NEEDS.items() for name in names.split()}


class CheckCall(Struct, frozen=True, forbid_unknown_fields=True):
    """`check` answers with lines: a problem each, or how many conversations were checked."""

    tenant: str | None


CheckLine = Problem | int


class IndexCall(Struct, frozen=True, forbid_unknown_fields=True):
    """`catch_up` and `reindex` answer with lines: how many messages are done."""


# Values that change on the way


def pack(value: Any) -> Any:
    """Returns a value as it is sent."""
    change = _PACKED.get(type(value))
    return value if change is None else change(value)


def unpack(value: Any) -> Any:
    """Returns a value as it was before it was sent. `ValidationError` if it was not packed correctly."""
    change = _UNPACKED.get(type(value))
    return value if change is None else change(value)


def _lean(draft: Draft) -> Draft:
    return structs.replace(draft, message=structs.replace(draft.message, content=None), terms=None)


def _whole(draft: Draft) -> Draft:
    message = draft.message
    try:
        content = codec.content_of(draft.body, message.format, "a draft")
    except Corrupt as error:
        raise ValidationError(f"the body of message {message.id!r} is not JSON") from error
    # A message is found by its own words, whatever terms a client sends.
    return structs.replace(
        draft, message=structs.replace(message, content=content, created_at=_moment(message.created_at)), terms=None
    )


def _moment(time: datetime) -> datetime:
    return NOT_YET if time == NOT_YET else time


def _of_drafts(change: Callable[[Draft], Draft], record: Callable[[Any], Any]) -> dict[type, Callable[[Any], Any]]:
    def append(value: Append) -> Append:
        records = tuple([record(write) for write in value.records])
        return structs.replace(batch(value), records=records)

    def batch(value: B) -> B:
        return structs.replace(value, drafts=tuple([change(draft) for draft in value.drafts]))

    def update(value: MessageChange) -> MessageChange:
        return value if value.draft is None else structs.replace(value, draft=change(value.draft))

    def restore(value: Restore) -> Restore:
        rows = tuple([RestoredRow(row.segment, change(row.draft)) for row in value.rows])
        return structs.replace(value, rows=rows)

    return {Append: append, Replace: batch, MessageChange: update, Restore: restore}


def _of_records(change: Callable[[Any], Any]) -> dict[type, Callable[[Any], Any]]:
    def record(value: Record) -> Record:
        return structs.replace(value, value=change(value.value))

    def write(value: RecordWrite) -> RecordWrite:
        exact = None if value.exact is None else record(value.exact)
        return structs.replace(value, value=change(value.value), exact=exact)

    return {Record: record, RecordWrite: write}


def _of_sequences(change: Callable[[Any], Any]) -> dict[type, Callable[[Any], Any]]:
    return {
        list: lambda values: [change(value) for value in values],
        tuple: lambda values: tuple([change(value) for value in values]),
    }


def _value_to_wire(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else [value]


def _value_from_wire(sent: Any) -> Any:
    if isinstance(sent, list) and len(sent) == 1:
        return sent[0]
    try:
        return base64.b64decode(sent, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValidationError("a record's value must be sent as a list of one, or as base64") from error


def _with_given_times(conversation: Conversation) -> Conversation:
    return structs.replace(
        conversation, created_at=_moment(conversation.created_at), updated_at=_moment(conversation.updated_at)
    )


_HALF_PAIR = re.compile("[\ud800-\udfff]")


def _typed(lookup: Lookup) -> TypedLookup:
    """A lone surrogate only separates words and JSON cannot encode it, so another separator replaces it."""
    text = _HALF_PAIR.sub(".", lookup.query.text)
    is_part = lookup.query.in_pieces
    typed = parse_pieces(text) if is_part else parse_query(text)
    is_any = _terms(lookup.query) != _terms(typed)
    if is_any and _terms(lookup.query) != _terms(relaxed(typed)):
        raise ValidationError("the terms of the query are not those of its text")
    return TypedLookup(text, is_any, structs.replace(lookup, query=Query("")), is_part)


def _terms(query: Query) -> Query:
    return structs.replace(query, text="")


def _lookup(sought: TypedLookup) -> Lookup:
    query = parse_pieces(sought.text) if sought.part else parse_query(sought.text)
    return structs.replace(sought.where, query=relaxed(query) if sought.any else query)


_PACKED = _of_drafts(_lean, pack) | _of_records(_value_to_wire) | _of_sequences(pack) | {Lookup: _typed}
_UNPACKED = (
    _of_drafts(_whole, unpack)
    | _of_records(_value_from_wire)
    | _of_sequences(unpack)
    | {Conversation: _with_given_times, TypedLookup: _lookup}
)
