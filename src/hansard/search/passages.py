"""Hits with the messages around them: as many as fit, joined where they touch, each once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec import structs

from hansard.model import Message
from hansard.search.hits import Hit, Passage

Near = Callable[[Hit, int], Awaitable[tuple[list[Message], list[Message]]]]
"""Reads up to so many messages before and after a hit; the nearest come first."""


class _Piece:
    """The part of a conversation around its hits."""

    def __init__(self, hit: Hit, before: list[Message], after: list[Message]) -> None:
        self.hits = [hit]
        self.messages = [hit.message]
        self._sides = (iter(before), iter(after))

    def grow(self, fits: Callable[[Message], bool]) -> None:
        """Adds the next message on each side that fits."""
        for side, messages in enumerate(self._sides):
            found = next(messages, None)
            if found is None:
                continue
            if not fits(found):
                self._stop(side)
                continue
            self.messages.insert(0 if side == 0 else len(self.messages), found)

    def _stop(self, side: int) -> None:
        nothing: Iterator[Message] = iter(())
        self._sides = (nothing, self._sides[1]) if side == 0 else (self._sides[0], nothing)

    @property
    def seqs(self) -> range:
        return range(self.messages[0].seq, self.messages[-1].seq + 1)


async def with_passages(
    hits: Sequence[Hit], near: Near, around: int, cap: int | None, cost: Callable[[Message], int], *, grouped: bool
) -> list[Hit]:
    """Returns the hits with their passages; those that are part of a better hit's passage, or group, are not repeated.

    The cap is what is left for the messages around the hits. They are added one by one, the best hits first.
    """
    pieces = [_Piece(hit, *(await near(hit, around) if around else ([], []))) for hit in hits]
    seen = {(hit.conversation.id, hit.message.id) for hit in hits}
    left = cap

    def fits_in(conversation: str) -> Callable[[Message], bool]:
        def fits(message: Message) -> bool:
            nonlocal left
            if (conversation, message.id) in seen:
                return True  # it is paid for already
            if left is not None:
                if cost(message) > left:
                    return False
                left -= cost(message)
            seen.add((conversation, message.id))
            return True

        return fits

    for _ in range(around):
        for piece in pieces:
            piece.grow(fits_in(piece.hits[0].conversation.id))
    return _grouped(_joined(pieces), grouped=grouped)


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Joins pieces that overlap or touch. The better one stays."""
    joined: list[_Piece] = []
    for piece in pieces:
        touching = [each for each in joined if _touch(each, piece)]
        if not touching:
            joined.append(piece)
            continue
        first, *others = touching
        for other in (piece, *others):
            _merge(first, other)
        joined = [each for each in joined if each not in others]
    return joined


def _touch(one: _Piece, other: _Piece) -> bool:
    if one.hits[0].conversation.id != other.hits[0].conversation.id:
        return False
    ids = {message.id for message in one.messages}
    return any(message.id in ids for message in other.messages) or (
        one.seqs.stop == other.seqs.start or other.seqs.stop == one.seqs.start
    )


def _merge(into: _Piece, other: _Piece) -> None:
    known = {message.id for message in into.messages}
    into.messages += [message for message in other.messages if message.id not in known]
    into.messages.sort(key=lambda message: message.seq)
    into.hits += other.hits


def _grouped(pieces: list[_Piece], *, grouped: bool) -> list[Hit]:
    groups: dict[str | int, list[_Piece]] = {}
    for nth, piece in enumerate(pieces):
        groups.setdefault(piece.hits[0].conversation.id if grouped else nth, []).append(piece)
    return [
        structs.replace(group[0].hits[0], passages=tuple(_passage(piece) for piece in group))
        for group in groups.values()
    ]


def _passage(piece: _Piece) -> Passage:
    return Passage(tuple(piece.messages), tuple(hit.message.id for hit in piece.hits))
