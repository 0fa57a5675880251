"""Voice sessions of OpenAI's Realtime API: recorded as they happen, restored into a new session.

Begin with `agents.realtime.recorder`.
"""

from hansard.agents.realtime.recorder import Recorder, restore
from hansard.agents.realtime.recorder import RecorderCounts as Counts

__all__ = ["Counts", "Recorder", "restore"]
