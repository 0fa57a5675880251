"""The same store without `await`, for scripts, threads and frameworks that block.

Each method here runs the coroutine of its async namesake. On a backend that never suspends (memory, files, SQLite) it
runs in the calling thread, with no event loop and no other thread; so it also works inside a running loop. Other
backends, and methods that really wait (`watch`), run on one loop thread that the store owns.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from hansard import store as _async
from hansard.backends import schemes
from hansard.blocking import Call, LoopThread, Runner, run_to_end
from hansard.contract.backend import Backend, Capabilities
from hansard.errors import ValidationError
from hansard.limits import Limits
from hansard.model import Message
from hansard.store import admin, blobs, checks, records
from hansard.store.accessors import Accessors
from hansard.store.core import Clock, Titler, View, utc_now

if TYPE_CHECKING:
    from hansard.search.reranker import Reranker
    from hansard.search.vectors import Embedder
    from hansard.store.search_modes import Grouping, SearchMode

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _Blocking:
    """A part of the store: the async one, and how to run it."""

    def __init__(self, inner: Any, runner: Runner) -> None:
        self._inner = inner
        self._runner = runner


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Returns the blocking namesake of an async method."""

    @functools.wraps(method)
    def call(self: _Blocking, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._runner.call(method(self._inner, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], R]", call)


def waiting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    when: Callable[[Any, Mapping[str, Any]], bool] = lambda inner, options: True,
) -> Callable[Concatenate[Any, P], R]:
    """Returns the blocking namesake of an async method that awaits user code: always, or with some options."""

    @functools.wraps(method)
    def call(self: _Blocking, *args: P.args, **kwargs: P.kwargs) -> R:
        run = self._runner.wait if when(self._inner, kwargs) else self._runner.call
        return run(method(self._inner, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], R]", call)


def _has_summarizer(_: Any, options: Mapping[str, Any]) -> bool:
    return options.get("summarizer") is not None


def _is_by_meaning(store: Any, options: Mapping[str, Any]) -> bool:
    view = store._view
    return view.embeddings is not None or view.reranker is not None or options.get("mode") is not None


def iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[R]], *, waits: bool | Callable[[Any], bool] = False
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """Returns the blocking namesake of an async iterator.

    `waits`: whether it awaits user code, or a function that decides it.
    """

    @functools.wraps(method)
    def call(self: _Blocking, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        suspends = waits if isinstance(waits, bool) else waits(self._inner)
        return self._runner.iterate(method(self._inner, *args, **kwargs), waits=suspends)

    return cast("Callable[Concatenate[Any, P], Iterator[R]]", call)


def _embeds(inner: Any) -> bool:
    return inner._view.embeddings is not None


def between(
    method: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, Any, P], R]:
    """Returns the blocking namesake of an async method that works with a second store."""

    @functools.wraps(method)
    def call(self: _Blocking, other: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        if not isinstance(other, Store):
            raise ValidationError(f"the other store must be a hansard.sync.Store, not a {type(other).__name__}")
        runner, theirs = self._runner, other._inner
        if runner.direct:
            # A backend that never suspends can run anywhere, so the other store's runner serves both.
            runner = other._runner
        elif not other._runner.direct:
            theirs = _elsewhere(theirs, other._runner.thread)
        return runner.call(method(self._inner, theirs, *args, **kwargs))

    return cast("Callable[Concatenate[Any, Any, P], R]", call)


class LoopThreadBackend:
    """A backend whose calls run on another loop's thread, seen from this one."""

    def __init__(self, backend: Backend, thread: LoopThread) -> None:
        self._backend = backend
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.wrap_future(self._thread.submit(found(*args, **kwargs)))

        return call


def _elsewhere(store: _async.Store, thread: LoopThread) -> _async.Store:
    view = store._view
    backend = cast(Backend, LoopThreadBackend(view.backend, thread))
    moved = View(backend, view.limits, view.clock, view.titles, tenant=view.tenant, user=view.user, walled=view.walled)
    return _async.Store._of(moved)


class Records(_Blocking):
    """`store.records`, blocking."""

    get = blocking(records.Records.get)
    get_many = blocking(records.Records.get_many)
    put = blocking(records.Records.put)
    delete = blocking(records.Records.delete)
    write = blocking(records.Records.write)
    scan = blocking(records.Records.scan)
    iter = iterating(records.Records.iter)


class Blobs(_Blocking):
    """`store.blobs`, blocking."""

    put = blocking(blobs.Blobs.put)
    get = blocking(blobs.Blobs.get)


class Admin(_Blocking):
    """`store.admin`, blocking."""

    tenants = blocking(admin.Admin.tenants)
    delete_tenant = blocking(admin.Admin.delete_tenant)
    stats = blocking(admin.Admin.stats)
    check = iterating(admin.Admin.check)
    reindex = iterating(admin.Admin.reindex, waits=_embeds)
    vacuum = blocking(admin.Admin.vacuum)
    copy_to = between(admin.Admin.copy_to)


class SearchTool(_Blocking):
    """`store.search_tool`, blocking: a plain function that searches."""

    def __call__(self, query: str, limit: int = 5) -> str:
        """Searches the conversation for earlier messages; returns the best matches as text."""
        return self._answer(self._inner(query, limit))

    def run(self, arguments: str | Mapping[str, Any]) -> str:
        return self._answer(self._inner.run(arguments))

    def _answer(self, search: Coroutine[Any, Any, str]) -> str:
        # A search by meaning awaits the embedder, which is user code.
        return self._runner.call(search) if self._inner.mode == "words" else self._runner.wait(search)

    def __getattr__(self, name: str) -> Any:
        # The schemas for each API, which need no waiting.
        return getattr(self._inner, name)


class Store(_Blocking, Accessors):
    """A conversation store, blocking: the methods of `hansard.Store` by the same names."""

    _inner: _async.Store

    create_conversation = blocking(_async.Store.create_conversation)
    get_conversation = blocking(_async.Store.get_conversation)
    list_conversations = blocking(_async.Store.list_conversations)
    iter_conversations = iterating(_async.Store.iter_conversations)
    remote_id = blocking(_async.Store.remote_id)
    update_conversation = blocking(_async.Store.update_conversation)
    delete_conversation = blocking(_async.Store.delete_conversation)

    append_message = blocking(_async.Store.append_message)
    append = blocking(_async.Store.append)
    replace_messages = blocking(_async.Store.replace_messages)
    update_message = blocking(_async.Store.update_message)
    delete_message = blocking(_async.Store.delete_message)
    delete_messages = blocking(_async.Store.delete_messages)
    clear_messages = blocking(_async.Store.clear_messages)
    pop_message = blocking(_async.Store.pop_message)
    get_message = blocking(_async.Store.get_message)
    get_messages = blocking(_async.Store.get_messages)
    iter_messages = iterating(_async.Store.iter_messages)
    window = blocking(_async.Store.window)

    add_member = blocking(_async.Store.add_member)
    remove_member = blocking(_async.Store.remove_member)

    share = blocking(_async.Store.share)
    list_shares = blocking(_async.Store.list_shares)
    unshare = blocking(_async.Store.unshare)
    open_share = blocking(_async.Store.open_share)

    rate = blocking(_async.Store.rate)
    remove_rating = blocking(_async.Store.remove_rating)
    add_label = blocking(_async.Store.add_label)
    remove_label = blocking(_async.Store.remove_label)
    list_labels = blocking(_async.Store.list_labels)

    branch = blocking(_async.Store.branch)
    switch_branch = blocking(_async.Store.switch_branch)
    list_branches = blocking(_async.Store.list_branches)
    delete_branch = blocking(_async.Store.delete_branch)
    fork = blocking(_async.Store.fork)

    assemble_prompt = waiting(_async.Store.assemble_prompt, when=_has_summarizer)
    get_prompt = blocking(_async.Store.get_prompt)
    summarize = waiting(_async.Store.summarize)
    rebuild_summaries = waiting(_async.Store.rebuild_summaries)
    to_openai_input = staticmethod(_async.Store.to_openai_input)
    to_openai_responses = staticmethod(_async.Store.to_openai_responses)
    to_anthropic_messages = staticmethod(_async.Store.to_anthropic_messages)
    to_gemini_contents = staticmethod(_async.Store.to_gemini_contents)
    to_langchain_messages = staticmethod(_async.Store.to_langchain_messages)
    add_summary = blocking(_async.Store.add_summary)
    list_summaries = blocking(_async.Store.list_summaries)

    search = waiting(_async.Store.search, when=_is_by_meaning)
    embed = waiting(_async.Store.embed)

    watch = iterating(_async.Store.watch, waits=True)
    erase_user = blocking(_async.Store.erase_user)
    purge = blocking(_async.Store.purge)
    backup = blocking(_async.Store.backup)
    usage = blocking(_async.Store.usage)
    stats = blocking(_async.Store.stats)
    check = blocking(_async.Store.check)

    claude_session_binding = blocking(_async.Store.claude_session_binding)

    def _host(self) -> _async.Store:
        # Async methods of an adapter run in whatever loop the framework provides.
        return self._inner if self._runner.direct else _elsewhere(self._inner, self._runner.thread)

    def _call(self) -> Call:
        return self._runner.call

    export = iterating(_async.Store.export)
    import_ = blocking(_async.Store.import_)
    copy_to = between(_async.Store.copy_to)

    def search_tool(
        self,
        conversation_id: str | int | None = None,
        *,
        user_id: str | int | None = None,
        mode: SearchMode | None = None,
        around: int = 0,
        group_by: Grouping | None = None,
        token_cap: int = 2000,
    ) -> SearchTool:
        tool = self._inner.search_tool(
            conversation_id, user_id=user_id, mode=mode, around=around, group_by=group_by, token_cap=token_cap
        )
        return SearchTool(tool, self._runner)

    @classmethod
    def over(cls, backend: Backend, **options: Any) -> Self:
        """Returns a blocking store over a backend of your own; the options are those of `hansard.Store`."""
        return cls._around(backend, Runner(), options)

    @classmethod
    def _around(cls, backend: Backend, runner: Runner, options: dict[str, Any]) -> Self:
        runner.direct = backend.capabilities.blocking
        titler = options.get("auto_title")
        if runner.direct and callable(titler):
            options["auto_title"] = _blocking_titler(titler, runner)
        try:
            inner = _async.Store(backend, **options)
        except BaseException:
            runner.call(backend.close())
            runner.thread.stop()
            raise
        if runner.direct and inner._view.embeddings is not None:
            inner._view.embeddings.in_background = False
        return cls(inner, runner)

    def tenant(self, tenant: str | int) -> Self:
        return type(self)(self._inner.tenant(tenant), self._runner)

    def user(self, user_id: str | int) -> Self:
        return type(self)(self._inner.user(user_id), self._runner)

    @property
    def tenant_id(self) -> str:
        return self._inner.tenant_id

    @property
    def user_id(self) -> str | None:
        return self._inner.user_id

    @property
    def records(self) -> Records:
        return Records(self._inner.records, self._runner)

    @property
    def blobs(self) -> Blobs:
        return Blobs(self._inner.blobs, self._runner)

    @property
    def admin(self) -> Admin:
        return Admin(self._inner.admin, self._runner)

    @property
    def backend(self) -> Backend:
        return self._inner.backend

    @property
    def embedder(self) -> Embedder | None:
        return self._inner.embedder

    @property
    def reranker(self) -> Reranker | None:
        return self._inner.reranker

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    def close(self) -> None:
        # Background tasks run on the loop's thread.
        call = self._runner.wait if self._inner.is_root and self._inner._view.tasks else self._runner.call
        call(self._inner.close())
        if self._inner.is_root:
            self._runner.thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(
    url: str | None = None,
    *,
    limits: Limits | None = None,
    auto_title: bool | Titler = False,
    clock: Clock = utc_now,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    lazy: bool = False,
    blobs: str | None = None,
) -> Store:
    """Opens a store without an event loop. See `hansard.connect`."""
    open = schemes.open_lazily if checks.flag(lazy, "lazy") else schemes.open_backend
    runner = Runner()
    where = schemes.default_url() if url is None else url
    opener = run_to_end if schemes.opens_directly(where) else runner.thread.run
    try:
        backend = opener(open(where, blocking=True))
        if blobs is not None:
            backend = opener(schemes.with_bucket(backend, blobs))
    except BaseException:
        runner.thread.stop()
        raise
    options = {
        "limits": limits,
        "auto_title": auto_title,
        "clock": clock,
        "embedder": embedder,
        "reranker": reranker,
    }
    return Store._around(backend, runner, options)


def _blocking_titler(titler: Titler, runner: Runner) -> Titler:
    """Wraps a user's titler, which may await: it runs on the loop thread, so that the append itself never suspends.

    Only if appends run in the calling thread: on the loop thread it would wait for itself forever.
    """

    async def wait(title: Awaitable[str | None]) -> str | None:
        return await title

    def call(messages: Sequence[Message]) -> str | None:
        title = titler(messages)
        return runner.thread.run(wait(title)) if inspect.isawaitable(title) else title

    return call
