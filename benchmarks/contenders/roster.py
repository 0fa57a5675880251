"""Which contenders can be had here: imports each once, and remembers why one is absent."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib import metadata

from benchmarks.contenders.base import Contender, NotAvailable

DEFAULT_ENGINE = "sqlite"

_OURS = {
    "ours": "benchmarks.contenders.product:Ours",
    "blocking": "benchmarks.contenders.product_blocking:Blocking",
}
_PLACES = {
    "sqlite": {
        "raw": "benchmarks.contenders.raw:Raw",
        "raw-indexed": "benchmarks.contenders.raw:RawIndexed",
        **_OURS,
        "openai-agents": "benchmarks.contenders.openai_agents:OpenAIAgents",
        "langgraph": "benchmarks.contenders.langgraph:LangGraph",
        "google-adk": "benchmarks.contenders.google_adk:GoogleADK",
        "our-openai-agents": "benchmarks.contenders.adapters:OurOpenAIAgents",
        "our-langgraph": "benchmarks.contenders.adapters:OurLangGraph",
        "our-google-adk": "benchmarks.contenders.adapters:OurGoogleADK",
        "raw-redis": "benchmarks.contenders.redis:RawRedis",
        "ours-redis": "benchmarks.contenders.redis:OursOnRedis",
        "redis-session": "benchmarks.contenders.redis:RedisSession",
    },
    "postgresql": {
        "raw": "benchmarks.contenders.raw_postgres:RawPostgres",
        **_OURS,
        "openai-agents": "benchmarks.contenders.openai_agents_sqlalchemy:SQLAlchemySession",
        "langchain": "benchmarks.contenders.langchain_postgres:LangChainPostgres",
    },
}
"""By the storage engine, which is the scheme of the URL: whoever works on it."""
_TITLES = {"ours": "hansard", "blocking": "hansard.sync", "ours-redis": "hansard on redis"}
"""What a table calls ours while it cannot be imported."""
PEERS = ("openai-agents", "langchain", "langgraph", "google-adk")
ADAPTERS = ("our-openai-agents", "our-langgraph", "our-google-adk")
"""Ours behind a framework, beside the framework's own store."""
_ALL_PEERS = (*PEERS, "redis-session")


def engine_of(url: str) -> str:
    """The storage engine that a URL names; one that nobody else works on is compared with SQLite."""
    scheme = url.partition(":")[0]
    return scheme if scheme in _PLACES else DEFAULT_ENGINE


def load(key: str, engine: str = DEFAULT_ENGINE) -> type[Contender]:
    """The contender of that name, or NotAvailable with the reason."""
    module, _, name = _PLACES[engine][key].partition(":")
    try:
        kind: type[Contender] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        # Not the message: it may hold a path, and results are published.
        raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
    return kind


class Roster:
    """The contenders of this run; `absent` says why the others are not there."""

    def __init__(self, *, with_peers: bool, engine: str = DEFAULT_ENGINE) -> None:
        self.engine = engine
        self.absent: dict[str, str] = {}
        self._kinds: dict[str, type[Contender]] = {}
        for key in _PLACES[engine]:
            self._admit(key, with_peers=with_peers)

    def _admit(self, key: str, *, with_peers: bool) -> None:
        if key in _ALL_PEERS and not with_peers:
            self.absent[key] = "left out"
            return
        try:
            self._kinds[key] = load(key, self.engine)
        except NotAvailable as reason:
            self.absent[key] = str(reason)

    def of(self, keys: Iterable[str]) -> list[type[Contender]]:
        return [self._kinds[key] for key in keys if key in self._kinds]

    def title(self, key: str) -> str:
        kind = self._kinds.get(key)
        return kind.title if kind else _TITLES.get(key, key)

    def versions(self) -> dict[str, str]:
        return {package: _version(package) for package in sorted({kind.package for kind in self._kinds.values()})}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
