"""What an export wrote, and what its format could not represent."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from hansard.formats.dialogue import Loss


class ExportLoss(Struct):
    """Something that is stored and that the format cannot represent."""

    count: int
    example: str
    """The id of a message or a conversation."""


class ExportReport(Struct):
    format: str = ""
    conversations: int = 0
    """Conversations that were written, whole or in part."""
    messages: int = 0
    pairs: int = 0
    """Preference pairs, for that format."""
    losses: dict[str, ExportLoss] = field(default_factory=dict)

    def lose(self, what: str, example: str) -> None:
        if (loss := self.losses.get(what)) is not None:
            loss.count += 1
        else:
            self.losses[what] = ExportLoss(1, example)

    def lose_all(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            self.lose(f"{loss.what}: {loss.why}", loss.message_id)

    def wrote(self, messages: int) -> None:
        self.conversations += 1
        self.messages += messages
