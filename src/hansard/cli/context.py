"""What every command shares: the store's URL, the view, the output format, and confirmations.

Commands that only read must not create a missing store, and commands that delete ask first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec import Struct

from hansard.cli.values import visible
from hansard.errors import Denied, NotFound, ValidationError
from hansard.urls import Url, shown

if TYPE_CHECKING:
    from hansard import sync
    from hansard.search import Embedder


class CommandContext(Struct, frozen=True):
    given_url: str | None = None
    tenant: str | None = None
    user: str | None = None
    json: bool = False

    @property
    def url(self) -> str:
        if self.given_url is not None:
            return self.given_url
        from hansard.cli.configuration import store_url

        return store_url()

    @contextmanager
    def open(
        self, url: str | None = None, *, create: bool = False, embedder: Embedder | None = None
    ) -> Iterator[sync.Store]:
        """Opens the store in the view of the tenant and the user."""
        with self.open_whole(url, create=create, embedder=embedder) as store:
            yield self.view(store)

    @contextmanager
    def open_whole(
        self, url: str | None = None, *, create: bool = False, embedder: Embedder | None = None
    ) -> Iterator[sync.Store]:
        """Opens the store with all its tenants. A missing store is an error, unless `create` is set."""
        from hansard import sync

        where = self.url if url is None else url
        if not create:
            require_store(where)
        with sync.connect(where, embedder=embedder) as store:
            yield store

    def refuse_user(self) -> None:
        """Refuses --user, for commands that work on the whole store."""
        if self.user is not None:
            raise ValidationError("this command works on the whole store, not on a user's view: leave --user out")

    def view(self, store: sync.Store) -> sync.Store:
        view = store if self.tenant is None else store.tenant(self.tenant)
        return view if self.user is None else view.user(self.user)


Context = Annotated[CommandContext, Parameter(parse=False)]


STORE_FILE = "hansard.json"
"""A file that every folder of a `file:` store contains."""


def path_of(url: str) -> Path | None:
    """Returns the file or folder of an embedded store; None for other stores, or if the URL names none."""
    parts = Url(url)
    if parts.scheme == "sqlite" and not parts.netloc:
        name = parts.path.removeprefix("/")
        return Path(name) if name else None
    if parts.scheme == "file":
        from hansard.backends.files.connect import folder_of

        return folder_of(parts)
    return None


def is_missing(url: str) -> bool:
    """Whether opening the URL would create a new store."""
    path = path_of(url)
    if path is None:
        return False
    if path.is_dir():
        return not any(path.iterdir())
    return not path.exists() or not path.stat().st_size


def require_store(url: str) -> None:
    if is_missing(url):
        raise NotFound(f"there is no store at {shown(url)}: check --url and $HANSARD_URL, or append to create one")


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user confirms. Without a terminal it raises, so that nothing is deleted."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ValidationError("this deletes permanently, and there is no terminal to ask: pass --yes to do it")
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Denied("stopped: nothing was deleted")


EmbedderName = Annotated[
    str | None,
    Parameter(
        help="The embedder: an installed one, a folder or jar, wordllama, or package.module:name of one or its factory."
    ),
]


def load_embedder(name: str | None) -> Embedder | None:
    if name is None:
        return None
    from hansard.search.embedders import by_name

    return by_name(name)
