"""Names of the items that we add at an API, so that they can be recognised.

A name says which message it belongs to, which part of it, and of how many: so one listing shows which items exist,
which are missing, and which are others'. It is derived from the message alone: an item that is added again has the same
name.
"""

from __future__ import annotations

import re

from msgspec import Struct

from hansard import codec
from hansard.contract.types import Context
from hansard.model import Message

_NAME = re.compile(r"([0-9a-f]{10})([0-9a-f]{20})([0-9a-f]{4})([0-9a-f]{4})")
_LENGTH = 38


class Name(Struct, frozen=True):
    seq: int
    stem: str
    number: int
    count: int

    @property
    def of(self) -> tuple[int, str]:
        """The fields that all parts of a message share."""
        return self.seq, self.stem


def stem_of(context: Context, id: str, message: Message, generation: int) -> str:
    """An API may refuse a deleted id: neither a seq nor a generation is used twice."""
    return codec.digest(context.tenant, id, message.id, str(message.seq), str(generation))[:20]


def write(name: Name, mark: str) -> str:
    return f"{name.seq:010x}{name.stem}{name.number:04x}{name.count:04x}{mark}"


def read(text: str, mark: str) -> Name | None:
    """Returns None for names of other clients."""
    if not text.endswith(mark):
        return None
    found = _NAME.fullmatch(text[: -len(mark)][-_LENGTH:])
    if found is None:
        return None
    return Name(int(found[1], 16), found[2], int(found[3], 16), int(found[4], 16))
