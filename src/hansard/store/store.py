"""The Store: every operation on conversations, written once over every backend.

It checks, limits and converts arguments; `rules`, inside the backend, decide what a write means. Its methods are in the
other modules of this package, by subject. Each is a `StorePart` that needs only a view and inherits nothing from
another part, so the list of bases below is the table of contents.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from hansard.contract.backend import Backend
from hansard.errors import Denied
from hansard.limits import Limits
from hansard.model import DEFAULT_TENANT
from hansard.store import checks
from hansard.store.accessors import AsyncAccessors
from hansard.store.admin import Admin
from hansard.store.append import AppendMethods
from hansard.store.blobs import Blobs
from hansard.store.branches import BranchMethods
from hansard.store.conversations import ConversationMethods
from hansard.store.core import Clock, StorePart, Titler, View, utc_now
from hansard.store.lifecycle import LifecycleMethods
from hansard.store.members import MemberMethods
from hansard.store.messages import MessageMethods
from hansard.store.prompts import PromptMethods
from hansard.store.ratings import RatingMethods
from hansard.store.records import Records
from hansard.store.search import SearchMethods
from hansard.store.shares import ShareMethods
from hansard.store.titles import TitleWriter, first_words
from hansard.store.transfers import TransferMethods

if TYPE_CHECKING:
    from hansard.search.reranker import Reranker
    from hansard.search.vectors import Embedder


class Store(
    ConversationMethods,
    AppendMethods,
    MessageMethods,
    BranchMethods,
    RatingMethods,
    MemberMethods,
    ShareMethods,
    PromptMethods,
    SearchMethods,
    LifecycleMethods,
    TransferMethods,
    AsyncAccessors,
):
    """A conversation store. `hansard.connect(url)` opens one; `Store(backend)` wraps a backend of your own.

    - `backend`: where everything is stored.
    - `limits`: the largest sizes that are accepted; see `Limits`.
    - `auto_title`: True titles a conversation that has no title with the first line of its first user message. A
      function, async or not, takes the appended messages and returns the title.
    - `clock`: a function that returns the current time, for tests.
    - `tenant`: the tenant whose data the store reads and writes; `tenant()` returns the view of another one.
    - `embedder`: turns texts into vectors, so that `search` can also search by meaning.
    - `reranker`: ranks the best candidates of a search by relevance again.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        limits: Limits | None = None,
        auto_title: bool | Titler = False,
        clock: Clock = utc_now,
        tenant: str = DEFAULT_TENANT,
        embedder: Embedder | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        limits = limits or Limits()
        titler = first_words if auto_title is True else auto_title or None
        titles = None if titler is None else TitleWriter(titler)
        owner = checks.id_of(tenant, "tenant", limits)
        if reranker is not None:
            from hansard.search.reranker import checked

            reranker = checked(reranker)
        view = View(backend, limits, clock, titles, tenant=owner, reranker=reranker)
        if embedder is not None:
            from hansard.store.embedder_task import embeddings_in

            view.embeddings = embeddings_in(view, embedder)
        super().__init__(view)

    @classmethod
    def _of(cls, view: View) -> Self:
        store = cls.__new__(cls)
        StorePart.__init__(store, view)
        return store

    def _host(self) -> Store:
        return self

    # Views

    def tenant(self, tenant: str | int) -> Self:
        """Returns the store as the tenant `tenant` sees it. Nothing done through this view reaches another tenant."""
        return self._of(self._view.of_tenant(checks.id_of(tenant, "tenant", self.limits)))

    def user(self, user_id: str | int) -> Self:
        """Returns the store as the user `user_id` sees it.

        Only the user's own conversations and records exist, and conversations that the user is a member of.
        """
        return self._of(self._view.of_user(checks.id_of(user_id, "user_id", self.limits)))

    @property
    def tenant_id(self) -> str:
        """The tenant of this store or view."""
        return self._view.tenant

    @property
    def user_id(self) -> str | None:
        """The user whose view this is; None for a store or a tenant's view."""
        return self._view.user

    @property
    def is_root(self) -> bool:
        """Whether this is the store itself, not a view. Closing it closes the backend."""
        return not self._view.walled

    # Parts of the store

    @property
    def records(self) -> Records:
        """JSON and binary documents outside the messages."""
        return Records(self._view)

    @property
    def blobs(self) -> Blobs:
        """Bytes that are stored once for each tenant, by their hash."""
        return Blobs(self._view)

    @property
    def admin(self) -> Admin:
        """Operations over all tenants. `Denied` through a view."""
        if self._view.walled:
            raise Denied("a view has no admin: use the store that it was made from")
        return Admin(self._view)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder that the store was opened with, or None."""
        return self._view.embeddings.embedder if self._view.embeddings is not None else None

    @property
    def reranker(self) -> Reranker | None:
        """The reranker that the store was opened with, or None."""
        return self._view.reranker

    @property
    def backend(self) -> Backend:
        """The backend that the store calls."""
        return self._backend

    # Closing

    async def close(self) -> None:
        """Cancels background tasks and closes the backend. Does nothing through a view."""
        if self._view.walled:
            return
        if self._view.tasks:
            await self._end_tasks()
        await self._backend.close()

    async def _end_tasks(self) -> None:
        import asyncio

        tasks = list(self._view.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
