"""Preference pairs for direct preference optimization (OpenAI's format), from answers that were regenerated.

Where two answers follow the same message, the one with the better ratings is preferred, on average; an answer without a
rating counts as 0. Where ratings do not decide it, the one on the active branch is. Only plain answers make pairs: the
format has one assistant message for each side, without tool calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import permutations
from typing import Any

from hansard.exporters import training_data
from hansard.exporters.exporter import ExportedConversation, TreeMessage
from hansard.exporters.report import ExportReport
from hansard.model import Message


class Preference:
    name = "preference"
    title = "preference pairs (DPO): {'input', 'preferred_output', 'non_preferred_output'} a line"
    media_type = training_data.NDJSON

    async def write(
        self, conversations: AsyncIterator[ExportedConversation], report: ExportReport
    ) -> AsyncIterator[bytes]:
        async for each in conversations:
            tree = {given.message.id: given async for given in each.tree()}
            if len(_with_alternatives(tree)) == 0:
                continue
            active = {message.id async for message in each.line()}
            before = report.pairs
            for pair in _Pairs(each, tree, active, report).pairs():
                yield training_data.line(pair)
                report.pairs += 1
            if report.pairs > before:
                report.wrote(len(tree))


def rating_of(message: Message) -> float:
    values = [rating.value for rating in message.ratings]
    return sum(values) / len(values) if values else 0.0


def _with_alternatives(tree: dict[str, TreeMessage]) -> dict[str, list[Message]]:
    """The answers to each message that has more than one."""
    children: dict[str, list[Message]] = {}
    for each in tree.values():
        if each.parent is not None and each.message.role in ("assistant", "agent"):
            children.setdefault(each.parent, []).append(each.message)
    return {parent: answers for parent, answers in children.items() if len(answers) > 1}


class _Pairs:
    def __init__(
        self, given: ExportedConversation, tree: dict[str, TreeMessage], active: set[str], report: ExportReport
    ) -> None:
        self._conversation = given.conversation
        self._tree = tree
        self._active = active
        self._report = report

    def pairs(self) -> Iterator[dict[str, Any]]:
        for parent, answers in _with_alternatives(self._tree).items():
            chosen = [pair for pair in permutations(answers, 2) if self._is_better(*pair)]
            if not chosen:
                self._report.lose("choice between answers that nothing tells apart", parent)
                continue
            outputs = {answer.id: self._output(answer) for answer in answers}
            messages = training_data.converted(self._path(parent), self._report)
            for better, worse in chosen:
                preferred, rejected = outputs[better.id], outputs[worse.id]
                if messages and preferred and rejected:
                    yield self._pair(messages, preferred, rejected)

    def _is_better(self, one: Message, other: Message) -> bool:
        if rating_of(one) != rating_of(other):
            return rating_of(one) > rating_of(other)
        return one.id in self._active and other.id not in self._active

    def _pair(self, messages: list[Any], preferred: list[Any], rejected: list[Any]) -> dict[str, Any]:
        given: dict[str, Any] = {"messages": messages}
        if tools := training_data.tools_of(self._conversation, messages):
            given["tools"] = tools
        return {"input": given, "preferred_output": preferred, "non_preferred_output": rejected}

    def _path(self, id: str | None) -> list[Message]:
        """The messages from the first one to this one."""
        found = []
        while id is not None:
            found.append(self._tree[id].message)
            id = self._tree[id].parent
        return found[::-1]

    def _output(self, answer: Message) -> list[Any] | None:
        found = training_data.converted([answer], self._report)
        if len(found) == 1 and "tool_calls" not in found[0]:
            return found
        self._report.lose("answer that is not one plain message", answer.id)
        return None
