"""Another Hansard server as a storage: `https://hansard.example`."""

from __future__ import annotations

from hansard.backends.http.backend import HttpBackend
from hansard.backends.http.connect import open_backend

__all__ = ["HttpBackend", "open_backend"]
