"""Files: a folder for each agent, a journal of JSON lines for each conversation. Start reading at `layout.py`."""

from __future__ import annotations

from hansard.backends.files.connect import open_backend
from hansard.backends.files.storage import FilesBackend, FilesStorage

__all__ = ["FilesBackend", "FilesStorage", "open_backend"]
