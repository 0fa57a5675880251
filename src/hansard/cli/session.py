"""What every command is given: which store, seen as whom, and who reads the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from msgspec import Struct

from hansard.backends.schemes import default_url
from hansard.cli.locating import must_exist
from hansard.errors import ValidationError

if TYPE_CHECKING:
    from hansard import sync
    from hansard.search import Embedder


class Session(Struct, frozen=True):
    given_url: str | None = None
    tenant: str | None = None
    user: str | None = None
    json: bool = False

    @property
    def url(self) -> str:
        return default_url() if self.given_url is None else self.given_url

    @contextmanager
    def open(
        self, url: str | None = None, *, create: bool = False, embedder: Embedder | None = None
    ) -> Iterator[sync.Store]:
        """The store as the tenant and the user see it."""
        with self.open_whole(url, create=create, embedder=embedder) as store:
            yield self.view(store)

    @contextmanager
    def open_whole(
        self, url: str | None = None, *, create: bool = False, embedder: Embedder | None = None
    ) -> Iterator[sync.Store]:
        """The store with all its tenants. One that is missing is an error, unless the command may make it."""
        from hansard import sync

        where = self.url if url is None else url
        if not create:
            must_exist(where)
        with sync.connect(where, embedder=embedder) as store:
            yield store

    def refuse_user(self) -> None:
        """For commands that a user's view has no part in."""
        if self.user is not None:
            raise ValidationError("this command works on the whole store, not as a user sees it: leave --user out")

    def view(self, store: sync.Store) -> sync.Store:
        view = store if self.tenant is None else store.tenant(self.tenant)
        return view if self.user is None else view.user(self.user)


Given = Annotated[Session, Parameter(parse=False)]
