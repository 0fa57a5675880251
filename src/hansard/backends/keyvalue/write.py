"""A write as data: the head that it creates, the objects put before, and the effects under other keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from hansard.backends.keyvalue.functions import Token
from hansard.backends.keyvalue.keys import KeyValueKeys
from hansard.backends.keyvalue.rows import Anchor, MessageRow
from hansard.backends.keyvalue.tree import Root
from hansard.backends.shared import documents
from hansard.backends.shared.settling import WriteMark
from hansard.model import UsageRow


class Bound(Struct, frozen=True):
    """Records of a space that belong to a conversation, which must still exist."""

    space: str
    head: str
    birth: str


class Effects(Struct, omit_defaults=True):
    """The effects of a write under other keys."""

    put: dict[str, str] = {}
    drop: list[str] = []
    usage: list[UsageRow] = []
    tombstones: list[str] = []
    wipe: Root | None = None
    """A tree that no head names any longer."""
    released: list[str] = []
    """Blobs that may be deleted."""
    unbound: str = ""
    """The birth of a conversation whose records are deleted."""
    bound: list[Bound] = []
    space: str = ""
    """The space whose pending root this write creates."""


class Intent(Struct):
    """The content of a mark."""

    head: str
    n: int
    stamp: str
    birth: str
    at: datetime
    made: list[str]
    blobs: list[str]
    effects: Effects
    deadline: int = 0


Effect = tuple[KeyValueKeys, Intent]


class KeyValueWrite(Struct):
    """A decided write: a new head in place of the one with this token, and everything that belongs to it."""

    keys: KeyValueKeys
    head: str
    token: Token | None
    anchor: Anchor
    at: datetime
    follows: Effects
    objects: dict[str, bytes] = {}
    """The objects to put before the swap, under keys that no other write creates."""
    names_tenant: bool = False
    """The tenant may have held nothing before."""
    blobs: dict[str, bytes | None] = {}
    """Blobs to put again after the references to them; None if the bytes should be stored already."""
    space: tuple[Anchor, Token | None] | None = None
    """The head of the space in `follows.space`, with a pending root."""
    new_token: Token | None = None

    @property
    def tenant(self) -> str:
        return self.keys.tenant

    @property
    def mark(self) -> WriteMark:
        anchor = self.anchor
        made = list(self.objects)
        intent = Intent(self.head, anchor.n, anchor.stamp, anchor.birth, self.at, made, list(self.blobs), self.follows)
        return WriteMark(self.head, anchor.n, anchor.n - 1, carried=intent)

    @property
    def effects(self) -> Sequence[Effect]:
        return [(self.keys, self.mark.carried)]

    @property
    def is_plain(self) -> bool:
        return not self.objects and not self.names_tenant and self.follows == Effects()


def objects_of_message(keys: KeyValueKeys, id: str, row: MessageRow) -> dict[str, bytes]:
    """Returns the objects that a message has under keys of its own, in addition to its row in the tree."""
    name = f"{row.stamp}-{row.seq}"
    found = {f"{keys.references(sha256)}{name}": b"" for sha256 in sorted({ref.sha256 for ref in row.blobs})}
    if row.participant is not None and row.participant.kind == "user":
        found[f"{keys.authors(row.participant.id)}{name}"] = documents.encode([id, row.id])
    return found
