"""Creating and deleting branches, and storing summaries of them."""

from __future__ import annotations

from hansard.contract.storage import Changes, Run, Transaction, Wants, Without
from hansard.contract.types import ConversationState, NewBranch
from hansard.model import Branch, Receipt, Summary
from hansard.rules.branches import (
    Cut,
    as_branch,
    lost_summaries,
    plan_branch,
    plan_delete_branch,
    sees,
    shrunk,
)
from hansard.rules.operations.common import (
    places_of,
    require,
    require_visible,
    runs_beyond,
    runs_of,
    with_text,
    without_summaries,
)
from hansard.rules.state import no_message
from hansard.rules.summaries import check_summary


async def create_branch(tx: Transaction, new: NewBranch) -> Branch:
    state = require(tx)
    cut = await _cut(tx, state, new)
    after, branch = plan_branch(tx.context, state, new, cut, tx.new_segment())
    await tx.apply(Changes(state=after))
    return as_branch(branch, after.conversation)


async def _cut(tx: Transaction, state: ConversationState, new: NewBranch) -> Cut:
    """Returns where a new branch leaves its source, and how many messages it shares."""
    if new.empty:
        return Cut()
    branch, wanted = state.branch(new.source), new.at or new.before
    if wanted is None:
        last = places_of((await tx.get(Wants(runs=runs_of(branch), newest=1))).messages)
        return Cut(last[0], branch.count) if last else Cut()
    found = (await tx.get(Wants(ids=[wanted]))).by_id.get(wanted)
    if found is None or not sees(branch, found[0], found[1].seq):
        raise no_message(tx.id, wanted)
    end = found[1].seq if new.at else found[1].seq - 1
    runs = [Run(run.segment, 0, min(run.upto, end)) for run in runs_of(branch)]
    spans = (await tx.get(Wants(spans=runs))).spans
    shared = [(run.segment, span.last) for run, span in zip(runs, spans, strict=True) if span.count]
    return Cut(shared[-1], sum(span.count for span in spans)) if shared else Cut()


async def delete_branch(tx: Transaction, branch: str, expected_version: int | None) -> Receipt:
    state = require(tx)
    after, unreachable = plan_delete_branch(state, branch, expected_version)
    runs = runs_beyond(unreachable)
    found = await tx.get(Wants(spans=runs, summaries=True, last_time_without=Without(runs=runs)))
    first = [(run.segment, span.first) for run, span in zip(runs, found.spans, strict=True) if span.count]
    own = {position for position, summary in enumerate(found.summaries) if summary.branch == branch}
    lost = sorted(own.union(lost_summaries(state, found.summaries, first)))
    count = sum(span.count for span in found.spans)
    after = shrunk(tx.context, without_summaries(after, found.summaries, lost), count, found.last_time)
    applied = await tx.apply(Changes(state=after, remove_runs=runs if count else (), lost_summaries=lost))
    return Receipt(
        messages=applied.messages,
        branches=1,
        summaries=applied.summaries,
        blobs=applied.blobs,
        at=tx.context.now,
        physically_gone=applied.physically_gone,
    )


async def put_summary(tx: Transaction, summary: Summary) -> None:
    state = require_visible(tx)
    check_summary(state, summary)
    await tx.apply(Changes(state=with_text(state, summary.text), new_summary=summary))
