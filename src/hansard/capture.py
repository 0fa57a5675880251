"""Records agents: their input and their answers, in one line of user code.

`Capture(store)` wraps any async agent. Begin with `agents.capture.capture`.
"""

from hansard.agents.capture.capture import Capture
from hansard.agents.capture.outbox import Counts
from hansard.agents.capture.spool import Spool
from hansard.agents.capture.turns import Blocked, Inbound, Reply

__all__ = ["Blocked", "Capture", "Counts", "Inbound", "Reply", "Spool"]
