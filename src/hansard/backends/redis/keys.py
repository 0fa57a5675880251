"""The names of all keys; no other module makes them.

The part between braces is a *place*: Redis Cluster stores all keys with the same place in one hash slot, and so on one
node, where a script may change them together. A conversation is a place of its own. So are each list of conversations,
each user's records, a tenant's usage, and each of a tenant's buckets of blobs. `docs/backends/redis.md` lists the keys.
"""

from __future__ import annotations

from functools import lru_cache

from hansard import codec
from hansard.model import Conversation, ConversationSort, to_micros

BUCKETS = "0123456789abcdef"
"""A tenant's blobs, spread by the first digit of their hash."""
_MARKS = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})
_SHIFT = 1 << 63


@lru_cache(8192)
def place(*parts: str) -> str:
    """Joins the parts of a place between braces, escaped so that no part can end it or look like another place."""
    return "{" + ":".join(part.translate(_MARKS) for part in parts) + "}"


class RedisKeys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.format = f"{prefix}:format"
        # Data that concerns all tenants is stored in one place. It cannot collide with a tenant's place: a place of one
        # part is a tenant's own, and no tenant's name is empty.
        self.all = f"{prefix}:{{:}}"
        self.tenants = f"{self.all}:tenants"
        self.expiring = f"{self.all}:expiring"
        self.expiring_records = f"{self.all}:expiring-records"
        self.deleted = f"{self.all}:deleted"
        self.index = f"{prefix}:search"
        """The name of the search index, which is no key."""
        self.entries = f"{prefix}:terms:{{"
        """What the keys of its hashes begin with."""

    def of(self, *parts: str) -> str:
        return f"{self.prefix}:{place(*parts)}"

    def conversation(self, tenant: str, id: str) -> str:
        """Returns the root of a conversation's keys: `head`, `ids`, `messages:<segment>`, …"""
        return f"{self.prefix}:{place(tenant, id)}"

    def tenant(self, tenant: str) -> str:
        """Returns the root of a tenant's own keys: its list of conversations, `owners`, `pending`."""
        return self.of(tenant)

    def list_root(self, tenant: str, kind: str, owner: str | None) -> str:
        """Returns the root of a list of conversations: a tenant's, a user's, an agent's."""
        return self.of(tenant) if owner is None else self.of(tenant, kind, owner)

    def index_entries(self, tenant: str, id: str) -> str:
        """Returns the root of the hashes of a conversation's messages in the search index."""
        return f"{self.prefix}:terms:{place(tenant, id)}"

    def index_state(self, tenant: str) -> str:
        """Returns the key that says whether a tenant has a search index: see `index.py`."""
        return f"{self.of(tenant)}:search"

    def unindexed(self, tenant: str) -> str:
        """Returns the key of the messages that wait for the search index."""
        return f"{self.of(tenant)}:unindexed"

    def records(self, tenant: str, owner: str) -> str:
        return self.of(tenant, "records", owner)

    def bucket(self, tenant: str, sha256: str) -> str:
        return self.of(tenant, "blobs", sha256[0])

    def usage(self, tenant: str) -> str:
        return self.of(tenant, "usage", "")

    def participant(self, tenant: str, id: str) -> str:
        """Returns the key that says which conversations may hold messages of a participant."""
        return self.of(tenant, "participant", id) + ":conversations"


def list_roots(keys: RedisKeys, tenant: str, conversation: Conversation) -> list[str]:
    """Returns the roots of the lists that contain a conversation."""
    found = [keys.list_root(tenant, "all", None)]
    if conversation.user_id is not None:
        found.append(keys.list_root(tenant, "user", conversation.user_id))
    if conversation.agent_id is not None:
        found.append(keys.list_root(tenant, "agent", conversation.agent_id))
    return found


def sortable(micros: int) -> bytes:
    """Returns eight bytes that sort as the numbers do."""
    return (micros + _SHIFT).to_bytes(8)


def list_member(micros: int, id: str) -> bytes:
    """Returns a conversation's member in a list: its time, then its id. Members of equal score sort by their bytes."""
    return sortable(micros) + id.encode()


def list_members(conversation: Conversation) -> dict[ConversationSort, bytes]:
    active = conversation.last_message_at or conversation.created_at
    return {
        "last_message_at": list_member(to_micros(active), conversation.id),
        "updated_at": list_member(to_micros(conversation.updated_at), conversation.id),
    }


def record_member(namespace: tuple[str, ...], key: str) -> bytes:
    """Returns a record's name as bytes that sort by namespace, then key."""
    return record_prefix(namespace) + b"\0" + key.encode()


def record_prefix(namespace: tuple[str, ...]) -> bytes:
    """Returns the common prefix of all records below a namespace. A byte before each element marks that more follow."""
    return b"".join(b"\1" + codec.pack_namespace((element,)) for element in namespace)


def pair_member(tenant: str, id: str) -> str:
    """Joins two names into one member of a set that covers all tenants."""
    return codec.encode([tenant, id])
