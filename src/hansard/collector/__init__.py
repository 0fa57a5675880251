"""Collects the transcripts of coding agents on this machine. Begin with `collector.py`, then `agents.py`.

Transcripts are files that grow line by line, and that their agents delete after a while. A collector finds them, stores
them, follows them, and can write them again.
"""

from hansard.collector.agents import CodingAgent, agent_named, coding_agents
from hansard.collector.collector import Collector

__all__ = ["CodingAgent", "Collector", "agent_named", "coding_agents"]
