"""What a target cannot hold exactly, cut to what it can, and said.

Branches become the active one alone, blobs go back into the content. Ids and times that a storage gives itself are not
differences: the comparison looks past them, and notes which id became which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from hansard import codec, rules
from hansard.contract.backend import Capabilities
from hansard.contract.types import Image, Lane, Row
from hansard.model import MAIN, Message
from hansard.transfer.numbering import Numbered, Numbers, as_numbered


class Fit(Struct, frozen=True):
    """How one conversation goes into a target."""

    image: Image
    """As the target shall hold it."""
    numbers: Numbers
    """From the rows' numbers to the image's."""
    alone: Lane | None = None
    """The only branch that goes in, as the source has it."""
    inline: bool = False
    losses: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        return self.alone is None and not self.inline

    def rows(self, rows: Sequence[Row], numbers: Numbers, blobs: Mapping[str, bytes]) -> Iterator[Row]:
        """What goes in, with our numbers."""
        for row in rows:
            line, message = numbers[row.line], row.message
            if self.alone is not None:
                if not rules.sees(self.alone, line, message.seq):
                    continue
                line, message = 1, structs.replace(message, branch=MAIN)
            if self.inline and message.blobs:
                content = codec.restore(message.content, message.blobs, blobs)
                message = structs.replace(message, content=content, blobs=())
            yield Row(line, message)


def fit(given: Numbered, capabilities: Capabilities) -> Fit:
    image = given.image
    inline = not capabilities.blobs
    if capabilities.branches or len(image.lanes) == 1:
        return Fit(image, as_numbered(image).numbers if inline else given.numbers, inline=inline)
    conversation = image.conversation
    active = next(lane for lane in image.lanes if lane.id == conversation.branch)
    lane = Lane(MAIN, 1, count=active.count, created_at=conversation.created_at)
    cut = structs.replace(conversation, branch=MAIN, message_count=active.count)
    gone = [other.id for other in image.lanes if other.id != active.id]
    loss = f"only the active branch {active.id!r} was kept, without {', '.join(map(repr, gone))}"
    return Fit(Image(cut, image.seq, (lane,)), {1: 1}, active, inline, (loss,))


def as_given(theirs: Message, given: Message, capabilities: Capabilities) -> Message:
    """What the target gave back, with the ids and times that it may choose set aside."""
    changes: dict[str, Any] = {}
    if capabilities.own_ids:
        changes["id"] = given.id
    if capabilities.own_times:
        changes |= {"created_at": given.created_at, "updated_at": given.updated_at}
    return structs.replace(theirs, **changes) if changes else theirs
