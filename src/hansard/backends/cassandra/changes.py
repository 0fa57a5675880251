"""`Changes` as a `Write`. Nothing here asks the cluster, and nothing decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from hansard import rules
from hansard.backends.cassandra import effects, index, rows, uploads
from hansard.backends.cassandra.effects import WriteEffects
from hansard.backends.cassandra.read import Name
from hansard.backends.cassandra.rows import CassandraMessage, Head, IndexProgress, RowKey
from hansard.backends.cassandra.write import Write
from hansard.backends.shared import documents, lists
from hansard.contract.storage import Changes, Update
from hansard.contract.types import Context, Draft
from hansard.model import Message, to_micros

_MOST_INLINE = 5000
"""References, participants and records of removed messages that an outbox holds: one mutation must carry them."""


class Leaving(Struct, kw_only=True):
    """The rows that a write removes or changes, which must be read first."""

    messages: Sequence[CassandraMessage] = ()
    updated: CassandraMessage | None = None
    summaries: Sequence[RowKey] = ()
    """Those of `lost_summaries`, or all where they are wiped."""
    references: Sequence[tuple[int, int, str]] = ()
    """For `wipes`: segment, seq, and what all messages refer to."""
    participants: Sequence[str] = ()
    records: Sequence[tuple[str, tuple[str, ...], str]] = ()
    tombstones: Mapping[str, datetime] = {}
    """Those of `Changes.tombstones` that are there."""


def is_addition(changes: Changes) -> bool:
    """Only adds rows and replaces the head: such a write can share its batch with others."""
    return not (
        changes.wipes != "nothing"
        or changes.remove
        or changes.remove_runs
        or changes.update
        or changes.lost_summaries
        or changes.tombstones
        or changes.blobs
        or changes.state is None
    )


class Change:
    """One `Changes`, made into a write. `base` is the head that the first write of its batch was decided on."""

    def __init__(self, context: Context, prefix: str, name: Name, before: Head | None, write: Write | None) -> None:
        self._context = context
        self._name = name
        self._key = (prefix, *name)
        self._before = before
        base = write.before if write else before
        self._base = base
        if write is not None:
            self._n, self._recent = write.head.n, write.head.recent
            self.write = write
        else:
            self._n, self._recent = rows.following(before)
            follows = WriteEffects(name[0], to_micros(context.now))
            self.write = Write(name, base, Head(self._n), follows)
        self._follows = self.write.follows
        self._era = before.era if before else 1
        self._overlaid = before is not None and before.overlaid

    def make(
        self, changes: Changes, segments: int, leaving: Leaving, exact: tuple[str, ...] = (), *, checks_ids: bool
    ) -> Write:
        state = self._before.state if self._before else None
        is_new = state is None or changes.wipes == "everything"
        if changes.wipes != "nothing" and state is not None:
            self._wipe(changes, leaving)
        for row in leaving.messages:
            self._remove(row)
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                self._insert(segment, message, draft, checks_ids=checks_ids and draft.given_id)
        if changes.update is not None and leaving.updated is not None:
            self._update(changes.update, leaving.updated)
        self._summarise(changes, leaving)
        self.write.blobs |= {sha256: changes.blobs.get(sha256) for sha256, _, _ in self.write.references}
        self._bury(changes, leaving)
        self._finish(changes, segments, exact, is_new=is_new)
        return self.write

    def _then(self, query: str, *arguments: str | int) -> None:
        """A step in another partition."""
        self._follows.steps.append((query, arguments))

    # Removals

    def _wipe(self, changes: Changes, leaving: Leaving) -> None:
        before, follows = self._before, self._follows
        assert before is not None
        self._era = before.era + 1
        self.write.ended = before.era
        birth = before.birth if changes.wipes == "everything" else 0
        wiped = WriteEffects(follows.tenant, follows.at, birth=birth)
        rest = (leaving.references, leaving.participants, leaving.records)
        self.write.wiped = effects.wipe(wiped, self._key, self._n, *rest)
        if sum(map(len, rest)) > _MOST_INLINE:
            follows.ended = (before.era, birth, before.partitions)
            return
        self.write.untied = birth or None
        for part in before.partitions:
            self._then("delete_part", self._n, *self._key, part)

    def _remove(self, row: CassandraMessage) -> None:
        for key in _keys(self._era, row):
            self.write.rows[key] = None
        if self._unseal(row, row.stored.id):
            self.write.rows[(self._era, rows.MESSAGE, row.segment, row.seq, "")] = (rows.REMOVED, None)
        who = row.extra.participant
        if who is not None and who.kind == "user":
            prefix, tenant, id = self._key
            self._then("remove_participant", self._n, prefix, tenant, who.id, id, row.stored.id)
        self._let_go(row)
        before = self._before
        if before is not None and row.seq <= before.index.claimed:
            place = index.place_of(
                *self._key[:2], index.owner_of(before), index.month_of(row.created_at), self._name[1]
            )
            self._then("delete_terms", self._n, *place, self._name[1], row.segment, row.seq)

    def _unseal(self, row: CassandraMessage, id: str = "") -> bool:
        """Deletes the rows of a message from its part. Returns whether part 0 must hide them until then."""
        before = self._before
        if before is None or row.seq > before.copied:
            return False
        place = (self._n, *self._key, before.part_of(row.seq), self._era)
        for kind in (rows.MESSAGE, rows.REFERENCE):
            self._then("delete_part_rows", *place, kind, row.segment, row.seq)
        if id:
            self._then("delete_part_id", self._n, *self._key, rows.id_part(id), self._era, id)
        is_sealed = row.seq <= before.sealed
        self._overlaid = self._overlaid or is_sealed
        return is_sealed

    def _let_go(self, row: CassandraMessage) -> None:
        """Releases the blobs and the upload that a message refers to."""
        for what in _references(row):
            self.write.rows[(self._era, rows.REFERENCE, row.segment, row.seq, what)] = None
            effects.release(self._follows, self._key, row.segment, row.seq, what)

    # Additions

    def _insert(self, segment: int, message: Message, draft: Draft, *, checks_ids: bool) -> None:
        self._put(segment, message, draft.body, draft.size)
        place = (self._era, rows.ID, 0, 0, message.id)
        self.write.rows[place] = (documents.encode((segment, message.seq)), None)
        if checks_ids:
            self.write.checked.add(place)
        who = message.participant
        if who is not None and who.kind == "user":
            self.write.rows[(self._era, rows.PARTICIPANT, 0, 0, who.id)] = (b"{}", None)
            prefix, tenant, id = self._key
            self._then("add_participant", prefix, tenant, who.id, id, message.id, self._n)
        self._pin(segment, message)

    def _put(self, segment: int, message: Message, body: str, size: int) -> None:
        """A message with new content."""
        data = body.encode()
        is_large = len(data) > uploads.LARGE or self.write.inline + len(data) > uploads.MOST
        upload = uploads.new_name() if is_large else None
        if upload is None:
            self.write.inline += len(data)
        else:
            self.write.uploads[upload] = (data, segment, message.seq)
            data = b""
        stored = rows.stored_of(message, size, self._recent[-1], upload)
        self.write.rows[(self._era, rows.MESSAGE, segment, message.seq, "")] = (documents.encode(stored), data)
        row = CassandraMessage(segment, message.seq, stored, None)
        for what in _references(row):
            self.write.rows[(self._era, rows.REFERENCE, segment, message.seq, what)] = (b"{}", None)
        self.write.references += [(each, segment, message.seq) for each in rows.digests_of(message.blobs)]

    def _pin(self, segment: int, message: Message) -> None:
        if message.pinned:
            self.write.rows[(self._era, rows.PIN, segment, message.seq, "")] = (b"{}", None)

    def _update(self, update: Update, row: CassandraMessage) -> None:
        segment, message = update.segment, update.after
        if row.extra.pinned and not message.pinned:
            self.write.rows[(self._era, rows.PIN, segment, message.seq, "")] = None
        self._pin(segment, message)
        if self._before is not None and message.seq <= self._before.index.claimed:
            place = (self._era, index.month_of(row.created_at), segment, message.seq)
            self._follows.reindexed.append((index.owner_of(self._before), *place))
        is_sealed = self._unseal(row)
        if update.draft is not None:
            self._let_go(row)
            self._put(segment, message, update.draft.body, update.draft.size)
            return
        stored = rows.stored_of(message, row.stored.size, row.stored.stamp, row.stored.upload)
        body = (row.body or "").encode() if is_sealed else None
        self.write.rows[(self._era, rows.MESSAGE, segment, message.seq, "")] = (documents.encode(stored), body)
        for what in _references(row) if is_sealed else ():
            self.write.rows[(self._era, rows.REFERENCE, segment, message.seq, what)] = (b"{}", None)

    def _summarise(self, changes: Changes, leaving: Leaving) -> None:
        if changes.wipes == "nothing":
            self.write.rows |= dict.fromkeys(leaving.summaries)
        if changes.new_summary is not None:
            # Several in one batch have the same number, and keep their order by name.
            number = sum(key[1] == rows.SUMMARY for key in self.write.rows)
            place = (self._era, rows.SUMMARY, 0, self._n, f"{number:06}")
            self.write.rows[place] = (documents.encode(changes.new_summary), None)

    # Beside the messages

    def _bury(self, changes: Changes, leaving: Leaving) -> None:
        for digest in changes.tombstones:
            at = max(self._context.now, leaving.tombstones.get(digest, self._context.now))
            place = (rows.BESIDE, rows.TOMBSTONE, 0, 0, digest)
            self.write.rows[place] = (documents.encode(to_micros(at)), None)
            due = to_micros(at + rules.TOMBSTONE_LIFE)
            if (due, "tombstone", self._name[1]) not in self._follows.due:
                self._follows.due.append((due, "tombstone", self._name[1]))

    def _finish(self, changes: Changes, segments: int, exact: tuple[str, ...], *, is_new: bool) -> None:
        before, state = self._before, changes.state
        sums = before.sums if before and not _changes_owner(before, changes) else []
        sums, changed = rows.spent(sums, self._n, list(changes.usage))
        keys = {lists.usage_key(each.row) for each in changed}
        kept = [each for each in self._follows.sums if lists.usage_key(each.row) not in keys]
        self._follows.sums = [*kept, *changed]
        birth = self._n if is_new else before.birth if before else self._n
        self.write.head = Head(
            n=self._n,
            recent=self._recent,
            birth=birth,
            era=self._era,
            edits=(before.edits if before else 0) + (not is_addition(changes)),
            segments=segments,
            state=state,
            exact=exact,
            sums=sums if state is not None else [],
            has_tombstones=bool(changes.tombstones) or (before is not None and before.has_tombstones),
            index=self._index(changes),
            last_part=before.last_part if before else 0,
        )
        if before is not None and changes.wipes == "nothing":
            parts = structs.replace(self.write.head, parts=before.parts, claim=before.claim, overlaid=self._overlaid)
            self.write.head = parts
        self._follows.is_first = self._follows.is_first or (is_new and state is not None)
        self._follows.due = [each for each in self._follows.due if each[1] != "conversation"]
        self._follows.not_due = []
        effects.move(self._follows, self._key[0], self._name[1], self._base, self.write.head)
        if state is None and not self.write.head.has_tombstones:
            # A sweep removes the head of the deleted conversation.
            self._follows.due.append((to_micros(self._context.now + rules.TOMBSTONE_LIFE), "tombstone", self._name[1]))

    def _index(self, changes: Changes) -> IndexProgress:
        """Deletes the rows of a conversation that is wiped or changes its owner, and lists one with new messages."""
        before, after = self._before, changes.state
        state, owner = before.index if before else IndexProgress(), index.owner_of(before)
        has_moved = after is None or (after.conversation.user_id or "") != owner
        if changes.wipes != "nothing" or has_moved:
            self._follows.unindexed += [(owner, state.months)] if state.months else []
            state = IndexProgress(is_listed=state.is_listed)
        if has_moved and state.is_listed:
            # One less, so that what the same write enters stays.
            self._follows.steps.append(index.unlist(self._key[0], self._name, owner, self._n - 1))
            state = IndexProgress()
        if after is not None and after.seq > state.upto and after.conversation.message_count and not state.is_listed:
            new_owner = after.conversation.user_id or ""
            self._follows.steps.append(index.list_unindexed(self._key[0], self._name, new_owner, self._n))
            state = structs.replace(state, is_listed=True)
        return state


def _changes_owner(before: Head, changes: Changes) -> bool:
    """Then sums begin again: an erasure of the user may have removed the earlier ones."""
    if before.state is None or changes.state is None:
        return True
    return before.state.conversation.user_id != changes.state.conversation.user_id


def _keys(era: int, row: CassandraMessage) -> list[RowKey]:
    found: list[RowKey] = [
        (era, rows.MESSAGE, row.segment, row.seq, ""),
        (era, rows.ID, 0, 0, row.stored.id),
    ]
    if row.extra.pinned:
        found.append((era, rows.PIN, row.segment, row.seq, ""))
    return found


def _references(row: CassandraMessage) -> list[str]:
    """The names of the rows that say what a message refers to."""
    stored = row.stored
    found = [f"upload/{stored.stamp}/{stored.upload}"] if stored.upload is not None else []
    return [*found, *(f"blob/{stored.stamp}/{sha256}" for sha256 in rows.digests_of(row.extra.blobs))]
