"""What every part of the Store uses: a backend, the limits, and the view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hansard.contract.backend import Backend, Capabilities
from hansard.contract.types import Context
from hansard.errors import Denied, Unavailable, Unsupported
from hansard.limits import Limits
from hansard.model import Message, ReadFrom
from hansard.store import checks

if TYPE_CHECKING:
    from asyncio import Task

    from hansard.search.reranker import Reranker
    from hansard.store.embedder_task import Embeddings
    from hansard.store.titles import TitleWriter

Clock = Callable[[], datetime]
Titler = Callable[[Sequence[Message]], str | Awaitable[str | None] | None]


def utc_now() -> datetime:
    return datetime.now(UTC)


class View:
    """A backend narrowed to a tenant and, optionally, a user."""

    __slots__ = ("backend", "clock", "embeddings", "limits", "reranker", "tasks", "tenant", "titles", "user", "walled")

    def __init__(
        self,
        backend: Backend,
        limits: Limits,
        clock: Clock,
        titles: TitleWriter | None,
        *,
        tenant: str,
        user: str | None = None,
        walled: bool = False,
        tasks: set[Task[None]] | None = None,
        embeddings: Embeddings | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.clock = clock
        self.titles = titles
        """Writes titles for conversations that have none, or None. Shared by all views."""
        self.tenant = tenant
        self.user = user
        self.walled = walled
        """Whether this is a view: nothing done through it reaches another tenant or user."""
        self.tasks: set[Task[None]] = set() if tasks is None else tasks
        """Background tasks, until they end or the store is closed. Shared by all views."""
        self.embeddings = embeddings
        """Keeps the vectors of messages; None without an embedder. Shared by all views."""
        self.reranker = reranker
        """Ranks the best candidates of a search again, or None. Shared by all views."""

    def context(self, read_from: ReadFrom = "primary") -> Context:
        if read_from == "primary":
            return Context(self.tenant, self.clock(), self.user)
        checks.one_of(read_from, ("primary", "replica"), "read_from")
        return Context(self.tenant, self.clock(), self.user, replica=True)

    def of_tenant(self, tenant: str) -> View:
        if self.walled:
            raise Denied("a view cannot open another tenant: use the store that it was made from")
        return self._with(tenant, None)

    def of_user(self, user: str) -> View:
        if self.user is not None and user != self.user:
            raise Denied("a user's view cannot open another user's: use the store that it was made from")
        return self._with(self.tenant, user)

    def _with(self, tenant: str, user: str | None) -> View:
        return View(
            self.backend,
            self.limits,
            self.clock,
            self.titles,
            tenant=tenant,
            user=user,
            walled=True,
            tasks=self.tasks,
            embeddings=self.embeddings,
            reranker=self.reranker,
        )

    def require(self, holds: bool, capability: str, what: str) -> None:
        """Raises `Unsupported` unless `holds`."""
        if not holds:
            raise Unsupported(f"the {self.backend.capabilities.name} backend cannot {what}", capability=capability)


@contextmanager
def outcome_unknown_on_failure() -> Iterator[None]:
    """Marks the outcome of a failure as unknown: something was stored before it."""
    try:
        yield
    except Unavailable as error:
        if error.outcome == "unknown":
            raise
        raise type(error)(f"{error} (after a write)", retryable=error.retryable, outcome="unknown") from error


class StorePart:
    """Base of the classes that make up the Store."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._backend = view.backend

    @property
    def capabilities(self) -> Capabilities:
        """What the backend can do, as data."""
        return self._backend.capabilities

    @property
    def limits(self) -> Limits:
        """The sizes that are accepted."""
        return self._view.limits
