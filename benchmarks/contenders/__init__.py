"""The contenders. Loaded by name, because peers are optional and ours may be a checkout that cannot be imported."""

from benchmarks.contenders.base import Contender, Lister, NotAvailable, Reference
from benchmarks.contenders.roster import ADAPTERS, DEFAULT_ENGINE, PEERS, Roster, engine_of, load

__all__ = [
    "ADAPTERS",
    "DEFAULT_ENGINE",
    "PEERS",
    "Contender",
    "Lister",
    "NotAvailable",
    "Reference",
    "Roster",
    "engine_of",
    "load",
]
