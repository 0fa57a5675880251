"""Files: a folder for each agent, a journal of JSON lines for each conversation. Begin with `layout.py`."""

from __future__ import annotations

from hansard.backends.files.backend import FilesBackend
from hansard.backends.files.opening import open_backend

__all__ = ["FilesBackend", "open_backend"]
