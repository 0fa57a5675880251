"""OpenAI's Conversations or Threads API, or a compatible server, as a storage with a local index."""

from __future__ import annotations

from hansard.backends.openai.backend import OpenAiBackend
from hansard.backends.openai.connect import open_backend

__all__ = ["OpenAiBackend", "open_backend"]
