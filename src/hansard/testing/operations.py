"""Random operations on a store, for the `machine`: each a name and a function, with ids chosen from few.

Arguments that depend on the state (a message to page from, the version to expect) are read from `memory` just before
the operation runs, so that both stores get exactly the same arguments.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from hansard.model import ROLES, SCOPES, STATUSES, Message
from hansard.store import Delete, Put
from hansard.testing import strategies
from hansard.testing.targets import Driver

CONVERSATIONS = st.sampled_from(["c0", "c0", "c0", "c1", "c1", "c2"])
MESSAGE_IDS = st.sampled_from([f"m{number}" for number in range(12)])
BRANCHES = st.sampled_from(["main", "b0", "b1", "b2"])
USERS = st.sampled_from(["u0", "u1"])
NAMESPACES = st.sampled_from([("a",), ("a", "b"), ("ab",), ("a", "b", "ü")])
KEYS = st.sampled_from(["k", "k1", "K", "ü", "kk"])
FLAGS = st.booleans()


class Operation:
    """One call of a store: `name(**arguments)`, through a view."""

    def __init__(self, name: str, call: Callable[..., Any], arguments: dict[str, Any], view: str) -> None:
        self.name, self.call, self.arguments, self.view = name, call, arguments, view

    def bind(self, truth: Driver) -> Operation:
        """Returns the operation with all arguments from the state filled in."""
        store = self._through(truth)
        bound = {
            name: value.bind(store, self.arguments) if isinstance(value, FromState) else value
            for name, value in self.arguments.items()
        }
        return Operation(self.name, self.call, bound, self.view)

    def do(self, store: Driver) -> Any:
        return self.call(self._through(store), **self.arguments)

    def _through(self, store: Driver) -> Driver:
        if self.view == "store":
            return store
        kind, _, name = self.view.partition(" ")
        return store.tenant(name) if kind == "tenant" else store.user(name)

    def __repr__(self) -> str:
        return f"{self.view}.{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class FromState:
    """An argument that is read from `memory` just before the operation runs."""

    def __init__(self, what: str, number: int) -> None:
        self.what, self.number = what, number

    def __repr__(self) -> str:
        return f"<{self.what} {self.number}>"

    def bind(self, store: Driver, arguments: dict[str, Any]) -> Any:
        return getattr(self, f"_{self.what}")(store, arguments.get("conversation_id", ""))

    def _version(self, store: Driver, conversation: str) -> int:
        found = store.get_conversation(conversation)
        return max(0, (found.version if found else 0) + self.number)

    def _cursor(self, store: Driver, conversation: str) -> str | None:
        messages = list(store.iter_messages(conversation))
        return messages[self.number % len(messages)].cursor if messages else None

    def _beginning(self, store: Driver, conversation: str) -> list[Message]:
        """Returns the first messages, which snapshots often begin with, except those with generated ids."""
        first = store.get_messages(conversation, limit=self.number) if self.number else []
        return [each for each in first if not each.id.startswith("msg_")]

    def _listing(self, store: Driver, conversation: str) -> str | None:
        return store.list_conversations(limit=self.number).next_cursor

    def _records(self, store: Driver, conversation: str) -> str | None:
        return store.records.scan(limit=self.number).next_cursor

    def _message(self, store: Driver, conversation: str) -> str:
        """Returns the id of an existing message on any branch, except generated ids."""
        branches = [store.iter_messages(conversation, branch=each.id) for each in store.list_branches(conversation)]
        ids = sorted({each.id for branch in branches for each in branch if not each.id.startswith("msg_")})
        return ids[self.number % len(ids)] if ids else "m0"

    def _branch(self, store: Driver, conversation: str) -> str:
        names = [each.id for each in store.list_branches(conversation)]
        return names[self.number % len(names)] if names else "main"

    def _seq(self, store: Driver, conversation: str) -> int:
        messages = list(store.iter_messages(conversation))
        return messages[self.number % len(messages)].seq if messages else 1


def from_state(what: str, low: int = 0, high: int = 6) -> st.SearchStrategy[FromState]:
    return st.builds(FromState, st.just(what), st.integers(low, high))


MESSAGES = from_state("message", 0, 12) | from_state("message", 0, 12) | MESSAGE_IDS
BRANCH_NAMES = from_state("branch") | from_state("branch") | BRANCHES


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def rarely(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([False] * 4 + [True]).flatmap(lambda given: strategy if given else st.none())


def _picture(seed: int) -> dict[str, Any]:
    return {"image": "data:image/png;base64," + base64.b64encode(random.Random(seed).randbytes(60)).decode()}


CONTENTS = strategies.json_values() | st.builds(_picture, st.integers(0, 2))
TIMES = st.integers(0, 9).map(lambda hour: datetime.fromisoformat(f"2026-03-01T1{hour}:00:00+00:00"))
LATER = st.sampled_from([datetime.fromisoformat(f"2026-03-01T{hour}:00:00+00:00") for hour in (12, 13, 18)])
DRAFTS = strategies.messages(MESSAGE_IDS | MESSAGE_IDS | st.just(""), USERS, CONTENTS)
BATCHES = st.lists(DRAFTS, min_size=1, max_size=4)
EXPECTED = rarely(from_state("version", -1, 1))
AGES = st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=3)])


def _fork(store: Driver, conversation_id: str, **options: Any) -> Any:
    return store.fork(conversation_id, **options)


def _replace(store: Driver, conversation_id: str, kept: list[Message], then: list[Message], **options: Any) -> Any:
    return store.replace_messages(conversation_id, [*kept, *then], **options)


def _summarize(store: Driver, conversation_id: str, first: int, last: int, text: str) -> Any:
    return store.add_summary(conversation_id, text, from_seq=min(first, last), to_seq=max(first, last))


def _put(store: Driver, conversation_id: str | None, **options: Any) -> Any:
    return store.records.put(conversation_id=conversation_id, **options)


def _read_page(store: Driver, conversation_id: str, backwards: bool, place: str | None, **options: Any) -> Any:
    direction = {"before" if backwards else "after": place}
    page = store.get_messages(conversation_id, **direction, **options)  # type: ignore[arg-type]
    return list(page), page.has_more


WRITES: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]] = {
    "append": (
        Driver.append,
        {
            "conversation_id": CONVERSATIONS,
            "messages": BATCHES,
            "user_id": rarely(USERS),
            "branch": rarely(BRANCH_NAMES),
            "expected_version": EXPECTED,
            "on_duplicate": st.sampled_from(["first", "first", "error"]),
            "create": st.sampled_from([True, True, False]),
            "revive": FLAGS,
            "metadata": maybe(strategies.metadata()),
        },
    ),
    "update_message": (
        Driver.update_message,
        {
            "conversation_id": CONVERSATIONS,
            "message_id": MESSAGES,
            "content": CONTENTS,
            "metadata": maybe(strategies.metadata()),
            "status": st.sampled_from(STATUSES),
            "usage": maybe(strategies.usages()),
            "pinned": FLAGS,
            "expected_version": EXPECTED,
        },
    ),
    "delete_messages": (
        Driver.delete_messages,
        {
            "conversation_id": CONVERSATIONS,
            "ids": st.tuples(MESSAGE_IDS, MESSAGE_IDS),
            "expected_version": EXPECTED,
        },
    ),
    "pop_message": (
        Driver.pop_message,
        {"conversation_id": CONVERSATIONS, "branch": rarely(BRANCH_NAMES), "expected_version": EXPECTED},
    ),
    "clear_messages": (Driver.clear_messages, {"conversation_id": CONVERSATIONS, "expected_version": EXPECTED}),
    "replace_messages": (
        _replace,
        {
            "conversation_id": CONVERSATIONS,
            "kept": from_state("beginning"),
            "then": st.lists(DRAFTS, max_size=3),
            "revive": FLAGS,
            "branch": rarely(BRANCH_NAMES),
            "expected_version": EXPECTED,
        },
    ),
    "branch": (
        Driver.branch,
        {
            "conversation_id": CONVERSATIONS,
            "branch_id": BRANCHES,
            "at": maybe(MESSAGES),
            "source": rarely(BRANCH_NAMES),
            "activate": FLAGS,
            "expected_version": EXPECTED,
        },
    ),
    "branch before": (
        Driver.branch,
        {"conversation_id": CONVERSATIONS, "branch_id": BRANCHES, "before": MESSAGES, "source": rarely(BRANCH_NAMES)},
    ),
    "branch empty": (
        Driver.branch,
        {"conversation_id": CONVERSATIONS, "branch_id": BRANCHES, "empty": st.just(True), "activate": FLAGS},
    ),
    "switch_branch": (Driver.switch_branch, {"conversation_id": CONVERSATIONS, "branch": BRANCH_NAMES}),
    "delete_branch": (Driver.delete_branch, {"conversation_id": CONVERSATIONS, "branch": BRANCH_NAMES}),
    "fork": (
        _fork,
        {
            "conversation_id": CONVERSATIONS,
            "new_id": st.sampled_from(["f0", "f1", "c2", "c0"]),
            "at": rarely(MESSAGES),
            "branch": rarely(BRANCH_NAMES),
        },
    ),
    "create_conversation": (
        Driver.create_conversation,
        {
            "conversation_id": CONVERSATIONS,
            "user_id": maybe(USERS),
            "agent_id": maybe(strategies.ids()),
            "title": maybe(strategies.texts()),
            "metadata": maybe(strategies.metadata()),
            "expires_at": rarely(LATER),
        },
    ),
    "update_conversation": (
        Driver.update_conversation,
        {
            "conversation_id": CONVERSATIONS,
            "title": maybe(strategies.texts()),
            "metadata": maybe(strategies.metadata()),
            "user_id": maybe(USERS),
            "expires_at": rarely(LATER),
            "archived": FLAGS,
            "expected_version": EXPECTED,
        },
    ),
    "delete_conversation": (Driver.delete_conversation, {"conversation_id": CONVERSATIONS}),
    "add_summary": (
        _summarize,
        {
            "conversation_id": CONVERSATIONS,
            "first": from_state("seq"),
            "last": from_state("seq"),
            "text": strategies.texts(),
        },
    ),
    "put a record": (
        _put,
        {
            "conversation_id": rarely(CONVERSATIONS),
            "namespace": NAMESPACES,
            "key": KEYS,
            "value": strategies.json_values() | st.binary(max_size=20),
            "expected_revision": rarely(st.integers(0, 2)),
            "expires_at": rarely(AGES),
        },
    ),
    "write records": (
        lambda store, batch: store.records.write(batch),
        {
            "batch": st.lists(
                st.builds(Put, NAMESPACES, KEYS, st.integers(), rarely(st.integers(0, 2)))
                | st.builds(Delete, NAMESPACES, KEYS, rarely(st.integers(0, 2))),
                max_size=4,
            )
        },
    ),
    "erase_user": (Driver.erase_user, {"user_id": USERS}),
    "purge": (Driver.purge, {"older_than": rarely(AGES), "dry_run": FLAGS}),
}

READS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]]]] = {
    "get_messages": (
        _read_page,
        {
            "conversation_id": CONVERSATIONS,
            "backwards": FLAGS,
            "place": maybe(from_state("cursor")) | MESSAGES,
            "limit": st.integers(1, 5),
            "order": st.sampled_from(["asc", "desc"]),
            "sort": st.sampled_from(["seq", "time"]),
            "roles": rarely(st.lists(st.sampled_from(ROLES), max_size=3)),
            "participant_ids": rarely(st.lists(USERS, max_size=2)),
            "scope": rarely(st.sampled_from(SCOPES)),
            "since": rarely(TIMES),
            "until": rarely(TIMES),
            "pinned": rarely(FLAGS),
            "branch": rarely(BRANCH_NAMES),
        },
    ),
    "the newest": (Driver.get_messages, {"conversation_id": CONVERSATIONS, "last": st.integers(1, 5)}),
    "turns": (Driver.get_messages, {"conversation_id": CONVERSATIONS, "turns": st.integers(1, 3)}),
    "get_message": (Driver.get_message, {"conversation_id": CONVERSATIONS, "message_id": MESSAGES}),
    "window": (Driver.window, {"conversation_id": CONVERSATIONS, "messages": st.integers(1, 5)}),
    "list_conversations": (
        Driver.list_conversations,
        {
            "user_id": rarely(USERS),
            "metadata": rarely(strategies.metadata()),
            "archived": st.sampled_from([None, None, True, False]),
            "sort": st.just("last_message_at"),
            "order": st.sampled_from(["asc", "desc"]),
            "after": maybe(from_state("listing", 1, 2)),
            "offset": st.integers(0, 1),
            "limit": st.integers(1, 3),
        },
    ),
    "by change": (Driver.list_conversations, {"sort": st.just("updated_at"), "archived": st.none()}),
    "scan records": (
        lambda store, **options: store.records.scan(**options),
        {
            "namespace": NAMESPACES | st.just(()),
            "key_prefix": st.sampled_from(["", "", "k", "ü"]),
            "exact": FLAGS,
            "after": maybe(from_state("records", 1, 3)),
            "order": st.sampled_from(["asc", "desc"]),
            "limit": st.integers(1, 4),
        },
    ),
    "usage": (Driver.usage, {}),
    "list_summaries": (Driver.list_summaries, {"conversation_id": CONVERSATIONS, "branch": rarely(BRANCH_NAMES)}),
}

VIEWS = st.sampled_from(["store"] * 12 + ["tenant t", "user u0", "user u1"])
WEIGHTS = {"append": 12, "replace_messages": 3, "branch": 4, "branch before": 2, "pop_message": 4, "get_messages": 4}
RARE = ("delete_conversation", "clear_messages", "erase_user", "purge", "create_conversation")


def beginning() -> list[Operation]:
    """Operations that create conversations with a branch, so that every run starts with some history."""
    batch = [Message("user", number, id=f"m{number}") for number in range(4)]
    return [
        Operation("append", Driver.append, {"conversation_id": "c0", "messages": batch}, "store"),
        Operation("branch", Driver.branch, {"conversation_id": "c0", "branch_id": "b0", "at": "m1"}, "store"),
        Operation("append", Driver.append, {"conversation_id": "c1", "messages": batch[:2], "user_id": "u0"}, "store"),
    ]


def operations() -> st.SearchStrategy[Operation]:
    """Returns any operation. Those that end a conversation are rare: most bugs need one with a history."""
    table = {**WRITES, **READS}
    common = [name for name in table if name not in RARE for _ in range(WEIGHTS.get(name, 2))]
    names = [*common, *RARE]

    @cache
    def build(name: str) -> st.SearchStrategy[Operation]:
        call, arguments = table[name]
        return st.tuples(st.fixed_dictionaries(arguments), VIEWS).map(lambda drawn: Operation(name, call, *drawn))

    return st.sampled_from(names).flatmap(build)
