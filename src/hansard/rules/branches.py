"""The meaning of changing, removing and replacing messages, and of branches.

Branches share segments of messages. Truncating a branch keeps the messages that others read; those that no branch reads
any longer are *unreachable*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, Struct, structs

from hansard.contract.types import (
    Context,
    ConversationState,
    Draft,
    MessageChange,
    NewBranch,
    Remove,
    Replace,
    StoredBranch,
)
from hansard.errors import Conflict, MessageNotFound
from hansard.model import MAIN, Branch, Conversation, Message, Summary, UsageRow
from hansard.rules.append import place, same_body
from hansard.rules.marks import changed_marks, is_marking
from hansard.rules.state import check_version, touched
from hansard.rules.usage import UsageKey, usage_of_replacing

NO_END = (1 << 62) - 1
"""Greater than any seq: how far a branch reads its own segment."""


def plan_update(
    context: Context, state: ConversationState, message: Message, change: MessageChange
) -> tuple[ConversationState, Message]:
    """Returns the changed message and state; a further flush of a message in progress leaves the state unchanged.

    A rating or label that is there already changes nothing: then the message is returned as it was.
    """
    check_version(state.conversation, change.expected_version)
    fields = ("metadata", "status", "usage", "sources", "pinned")
    changes = {name: value for name in fields if (value := getattr(change, name)) is not UNSET}
    if change.draft is not None:
        new = change.draft.message
        changes |= {"content": new.content, "format": new.format, "blobs": new.blobs}
    if is_marking(change):
        marks = changed_marks(message, change)
        if not (marks or changes):
            return state, message
        changes |= marks
    changes["updated_at"] = now = _later(context.now, message.updated_at)
    if change.draft is not None and _is_edit(message, change.draft.message):
        changes["edited_at"] = now
    updated = structs.replace(message, **changes)
    if message.status == updated.status == "in_progress":
        return state, updated
    return structs.replace(state, conversation=touched(state.conversation, context.now)), updated


def _is_edit(before: Message, after: Message) -> bool:
    """Returns whether other content replaces the old one. A message in progress grows, which is no edit."""
    kept = (before.format, before.content, before.blobs) == (after.format, after.content, after.blobs)
    return before.status != "in_progress" and not kept


def _later(now: datetime, before: datetime | None) -> datetime:
    """Returns the time of a change. It always grows, whatever the clock says, so that watchers notice every change."""
    return now if before is None or now > before else before + timedelta(microseconds=1)


def segments(branch: StoredBranch) -> tuple[tuple[int, int], ...]:
    """Returns the segments that a branch reads, oldest first, and up to which seq."""
    return (*branch.path, (branch.segment, NO_END))


def sees(branch: StoredBranch, segment: int, seq: int) -> bool:
    for its_segment, upto in segments(branch):  # noqa: SIM110  (a generator costs more than the loop)
        if segment == its_segment and seq <= upto:
            return True
    return False


def without(
    context: Context, state: ConversationState, gone: Iterable[tuple[int, int]], newest: datetime | None
) -> ConversationState:
    """Returns the state after the messages at these `(segment, seq)` were removed.

    `newest` is the time of the last one left.
    """
    gone = list(gone)
    branches = {
        id: structs.replace(branch, count=branch.count - sum(sees(branch, segment, seq) for segment, seq in gone))
        for id, branch in state.branches.items()
    }
    conversation = touched(
        state.conversation,
        context.now,
        message_count=state.conversation.message_count - len(gone),
        last_message_at=newest,
    )
    return structs.replace(state, conversation=conversation, branches=branches)


def cleared(context: Context, state: ConversationState) -> ConversationState:
    """Returns the state after all messages were removed: one empty branch on the same segment; seq continues."""
    main = state.branches.get(MAIN) or next(iter(state.branches.values()))
    branch = StoredBranch(MAIN, main.segment, created_at=state.conversation.created_at)
    conversation = touched(
        state.conversation, context.now, message_count=0, last_message_at=None, branch=MAIN, summary=None
    )
    return structs.replace(state, conversation=conversation, branches={MAIN: branch})


def clip(branch: StoredBranch, segment: int, seq: int) -> tuple[tuple[int, int], ...]:
    """Returns the path of a reader of `branch` that stops at the message `seq` on `segment`."""
    path: list[tuple[int, int]] = []
    for its_segment, upto in segments(branch):
        if its_segment == segment:
            return (*path, (segment, min(seq, upto)))
        path.append((its_segment, upto))
    raise MessageNotFound(f"branch {branch.id!r} does not hold the message at seq {seq}")


def truncated(
    state: ConversationState,
    branch: StoredBranch,
    keep: tuple[int, int] | None,
    count: int,
    fresh_segment: Callable[[], int],
) -> ConversationState:
    """Truncates a branch after the message at `keep` (None: before the first). Other branches stay complete.

    The backend removes the messages that no branch reads any longer: see `unreachable`.
    """
    others = [other for other in state.branches.values() if other.id != branch.id]
    is_shared = any(segment == branch.segment for other in others for segment, _ in other.path)
    if keep is not None and keep[0] == branch.segment and not is_shared:
        cut = structs.replace(branch, count=count)
    else:
        path = () if keep is None else clip(branch, *keep)
        segment = fresh_segment() if is_shared or any(its == branch.segment for its, _ in path) else branch.segment
        cut = structs.replace(branch, segment=segment, path=path, count=count)
    return structs.replace(state, branches={**state.branches, branch.id: cut})


def unreachable(
    before: ConversationState, after: ConversationState, cut: StoredBranch | None = None, keep: int = 0
) -> list[tuple[int, int]]:
    """Returns `(segment, seq)` pairs: no branch reads the messages of the segment after that seq any longer.

    A branch truncated inside its own segment still reads that segment, but only up to `keep`.
    """
    reach: dict[int, int] = {}
    for branch in after.branches.values():
        for segment, upto in segments(branch):
            end = keep if cut is not None and segment == cut.segment and branch.id == cut.id else upto
            reach[segment] = max(reach.get(segment, 0), end)
    known = {segment for branch in before.branches.values() for segment, _ in segments(branch)}
    return sorted((segment, reach.get(segment, 0)) for segment in known if reach.get(segment, 0) < NO_END)


class ReplacePlan(Struct, frozen=True):
    """A full snapshot: the messages of the branch that stay, and those to insert after them."""

    state: ConversationState
    branch: StoredBranch
    kept: list[Message]
    unreachable: list[tuple[int, int]]
    fresh: list[tuple[Message, Draft]]
    usage: list[tuple[UsageKey, UsageRow]]
    """The amounts to add to the usage rows. Messages of `fresh` may have been counted before."""


def plan_replace(
    context: Context,
    state: ConversationState,
    replace: Replace,
    current: Sequence[tuple[int, Message]],
    fresh_segment: Callable[[], int],
) -> ReplacePlan:
    """`current` are the branch's messages, each with its segment. `replaced` computes the final counts."""
    check_version(state.conversation, replace.expected_version)
    branch = state.branch(replace.branch)
    same = 0
    for draft, (_, message) in zip(replace.drafts, current, strict=False):
        if (draft.given_id and draft.message.id != message.id) or not same_body(draft, message):
            break
        same += 1
    kept = [message for _, message in current[:same]]
    rest = replace.drafts[same:]
    _refuse_repeats(kept, rest)
    keep = (current[same - 1][0], current[same - 1][1].seq) if same else None
    cut = truncated(state, branch, keep, same, fresh_segment) if same < len(current) else state
    own_cut = keep[1] if keep is not None and keep[0] == branch.segment else 0
    gone = unreachable(state, cut, cut.branches[branch.id], own_cut) if same < len(current) else []
    placed, seq, _ = place(context, state.conversation, branch.id, state.seq, rest)
    branch = structs.replace(cut.branches[branch.id], count=same + len(placed))
    lost, new = (message for _, message in current[same:]), (message for message, _ in placed)
    usage = usage_of_replacing(state.conversation, lost, new)
    state = structs.replace(cut, seq=seq, branches={**cut.branches, branch.id: branch})
    return ReplacePlan(state, branch, kept, gone, placed, usage)


