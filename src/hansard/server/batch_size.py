"""How many messages a request may hold. They are counted before any of them is made: a batch of hundreds of thousands
would hold up every other request while it is decoded, stored and answered."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from hansard.errors import QuotaExceeded
from hansard.server.problems import Refused

_SHORTEST = 20
"""Bytes of a message, at least: `{"role":"user","content":0}` has more."""


class _Drafts(Struct, frozen=True):
    drafts: list[Raw] = []


class _Batch(Struct):
    """A body with messages, of the API or of the `http` backend; none of them is looked at."""

    messages: list[Raw] = []
    append: _Drafts = _Drafts()


_decode = msgspec.json.Decoder(_Batch).decode


def check(raw: bytes, most: int) -> None:
    """Refuses a body with more messages than that. What is no batch is for the decoder to refuse."""
    if len(raw) <= most * _SHORTEST:
        return
    try:
        batch = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    count = len(batch.messages) or len(batch.append.drafts)
    if count > most:
        said = f"{count:,} messages in one request; the limit is {most:,}: send several requests, or lines to …/lines"
        raise Refused(413, QuotaExceeded(said, limit=most, value=count))
