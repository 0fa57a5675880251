"""Branches compared with a naive model, in which each branch is a separate list of messages.

`memory` is the definition of truth for other backends, and it shares the branch arithmetic of `hansard.rules` with
them: lines, flattened paths, what is doomed. So that arithmetic needs a judge that knows none of it. The model copies
where Hansard shares, and forgets a message when no list holds it.
"""

from __future__ import annotations

import itertools
import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hansard.errors import Conflict, MessageNotFound
from hansard.model import Message
from hansard.testing import Driver, Target

NUMBERS = st.integers(0, 30)
COUNTS = st.integers(1, 3)


class Model(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.target = Target("memory://")
        self.store: Driver = self.target.open()
        self.store.create_conversation("c")
        self.lines: dict[str, list[str]] = {"main": []}
        self.parents: dict[str, str] = {}
        self.active = "main"
        self.names = itertools.count()
        self.highest = 0

    def teardown(self) -> None:
        if hasattr(self, "target"):
            self.target.close()

    def _branch(self, number: int) -> str:
        return list(self.lines)[number % len(self.lines)]

    def _fresh(self, count: int) -> list[Message]:
        return [Message("user", "x", id=f"m{next(self.names)}") for _ in range(count)]

    def _held(self) -> set[str]:
        return {id for line in self.lines.values() for id in line}

    @rule(count=COUNTS, branch=NUMBERS)
    def append(self, count: int, branch: int) -> None:
        name, messages = self._branch(branch), self._fresh(count)
        for stored in self.store.append("c", messages, branch=name).messages:
            assert stored.seq > self.highest
            self.highest = stored.seq
        self.lines[name] += [message.id for message in messages]

    @rule(source=NUMBERS, place=NUMBERS, how=st.sampled_from(["at", "before", "all", "empty"]), activate=st.booleans())
    def branch(self, source: int, place: int, how: str, activate: bool) -> None:
        parent, name = self._branch(source), f"b{next(self.names)}"
        line = self.lines[parent]
        if how in ("at", "before") and line:
            index = place % len(line)
            cut = {how: line[index]}
            shared = line[: index + 1 if how == "at" else index]
        else:
            cut, shared = {}, [] if how == "empty" else line
        made = self.store.branch(
            "c",
            branch_id=name,
            source=parent,
            activate=activate,
            empty=how == "empty",
            at=cut.get("at"),
            before=cut.get("before"),
        )
        assert made.message_count == len(shared)
        self.lines[name], self.parents[name] = list(shared), parent
        self.active = name if activate else self.active

    @rule(branch=NUMBERS)
    def switch(self, branch: int) -> None:
        self.active = self._branch(branch)
        self.store.switch_branch("c", self.active)

    @rule(branch=NUMBERS)
    def delete_branch(self, branch: int) -> None:
        name = self._branch(branch)
        if name == self.active or name in self.parents.values():
            try:
                self.store.delete_branch("c", name)
            except Conflict:
                return
            raise AssertionError("a branch that is needed was deleted")
        before = self._held()
        del self.lines[name], self.parents[name]
        assert self.store.delete_branch("c", name).messages == len(before - self._held())

    @rule(branch=NUMBERS)
    def pop(self, branch: int) -> None:
        name = self._branch(branch)
        popped = self.store.pop_message("c", branch=name)
        line = self.lines[name]
        assert (popped.id if popped else None) == (line.pop() if line else None)

    @rule(branch=NUMBERS, kept=st.integers(0, 4), count=st.integers(0, 2))
    def replace(self, branch: int, kept: int, count: int) -> None:
        name = self._branch(branch)
        beginning = list(self.store.get_messages("c", branch=name, limit=kept)) if kept else []
        messages = self._fresh(count)
        self.store.replace_messages("c", [*beginning, *messages], branch=name)
        self.lines[name] = [message.id for message in (*beginning, *messages)]

    @rule(chosen=st.lists(NUMBERS, max_size=3))
    def delete(self, chosen: list[int]) -> None:
        held = sorted(self._held())
        ids = {held[number % len(held)] for number in chosen} if held else set()
        assert self.store.delete_messages("c", sorted(ids)).messages == len(ids)
        for line in self.lines.values():
            line[:] = [id for id in line if id not in ids]

    @rule(sure=st.integers(0, 9))
    def clear(self, sure: int) -> None:
        if sure == 0:
            self.store.clear_messages("c")
            self.lines, self.parents, self.active = {"main": []}, {}, "main"

    @invariant()
    def every_branch_reads_as_its_list(self) -> None:
        if not hasattr(self, "store"):
            return
        branches = {branch.id: branch for branch in self.store.list_branches("c")}
        assert set(branches) == set(self.lines)
        for name, line in self.lines.items():
            assert [each.id for each in self.store.iter_messages("c", branch=name)] == line
            backwards = [each.id for each in self.store.iter_messages("c", branch=name, order="desc")]
            assert backwards == line[::-1]
            assert branches[name].message_count == len(line)
            assert branches[name].active == (name == self.active)

    @invariant()
    def nothing_else_is_kept(self) -> None:
        if not hasattr(self, "store"):
            return
        held = self._held()
        found = self.store.get_conversation("c")
        assert found is not None
        assert found.message_count == len(held) == self.store.stats().messages
        assert self.store.check() == []
        for number in range(next(self.names)):
            id = f"m{number}"
            if id not in held:
                try:
                    self.store.get_message("c", id)
                except MessageNotFound:
                    continue
                raise AssertionError(f"{id} is on no branch, and still there")


TestBranchesAgainstLists = Model.TestCase
EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
TestBranchesAgainstLists.settings = settings(
    max_examples=EXAMPLES or 25,
    stateful_step_count=30,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
