"""Who takes part. Loaded by name, because peers are optional and ours may be a checkout that does not import."""

from benchmarks.contenders.base import Contender, Lister, NotAvailable
from benchmarks.contenders.roster import PEERS, Roster, load

__all__ = ["PEERS", "Contender", "Lister", "NotAvailable", "Roster", "load"]
