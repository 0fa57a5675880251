"""The limits of a store, each changeable: `connect(url, limits=Limits(messages=10_000))`."""

from __future__ import annotations

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.shown import shown

MEGABYTE = 1_000_000
MOST_TERMS = 256
"""The highest `query_terms` that can be set."""


class Limits(Struct, frozen=True, kw_only=True):
    """A call beyond a limit raises `ValidationError` or `QuotaExceeded`, which name it, and writes nothing."""

    id_bytes: int = 256
    content_bytes: int = 50 * MEGABYTE
    messages: int = 1_000_000
    """Messages of a conversation, over all its branches."""
    page: int = 100
    page_bytes: int = 32 * MEGABYTE
    blob_bytes: int = 4096
    """Base64 text of at least this length is moved from a message into a blob. 0 moves nothing."""
    depth: int = 200
    """How deeply content may nest."""
    query_terms: int = 64
    """Words and phrases of a search; 256 at most."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value, least = getattr(self, name), 0 if name == "blob_bytes" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValidationError(f"Limits.{name} is {shown(value)}: it must be a whole number of at least {least}")
        if self.query_terms > MOST_TERMS:
            raise ValidationError(f"Limits.query_terms is {self.query_terms}: it must be at most {MOST_TERMS}")

    @classmethod
    def makers(cls) -> Limits:
        """The limits of EdgeOne Makers' store: 10,000 messages in a conversation."""
        return cls(messages=10_000)