def _refuse_repeats(kept: Sequence[Message], rest: Sequence[Draft]) -> None:
    seen = {message.id for message in kept}
    for draft in rest:
        if draft.message.id in seen:
            raise Conflict(f"message {draft.message.id!r} occurs twice in the snapshot")
        seen.add(draft.message.id)


def replaced(context: Context, plan: ReplacePlan, gone: int, newest: datetime | None) -> ConversationState:
    """Returns the state after a replace that removed `gone` messages; `newest` is the time of the last one."""
    conversation = plan.state.conversation
    count = conversation.message_count - gone + len(plan.fresh)
    return structs.replace(
        plan.state,
        conversation=touched(conversation, context.now, message_count=count, last_message_at=newest),
    )


def plan_pop(
    state: ConversationState,
    remove: Remove,
    last: tuple[int, int],
    before: tuple[int, int] | None,
    fresh_segment: Callable[[], int],
) -> tuple[ConversationState, list[tuple[int, int]]]:
    """Returns the state without a branch's newest message, at `last`.

    `before` is the one before it. See `unreachable` and `shrunk`.
    """
    check_version(state.conversation, remove.expected_version)
    branch = state.branch(remove.branch)
    after = truncated(state, branch, before, branch.count - 1, fresh_segment)
    own_cut = before[1] if before is not None and before[0] == branch.segment else 0
    return after, unreachable(state, after, after.branches[branch.id], own_cut)


