"""Where it is noted of which conversations a user may be a member.

A record for each, which belongs to the conversation and is written before the member is added. It may outlive the
membership: the conversation itself decides.
"""

from __future__ import annotations

from msgspec import structs

from hansard.contract.storage import RecordKey
from hansard.contract.types import Context

MEMBERSHIPS = ("hansard", "members")
MOST_MEMBERSHIPS = 1000
"""Of how many conversations a user can be a member and see them in lists."""


def membership_key(user: str, id: str) -> RecordKey:
    return (*MEMBERSHIPS, user), id


def without_user(context: Context) -> Context:
    """Returns the context that sees the conversations of all users, and the records that belong to them."""
    return structs.replace(context, user=None)
