"""What it means to change, remove and replace messages, and to branch.

Branches share lines of messages. A cut branch leaves what others read in place; what nobody reads any longer is
*doomed*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, Struct, structs

from hansard.contract.types import Context, Draft, Head, Lane, MessageChange, NewBranch, Remove, Replace
from hansard.errors import Conflict, MessageNotFound
from hansard.model import MAIN, Branch, Conversation, Message, Summary, UsageRow
from hansard.rules.append import place, same_body
from hansard.rules.state import check_version, touched
from hansard.rules.usage import UsageKey, usage_of_replacing

NO_END = (1 << 62) - 1
"""Greater than any seq: how far a lane reads its own line."""


def plan_update(context: Context, head: Head, message: Message, change: MessageChange) -> tuple[Head, Message]:
    """The message changed, and the conversation with it, unless this is one more flush of a message in progress."""
    check_version(head.conversation, change.expected_version)
    fields = ("metadata", "status", "usage", "sources", "pinned")
    changes = {name: value for name in fields if (value := getattr(change, name)) is not UNSET}
    if change.draft is not None:
        new = change.draft.message
        changes |= {"content": new.content, "format": new.format, "blobs": new.blobs}
    updated = structs.replace(message, updated_at=_later(context.now, message.updated_at), **changes)
    if message.status == updated.status == "in_progress":
        return head, updated
    return structs.replace(head, conversation=touched(head.conversation, context.now)), updated


def _later(now: datetime, before: datetime | None) -> datetime:
    """The time of a change. It always grows, whatever the clock says: that is how a watcher knows what it has seen."""
    return now if before is None or now > before else before + timedelta(microseconds=1)


def segments(lane: Lane) -> tuple[tuple[int, int], ...]:
    """The lines that a branch reads, oldest first, and up to which seq."""
    return (*lane.path, (lane.line, NO_END))


def sees(lane: Lane, line: int, seq: int) -> bool:
    for its_line, upto in segments(lane):  # noqa: SIM110  (a generator costs more than the loop)
        if line == its_line and seq <= upto:
            return True
    return False


def without(context: Context, head: Head, gone: Iterable[tuple[int, int]], newest: datetime | None) -> Head:
    """The head after the messages at these `(line, seq)` went. `newest` is the time of the last one left."""
    gone = list(gone)
    lanes = {
        id: structs.replace(lane, count=lane.count - sum(sees(lane, line, seq) for line, seq in gone))
        for id, lane in head.lanes.items()
    }
    conversation = touched(
        head.conversation,
        context.now,
        message_count=head.conversation.message_count - len(gone),
        last_message_at=newest,
    )
    return structs.replace(head, conversation=conversation, lanes=lanes)


def cleared(context: Context, head: Head) -> Head:
    """The head after everything went: one empty branch on the same line, and seq goes on."""
    main = head.lanes.get(MAIN) or next(iter(head.lanes.values()))
    lane = Lane(MAIN, main.line, created_at=head.conversation.created_at)
    conversation = touched(
        head.conversation, context.now, message_count=0, last_message_at=None, branch=MAIN, summary=None
    )
    return structs.replace(head, conversation=conversation, lanes={MAIN: lane})


def clip(lane: Lane, line: int, seq: int) -> tuple[tuple[int, int], ...]:
    """The path of a reader of `lane` that stops at the message `seq` on `line`."""
    path: list[tuple[int, int]] = []
    for its_line, upto in segments(lane):
        if its_line == line:
            return (*path, (line, min(seq, upto)))
        path.append((its_line, upto))
    raise MessageNotFound(f"branch {lane.id!r} does not hold the message at seq {seq}")


def truncated(head: Head, lane: Lane, keep: tuple[int, int] | None, count: int, fresh_line: Callable[[], int]) -> Head:
    """The head with a branch cut after the message at `keep` (None: before the first), leaving other branches whole.

    What no branch reads any longer is for the backend to remove: see `doomed`.
    """
    others = [other for other in head.lanes.values() if other.id != lane.id]
    is_shared = any(line == lane.line for other in others for line, _ in other.path)
    if keep is not None and keep[0] == lane.line and not is_shared:
        cut = structs.replace(lane, count=count)
    else:
        path = () if keep is None else clip(lane, *keep)
        line = fresh_line() if is_shared or any(its == lane.line for its, _ in path) else lane.line
        cut = structs.replace(lane, line=line, path=path, count=count)
    return structs.replace(head, lanes={**head.lanes, lane.id: cut})


def doomed(before: Head, after: Head, cut: Lane | None = None, keep: int = 0) -> list[tuple[int, int]]:
    """`(line, seq)` pairs: everything on the line beyond that seq is read by no branch any longer.

    A branch cut inside its own line still reads that line, but only up to `keep`.
    """
    reach: dict[int, int] = {}
    for lane in after.lanes.values():
        for line, upto in segments(lane):
            end = keep if cut is not None and line == cut.line and lane.id == cut.id else upto
            reach[line] = max(reach.get(line, 0), end)
    lines = {line for lane in before.lanes.values() for line, _ in segments(lane)}
    return sorted((line, reach.get(line, 0)) for line in lines if reach.get(line, 0) < NO_END)


class ReplacePlan(Struct, frozen=True):
    """A full snapshot: how many of the branch's messages stay, and what to insert after them."""

    head: Head
    lane: Lane
    kept: list[Message]
    doomed: list[tuple[int, int]]
    fresh: list[tuple[Message, Draft]]
    usage: list[tuple[UsageKey, UsageRow]]
    """What to add to the usage rows; not what `fresh` says, for some of it may have been counted before."""