def used_elsewhere(ids: Iterable[str]) -> None:
    for id in ids:
        raise Conflict(f"message id {id!r} is in use on another branch of this conversation")


class Cut(Struct, frozen=True):
    """Where a new branch leaves its source.

    The `(segment, seq)` of the last message that it shares, and how many it shares.
    """

    place: tuple[int, int] | None = None
    count: int = 0


def plan_branch(
    context: Context, state: ConversationState, new: NewBranch, cut: Cut, segment: int
) -> tuple[ConversationState, StoredBranch]:
    """Creates a branch on its own, empty `segment`."""
    check_version(state.conversation, new.expected_version)
    if new.id in state.branches:
        raise Conflict(f"conversation {state.conversation.id!r} has a branch {new.id!r} already")
    source = state.branch(new.source)
    branch = StoredBranch(
        new.id,
        segment,
        path=clip(source, *cut.place) if cut.place else (),
        count=cut.count,
        parent=source.id,
        from_seq=cut.place[1] if cut.place else 0,
        created_at=context.now,
    )
    active = {"branch": new.id} if new.activate else {}
    conversation = touched(state.conversation, context.now, **active)
    return structs.replace(state, conversation=conversation, branches={**state.branches, new.id: branch}), branch


def plan_delete_branch(
    state: ConversationState, branch: str, expected_version: int | None
) -> tuple[ConversationState, list[tuple[int, int]]]:
    """Returns the state without the branch, and its unreachable messages. `shrunk` computes the final counts."""
    check_version(state.conversation, expected_version)
    stored_branch = state.branch(branch)
    if state.conversation.branch == branch:
        raise Conflict(f"branch {branch!r} is the active one: switch to another before deleting it")
    children = sorted(other.id for other in state.branches.values() if other.parent == branch)
    if children:
        raise Conflict(f"branch {branch!r} has branches of its own ({', '.join(children)}): delete those first")
    branches = {id: other for id, other in state.branches.items() if id != stored_branch.id}
    after = structs.replace(state, branches=branches)
    return after, unreachable(state, after)


def shrunk(context: Context, state: ConversationState, gone: int, newest: datetime | None) -> ConversationState:
    """Returns the state after `gone` unreachable messages were removed."""
    count = state.conversation.message_count - gone
    return structs.replace(
        state,
        conversation=touched(state.conversation, context.now, message_count=count, last_message_at=newest),
    )


def surviving(state: ConversationState, summaries: Sequence[Summary], gone: Iterable[tuple[int, int]]) -> list[Summary]:
    """Returns the summaries that remain after messages at these `(segment, seq)` are removed from `state`."""
    lost = set(lost_summaries(state, summaries, gone))
    return [summary for position, summary in enumerate(summaries) if position not in lost]


def lost_summaries(
    state: ConversationState, summaries: Sequence[Summary], gone: Iterable[tuple[int, int]]
) -> list[int]:
    """Returns the positions of the summaries that are lost with messages at these `(segment, seq)` of `state`.

    A removed message takes every summary that covers it or may build on one that does, on the branches that read it.
    """
    first: dict[int, int] = {}
    for segment, seq in gone:
        # A reader of any message of a segment also reads the earlier ones, so the first lost message decides.
        first[segment] = min(seq, first.get(segment, seq))

    def is_lost(summary: Summary) -> bool:
        branch = state.branches.get(summary.branch)
        return branch is None or any(
            seq <= summary.to_seq and sees(branch, segment, seq) for segment, seq in first.items()
        )

    return [position for position, summary in enumerate(summaries) if is_lost(summary)]


def branches_of(state: ConversationState) -> list[Branch]:
    """Returns the branches, oldest first; those created at the same time by id."""
    branches = sorted(state.branches.values(), key=lambda branch: (branch.created_at, branch.id != MAIN, branch.id))
    return [as_branch(branch, state.conversation) for branch in branches]


def as_branch(branch: StoredBranch, conversation: Conversation) -> Branch:
    return Branch(
        id=branch.id,
        conversation_id=conversation.id,
        parent=branch.parent,
        from_seq=branch.from_seq,
        message_count=branch.count,
        created_at=branch.created_at,
        active=branch.id == conversation.branch,
    )
