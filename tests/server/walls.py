"""A server with a secret conversation, and keys that must not reach it: for tests of REST, the wire and the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.server.kit import Served, serving
from tests.server.requests_of import OWNER

from hansard import sync
from hansard.server.endpoints import SCOPES
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings
from hansard.testing import state
from hansard.testing.contract.walls import store_a_secret

ALL: list[str] = [*SCOPES]


class Walled:
    """The secret is in the tenant acme; `tokens` are those of other tenants and users."""

    def __init__(self, api: Served, keys: KeyFile, store: sync.Store) -> None:
        self.api = api
        self.keys = keys
        self.acme = store.tenant("acme")
        store_a_secret(self.acme)  # type: ignore[arg-type]
        self.tokens = {
            "evil": self.key(ALL, tenant="evil"),
            "eve": self.key(ALL, tenant="acme", user="eve"),
            "evil ada": self.key(ALL, tenant="evil", user=OWNER),
        }

    def key(self, scopes: list[str], **bound: Any) -> str:
        return self.keys.create("test", scopes, **{"tenant": "acme", **bound})[1]

    def behind(self) -> Any:
        """Returns the data behind the wall, without what other users of the tenant have created."""
        for each in self.acme.list_conversations(archived=None).items:
            if each.user_id == "eve":
                self.acme.delete_conversation(each.id)
        return state(self.acme), state(self.acme.user(OWNER))


W = TypeVar("W", bound=Walled)


@contextmanager
def walled_in(folder: Path, kind: Callable[[Served, KeyFile, sync.Store], W]) -> Iterator[W]:
    url = f"sqlite:///{folder}/chats.db"
    keys = KeyFile(folder / "keys.json")
    settings = Settings(keys=keys.path, audit_log=folder / "audit.jsonl")
    with serving(url, settings) as api, sync.connect(url) as store:
        yield kind(api, keys, store)