def plan_replace(
    context: Context,
    head: Head,
    replace: Replace,
    current: Sequence[tuple[int, Message]],
    fresh_line: Callable[[], int],
) -> ReplacePlan:
    """`current` is what the branch reads now, with the line of each. Counts are settled by `replaced`."""
    check_version(head.conversation, replace.expected_version)
    lane = head.lane(replace.branch)
    same = 0
    for draft, (_, message) in zip(replace.drafts, current, strict=False):
        if (draft.given_id and draft.message.id != message.id) or not same_body(draft, message):
            break
        same += 1
    kept = [message for _, message in current[:same]]
    rest = replace.drafts[same:]
    _refuse_repeats(kept, rest)
    keep = (current[same - 1][0], current[same - 1][1].seq) if same else None
    cut = truncated(head, lane, keep, same, fresh_line) if same < len(current) else head
    own_cut = keep[1] if keep is not None and keep[0] == lane.line else 0
    gone = doomed(head, cut, cut.lanes[lane.id], own_cut) if same < len(current) else []
    placed, seq, _ = place(context, head.conversation, lane.id, head.seq, rest)
    lane = structs.replace(cut.lanes[lane.id], count=same + len(placed))
    lost, new = (message for _, message in current[same:]), (message for message, _ in placed)
    usage = usage_of_replacing(head.conversation, lost, new)
    head = structs.replace(cut, seq=seq, lanes={**cut.lanes, lane.id: lane})
    return ReplacePlan(head, lane, kept, gone, placed, usage)


def _refuse_repeats(kept: Sequence[Message], rest: Sequence[Draft]) -> None:
    seen = {message.id for message in kept}
    for draft in rest:
        if draft.message.id in seen:
            raise Conflict(f"message {draft.message.id!r} stands twice in the snapshot")
        seen.add(draft.message.id)


def replaced(context: Context, plan: ReplacePlan, gone: int, newest: datetime | None) -> Head:
    """The head after a replace, when `gone` messages were removed and `newest` is the last one's time."""
    conversation = plan.head.conversation
    count = conversation.message_count - gone + len(plan.fresh)
    return structs.replace(
        plan.head,
        conversation=touched(conversation, context.now, message_count=count, last_message_at=newest),
    )


def plan_pop(
    head: Head,
    remove: Remove,
    last: tuple[int, int],
    before: tuple[int, int] | None,
    fresh_line: Callable[[], int],
) -> tuple[Head, list[tuple[int, int]]]:
    """The head without a branch's newest message, at `last`.

    `before` is the one before it. See `doomed` and `shrunk`.
    """
    check_version(head.conversation, remove.expected_version)
    lane = head.lane(remove.branch)
    after = truncated(head, lane, before, lane.count - 1, fresh_line)
    own_cut = before[1] if before is not None and before[0] == lane.line else 0
    return after, doomed(head, after, after.lanes[lane.id], own_cut)


