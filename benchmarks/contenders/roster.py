"""The available contenders: imports each once, and records why one is absent."""

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
"""Contenders by storage engine, which is the scheme of the URL."""
_TITLES = {"ours": "hansard", "blocking": "hansard.sync", "ours-redis": "hansard on redis"}
"""Titles of ours for tables if it cannot be imported."""
PEERS = ("openai-agents", "langchain", "langgraph", "google-adk")
ADAPTERS = ("our-openai-agents", "our-langgraph", "our-google-adk")
"""Our adapters, which are compared with the framework's own store."""
_ALL_PEERS = (*PEERS, "redis-session")


def engine_of(url: str) -> str:
    """Returns the storage engine of a URL. Engines without other contenders are compared with SQLite."""
    scheme = url.partition(":")[0]
    return scheme if scheme in _PLACES else DEFAULT_ENGINE


def load(key: str, engine: str = DEFAULT_ENGINE) -> type[Contender]:
    """Returns the contender of that name, or raises `NotAvailable` with the reason."""
    module, _, name = _PLACES[engine][key].partition(":")
    try:
        kind: type[Contender] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        # Not the message, which may contain a path: results are published.
        raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
    return kind


class Roster:
    """The contenders of this run; `absent` has the reasons for the others."""

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
