"""The names of all keys, of the characters `a-z 0-9 / - .`: ids are hashed, or hex where their order matters."""

from __future__ import annotations

from datetime import datetime

from hansard import codec, cursors
from hansard.contract.types import ConversationQuery
from hansard.model import Conversation, ConversationSort, to_micros

TENANTS = "tenants/"
_SORTS: tuple[ConversationSort, ...] = ("last_message_at", "updated_at")
_FAR = 10**18
"""Microseconds farther from 1970 than any time."""
_TURNED = str.maketrans("0123456789abcdef", "fedcba9876543210")


def hashed(text: str) -> str:
    return codec.sha256_of(text.encode())[:40]


def time_key(time: datetime) -> str:
    """Returns text that sorts as the times do."""
    return f"{_FAR + to_micros(time):020}"


def newest_first(micros: int, id: str) -> str:
    """Returns text that sorts a listing from the newest entry to the oldest, and among equal times from the last id."""
    # The z ends the id: if one id is a prefix of another, the longer one comes first.
    return f"{_FAR - micros:020}/{id.encode().hex().translate(_TURNED)}z"


def place_of(key: str) -> tuple[int, str]:
    """Returns the time and id in a key of a listing."""
    time, id, _ = key.split("/")[-3:]
    return _FAR - int(time), bytes.fromhex(id.removesuffix("z").translate(_TURNED)).decode()


class KeyValueKeys:
    """The keys of one tenant."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.root = hashed(tenant)
        self.name = f"{TENANTS}{self.root}"
        self.heads = f"{self.root}/head/"
        self.marks = f"{self.root}/mark/"
        self.spaces = f"{self.root}/space/"
        self.blobs = f"{self.root}/blob/"
        self.usage = f"{self.root}/usage/"
        self.tombstones = f"{self.root}/grave/"
        self.due = f"{self.root}/due/"

    def head(self, id: str) -> str:
        return f"{self.heads}{hashed(id)}"

    def space(self, owner: str) -> str:
        """Returns the head of a user's records, or of the records outside any user's view."""
        return f"{self.spaces}{hashed(owner)}"

    def node(self, name: str) -> str:
        return f"{self.root}/node/{name}"

    def mark(self, stamp: str) -> str:
        return f"{self.marks}{stamp}"

    def blob(self, sha256: str, size: int | str) -> str:
        return f"{self.blobs}{sha256}/{size}"

    def references(self, sha256: str) -> str:
        return f"{self.root}/ref/{sha256}/"

    def authors(self, participant_id: str) -> str:
        return f"{self.root}/who/{hashed(participant_id)}/"

    def bound(self, birth: str, space: str = "", stamp: str = "") -> str:
        """Returns the keys that say which spaces hold records of a conversation, and by which of their writes."""
        return f"{self.root}/bound/{birth}/" + (f"{space.rpartition('/')[2]}/{stamp}" if space else "")

    def due_at(self, time: datetime, kind: str, what: str) -> str:
        return f"{self.due}{time_key(time)}/{kind}/{what}"

    # Listings

    def listing(self, sort: str, whose: str, owner: str = "") -> str:
        return f"{self.root}/list/{sort.partition('_')[0]}-{whose}{hashed(owner) if owner else ''}/"

    def listing_of(self, query: ConversationQuery, user: str | None) -> str:
        owner = query.user_id if query.user_id is not None else user
        if owner is not None:
            return self.listing(query.sort, "user", owner)
        if query.agent_id is not None:
            return self.listing(query.sort, "agent", query.agent_id)
        return self.listing(query.sort, "all")

    def entries(self, conversation: Conversation, stamp: str) -> list[str]:
        """Returns the keys that list a conversation. Each write that moves it creates new ones, named by its stamp."""
        found = []
        for sort in _SORTS:
            place = newest_first(to_micros(cursors.sort_time(conversation, sort)), conversation.id)
            listings = [self.listing(sort, "all")]
            if conversation.user_id is not None:
                listings.append(self.listing(sort, "user", conversation.user_id))
            if conversation.agent_id is not None:
                listings.append(self.listing(sort, "agent", conversation.agent_id))
            found += [f"{listing}{place}/{stamp}" for listing in listings]
        return found

    def expiry(self, conversation: Conversation, stamp: str) -> str:
        """Returns the key that finds an expiring conversation. A write that changes the time creates a new one."""
        assert conversation.expires_at is not None
        return self.due_at(conversation.expires_at, "conversation", f"{hashed(conversation.id)}-{stamp}")
