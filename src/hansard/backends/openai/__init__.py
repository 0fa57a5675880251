"""OpenAI's Conversations or Threads, or a server that speaks them, as a storage with an index of our own."""

from __future__ import annotations

from hansard.backends.openai.backend import OpenAiBackend
from hansard.backends.openai.connect import open_backend

__all__ = ["OpenAiBackend", "open_backend"]