def used_elsewhere(ids: Iterable[str]) -> None:
    for id in ids:
        raise Conflict(f"message id {id!r} is in use on another branch of this conversation")


class Cut(Struct, frozen=True):
    """Where a new branch leaves its source.

    The `(line, seq)` of the last message that it shares, and how many it shares.
    """

    place: tuple[int, int] | None = None
    count: int = 0


def plan_branch(context: Context, head: Head, new: NewBranch, cut: Cut, line: int) -> tuple[Head, Lane]:
    """A new branch on its own, empty `line`."""
    check_version(head.conversation, new.expected_version)
    if new.id in head.lanes:
        raise Conflict(f"conversation {head.conversation.id!r} has a branch {new.id!r} already")
    source = head.lane(new.source)
    lane = Lane(
        new.id,
        line,
        path=clip(source, *cut.place) if cut.place else (),
        count=cut.count,
        parent=source.id,
        from_seq=cut.place[1] if cut.place else 0,
        created_at=context.now,
    )
    active = {"branch": new.id} if new.activate else {}
    conversation = touched(head.conversation, context.now, **active)
    return structs.replace(head, conversation=conversation, lanes={**head.lanes, new.id: lane}), lane


def plan_delete_branch(head: Head, branch: str, expected_version: int | None) -> tuple[Head, list[tuple[int, int]]]:
    """The head without the branch, and what no other branch reads. Counts are settled by `shrunk`."""
    check_version(head.conversation, expected_version)
    lane = head.lane(branch)
    if head.conversation.branch == branch:
        raise Conflict(f"branch {branch!r} is the active one: switch to another before deleting it")
    children = [other.id for other in head.lanes.values() if other.parent == branch]
    if children:
        raise Conflict(f"branch {branch!r} has branches of its own ({', '.join(children)}): delete those first")
    lanes = {id: other for id, other in head.lanes.items() if id != lane.id}
    after = structs.replace(head, lanes=lanes)
    return after, doomed(head, after)


def shrunk(context: Context, head: Head, gone: int, newest: datetime | None) -> Head:
    """The head after `gone` messages that no branch reads any longer went."""
    count = head.conversation.message_count - gone
    return structs.replace(
        head,
        conversation=touched(head.conversation, context.now, message_count=count, last_message_at=newest),
    )


def surviving(head: Head, summaries: Sequence[Summary], gone: Iterable[tuple[int, int]]) -> list[Summary]:
    """The summaries that the loss of messages at these `(line, seq)` leaves. `head` is the one before the loss."""
    lost = set(lost_summaries(head, summaries, gone))
    return [summary for position, summary in enumerate(summaries) if position not in lost]


def lost_summaries(head: Head, summaries: Sequence[Summary], gone: Iterable[tuple[int, int]]) -> list[int]:
    """The positions of the summaries that go with messages at these `(line, seq)`. `head` is the one before the loss.

    A removed message takes every summary that covers it or may build on one that does, on the branches that read it.
    """
    first: dict[int, int] = {}
    for line, seq in gone:
        # Who reads any message of a line reads the ones before it too, so the first one lost decides.
        first[line] = min(seq, first.get(line, seq))

    def is_lost(summary: Summary) -> bool:
        lane = head.lanes.get(summary.branch)
        return lane is None or any(seq <= summary.to_seq and sees(lane, line, seq) for line, seq in first.items())

    return [position for position, summary in enumerate(summaries) if is_lost(summary)]


def branches_of(head: Head) -> list[Branch]:
    """Oldest first; of two that were made at the same moment, by id."""
    lanes = sorted(head.lanes.values(), key=lambda lane: (lane.created_at, lane.id != MAIN, lane.id))
    return [as_branch(lane, head.conversation) for lane in lanes]


def as_branch(lane: Lane, conversation: Conversation) -> Branch:
    return Branch(
        id=lane.id,
        conversation_id=conversation.id,
        parent=lane.parent,
        from_seq=lane.from_seq,
        message_count=lane.count,
        created_at=lane.created_at,
        active=lane.id == conversation.branch,
    )
