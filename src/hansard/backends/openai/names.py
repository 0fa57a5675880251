"""How what we add at an API is named, so that it can be known again.

A name says which message it stands for, which part of it, and of how many: so one look at the API tells what is there,
what is missing, and what is somebody else's. It is made from the message alone: what is added again has the same name.
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
        """What all parts of a message have in common."""
        return self.seq, self.stem


def stem_of(context: Context, id: str, message: Message, generation: int) -> str:
    """An API may not take a deleted id again: a seq never comes again, and a generation neither."""
    return codec.digest(context.tenant, id, message.id, str(message.seq), str(generation))[:20]


def write(name: Name, mark: str) -> str:
    return f"{name.seq:010x}{name.stem}{name.number:04x}{name.count:04x}{mark}"


def read(text: str, mark: str) -> Name | None:
    """None for what others have named."""
    if not text.endswith(mark):
        return None
    found = _NAME.fullmatch(text[: -len(mark)][-_LENGTH:])
    if found is None:
        return None
    return Name(int(found[1], 16), found[2], int(found[3], 16), int(found[4], 16))
