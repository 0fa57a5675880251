"""The messages of a branch, compared with those that the store returns, for nested branches."""

from __future__ import annotations

from hansard import Message, sync
from hansard.server.web import branch_path


def test_a_branch_path_selects_what_the_store_reads() -> None:
    with sync.connect("memory://") as store:
        store.append("c", [Message("user", str(number), id=f"m{number}") for number in range(6)])
        store.branch("c", at="m3", branch_id="a")
        store.append("c", [Message("user", "a", id=f"a{number}") for number in range(4)])
        store.branch("c", at="a1", branch_id="b")
        store.append("c", [Message("user", "b", id=f"b{number}") for number in range(2)])
        store.branch("c", at="m1", source="b", branch_id="early")
        store.append("c", [Message("user", "e", id="e0")])
        store.branch("c", empty=True, branch_id="fresh")
        store.append("c", [Message("user", "f", id="f0")])
        branches = store.list_branches("c")
        everything = {each.id: each for branch in branches for each in store.get_messages("c", branch=branch.id)}
        assert len(everything) == 14
        for branch in branches:
            read = {each.id for each in store.get_messages("c", branch=branch.id)}
            assert {id for id, each in everything.items() if branch_path.contains(branches, branch.id, each)} == read, (
                branch.id
            )
