"""What a line of an export may say, whoever wrote it. Content is not looked at again: any JSON is content."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from hansard import cursors
from hansard.contract.types import Row
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import ROLES, Message
from hansard.store import checks
from hansard.transfer.lines import BlobLine, ConversationLine, RecordLine, SummaryLine, damaged

_ROLES = frozenset(ROLES)
_SHORT = 64
"""An ASCII id of this length is within any limit."""
_SEQS = 1 << 30
"""Every storage holds seqs below this."""
_LARGE = 1 << 53


class Checker:
    """Knows the conversation at hand, and the blobs that the file has given so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._blobs: set[bytes] = set()
        self._lines: frozenset[int] = frozenset()
        self._last = 0
        self._end = 0
        self.conversation_id = ""

    def conversation(self, line: ConversationLine, number: int) -> None:
        conversation = line.conversation
        self._ids(number, conversation.id, *(lane.id for lane in line.lanes))
        self._ids(number, *filter(None, (conversation.user_id, conversation.agent_id, conversation.audit_id)))
        names = [lane.id for lane in line.lanes]
        if conversation.branch not in names or len(set(names)) != len(names):
            raise damaged(number, f"its branches are {names}, and the active one is {conversation.branch!r}")
        owned = [lane.line for lane in line.lanes]
        read = {place for lane in line.lanes for place, _ in lane.path}
        if len(set(owned)) != len(owned) or min(*owned, *read, 1) < 1:
            raise damaged(number, "the lines of its branches are not numbered apart")
        self._times(number, conversation.created_at, conversation.updated_at, conversation.last_message_at)
        self._times(
            number, conversation.expires_at, conversation.archived_at, *(each.created_at for each in line.lanes)
        )
        self._counts(number, _SEQS, line.seq, *(upto for lane in line.lanes for _, upto in lane.path))
        self._counts(number, _LARGE, conversation.version, *(lane.from_seq or 0 for lane in line.lanes), *owned, *read)
        self.conversation_id = conversation.id
        self._lines = frozenset(owned) | read
        self._last, self._end = 0, line.seq

    def leave(self) -> None:
        self._lines = frozenset()
        self._end = 0

    def message(self, line: int, message: Message, number: int) -> None:
        if not self._last < message.seq <= self._end:
            raise damaged(number, f"seq {message.seq} does not lie between {self._last} and {self._end}")
        self._last = message.seq
        if line not in self._lines:
            raise damaged(number, f"no branch of the conversation reads line {line}")
        if message.role not in _ROLES:
            raise damaged(number, f"the role {message.role!r} is unknown")
        id = message.id
        if not id or len(id) > _SHORT or not id.isascii() or "\0" in id or id[0] == "c":
            self._message_id(number, id)
        if message.created_at.tzinfo is not UTC or message.updated_at is not None:
            self._times(number, message.created_at, message.updated_at)
        if message.blobs:
            self._references(message, number)
        if message.format == "text" and not isinstance(message.content, str):
            raise damaged(number, "content of the format 'text' is not text")

    def _references(self, message: Message, number: int) -> None:
        """A message may refer only to what its own file has brought: else it could name another's blob."""
        for ref in message.blobs:
            if _digest(ref.sha256) not in self._blobs:
                raise damaged(number, f"blob {ref.sha256} does not stand before the message that refers to it")

    def blob(self, line: BlobLine) -> None:
        self._blobs.add(_digest(line.sha256))

    def summary(self, line: SummaryLine, number: int) -> None:
        if not self._end and not self._lines:
            raise damaged(number, "a summary stands outside of a conversation")
        if line.summary.conversation_id != self.conversation_id:
            raise damaged(number, "the summary belongs to another conversation")
        summary = line.summary
        self._counts(number, _LARGE, summary.from_seq, summary.to_seq, summary.token_count or 0)
        self._times(number, summary.created_at)

    def record(self, line: RecordLine, number: int) -> None:
        if self._lines:
            raise damaged(number, "a record stands inside a conversation")
        if not line.namespace or (line.value is UNSET) == (line.data is UNSET):
            raise damaged(number, "the record has no namespace, or not one value")
        self._ids(number, line.key, *line.namespace, *filter(None, (line.owner, line.conversation_id)))
        self._counts(number, _LARGE, line.revision)
        self._times(number, line.created_at, line.updated_at, line.expires_at)

    def messages(self, rows: Sequence[Row], number: int) -> None:
        """Ids are unique in a conversation; here, in as much of it as is stored at once."""
        if len({row.message.id for row in rows}) != len(rows):
            raise damaged(number, "two messages before it have the same id")

    def _message_id(self, number: int, id: str) -> None:
        self._ids(number, id)
        if id.startswith(cursors.PREFIX):
            raise damaged(number, f"the message id {id[:40]!r} looks like a cursor")

    def _counts(self, number: int, end: int, *counts: int) -> None:
        for count in counts:
            if not 0 <= count < end:
                raise damaged(number, f"the number {count} is out of range")

    def _ids(self, number: int, *ids: str) -> None:
        for id in ids:
            try:
                checks.id_of(id, f"the id {id[:40]!r}", self._limits)
            except ValidationError as error:
                raise damaged(number, str(error)) from error

    def _times(self, number: int, *times: datetime | None) -> None:
        for time in times:
            if time is not None and time.tzinfo is not UTC:
                raise damaged(number, f"the time {time.isoformat()} is not in UTC")


def _digest(sha256: str) -> bytes:
    try:
        return bytes.fromhex(sha256)
    except ValueError:
        return b""
