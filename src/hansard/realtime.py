"""Voice sessions of OpenAI's Realtime API: recorded as they happen, restored into a new session.

Begin with `agents.realtime.recorder`.
"""

from hansard.agents.realtime.recorder import Recorder, RecorderCounts, restore

__all__ = ["Recorder", "RecorderCounts", "restore"]
